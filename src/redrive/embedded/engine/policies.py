"""Policies: which one applies to a queue or an exchange.

Only one does: of those whose pattern matches and whose kind fits, the one of the highest priority (which of two equals
is unspecified by RabbitMQ; here the later name). An operator policy is chosen apart, and bounds the other.
"""

import re
from collections.abc import Mapping
from typing import Any

from redrive.embedded.engine.queue_settings import CLASSIC, QUORUM, STREAM, bounded
from redrive.topology import Policy

_APPLIES = {
    "all": ("exchange", CLASSIC, QUORUM, STREAM),
    "exchanges": ("exchange",),
    "queues": (CLASSIC, QUORUM, STREAM),
    "classic_queues": (CLASSIC,),
    "quorum_queues": (QUORUM,),
    "streams": (STREAM,),
}


class Policies:
    """The policies and operator policies of a vhost, by name."""

    def __init__(self) -> None:
        self._policies: dict[tuple[bool, str], tuple[Policy, re.Pattern[str]]] = {}

    def set(self, policy: Policy) -> None:
        """Add or replace one. Raises re.error for a pattern that is none."""
        self._policies[policy.operator, policy.name] = (policy, re.compile(policy.pattern))

    def remove(self, name: str, *, operator: bool = False) -> None:
        """Take one away, if it is there."""
        self._policies.pop((operator, name), None)

    def all(self) -> list[Policy]:
        """Every policy, operator policies too."""
        return [policy for policy, _ in self._policies.values()]

    def definition(self, name: str, kind: str) -> Mapping[str, Any]:
        """What policies say about a thing; `kind` is exchange, classic, quorum or stream."""
        if not self._policies:
            return {}
        return bounded(self._chosen(name, kind, operator=False), self._chosen(name, kind, operator=True))

    def _chosen(self, name: str, kind: str, *, operator: bool) -> Mapping[str, Any]:
        fitting = [
            policy
            for (is_operator, _), (policy, pattern) in self._policies.items()
            if is_operator is operator and kind in _APPLIES.get(policy.apply_to, ()) and pattern.search(name)
        ]
        if not fitting:
            return {}
        return max(fitting, key=lambda policy: (policy.priority, policy.name)).definition.thaw()
