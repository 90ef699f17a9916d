"""What one version of RabbitMQ refuses, ignores or does otherwise than the others: `redrive compile --for VERSION`.

Nothing is changed to suit a version; the result is findings. An error is what the broker refuses (a refused policy
aborts a whole import) or what loses messages there; a warning is what it silently ignores. What is wrong on every
version is in `arguments`. The facts were measured on 3.10.8, 4.0.5 and 4.3.6.
"""

import re
import warnings
from collections.abc import Iterable, Iterator

from redrive.core import Finding, Severity
from redrive.topology.arguments.known_arguments import (
    APPLY_TO_SINCE,
    EXCHANGE_TYPES_SINCE,
    MIN_MASTERS,
    POLICY_KEYS,
    QUEUE_ARGUMENTS,
    PolicyRule,
)
from redrive.topology.broker_versions import BrokerVersion
from redrive.topology.model import Exchange, Policy, Queue, QueueType, Topology, Vhost

__all__ = ["BrokerVersion", "check_for"]

_V3_10, _V4_0, _V4_3 = BrokerVersion.V3_10, BrokerVersion.V4_0, BrokerVersion.V4_3
_POLICY_RULES = {rule.name: rule for rule in POLICY_KEYS}
# Arguments that are newer than the oldest version.
_LATER = {rule.name: rule for rule in QUEUE_ARGUMENTS if rule.since > _V3_10}
_DELAYED_RETRY = frozenset({"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"})
_DELAYED_TYPE = "x-delayed-retry-type"
_DELIVERIES_DEFAULT = 20


def check_for(topology: Topology, version: BrokerVersion) -> tuple[Finding, ...]:
    """What `version` would refuse, ignore or lose in this topology, object by object in its order."""
    found: list[Finding] = []
    for vhost in topology.vhosts:
        found.extend(_check_vhost(vhost, version))
    for exchange in topology.exchanges:
        found.extend(_check_exchange(exchange, version))
    limits = _DeliveryPolicies(topology.policies)
    for queue in topology.queues:
        found.extend(_check_arguments(queue, version))
        if version >= _V4_0 and queue.type == QueueType.QUORUM:
            found.extend(_check_default_limit(queue, version, limits))
        if version >= _V4_3 and not queue.durable and queue.type == QueueType.CLASSIC:
            found.append(_transient(queue))
    for policy in topology.policies:
        found.extend(_check_policy(policy, version))
    return tuple(found)


def _check_vhost(vhost: Vhost, version: BrokerVersion) -> Iterator[Finding]:
    wanted = vhost.default_queue_type
    if version < _V4_0 and wanted not in (None, "undefined", QueueType.CLASSIC):
        yield _warning(
            vhost,
            "default-queue-type-ignored",
            f"has the default queue type {wanted}, which RabbitMQ {version} ignores",
            "give each queue its x-queue-type",
        )


def _check_exchange(exchange: Exchange, version: BrokerVersion) -> Iterator[Finding]:
    since = EXCHANGE_TYPES_SINCE.get(exchange.type)
    if since is not None and since > version:
        yield _error(
            exchange,
            "unknown-exchange-type",
            f"has the type {exchange.type}, which RabbitMQ {version} refuses",
            f"it is there from {since} on",
        )


def _check_arguments(queue: Queue, version: BrokerVersion) -> Iterator[Finding]:
    for name, value in queue.arguments.items():
        if name in _LATER:
            # One sentence says it for all three arguments of delayed retry.
            is_covered = name in _DELAYED_RETRY and name != _DELAYED_TYPE and _DELAYED_TYPE in queue.arguments
            if _LATER[name].since > version and not is_covered:
                yield _unknown_yet(queue, name, version, _LATER[name].since)
        elif name == "x-delivery-limit":
            if version < _V4_0 and type(value) is int and value < 0:
                yield _error(
                    queue,
                    "delivery-limit-destroys",
                    f"has x-delivery-limit {value}, with which RabbitMQ {version} drops a message on its first requeue",
                    "say 1000000, which is as good as no limit on every version",
                )
        elif name == "x-queue-mode":
            if version >= _V4_0:
                yield _warning(
                    queue, "argument-without-effect", f"{name} does nothing on RabbitMQ {version}", "drop it"
                )
        elif name == "x-queue-version":
            if version >= _V4_3 and value == 1:
                yield _error(queue, "argument-refused", f"RabbitMQ {version} refuses x-queue-version 1", "drop it")
        elif name == "x-queue-master-locator":
            if version >= _V4_3:
                summary = f"RabbitMQ {version} refuses {name} and closes the connection (541)"
                yield _error(queue, "argument-refused", summary, "use x-queue-leader-locator")
        elif name == "x-queue-leader-locator" and version < _V4_0:
            if queue.type == QueueType.CLASSIC:
                yield _error(
                    queue, "argument-refused", f"RabbitMQ {version} refuses {name} on a classic queue", "drop it"
                )
            elif value == MIN_MASTERS:
                yield _error(queue, "argument-refused", f"RabbitMQ {version} refuses {name} {value}", "say balanced")


def _unknown_yet(queue: Queue, name: str, version: BrokerVersion, since: BrokerVersion) -> Finding:
    if name in _DELAYED_RETRY:
        return _error(
            queue,
            "no-delayed-retry",
            f"{name} is silently ignored by RabbitMQ {version}: a failed message comes back without any delay",
            f"it works from {since} on; for an older RabbitMQ declare the queue with the shape ladder",
        )
    summary = f"{name} is silently ignored by RabbitMQ {version}"
    return _warning(queue, "argument-without-effect", summary, f"it works from {since} on")


def _check_default_limit(queue: Queue, version: BrokerVersion, policies: "_DeliveryPolicies") -> Iterator[Finding]:
    if queue.delivery_limit is not None or queue.dead_letter_exchange is not None or policies.cover(queue):
        return
    yield _warning(
        queue,
        "default-delivery-limit",
        f"has no delivery limit and no dead-letter exchange: RabbitMQ {version} drops a message after its "
        f"{_DELIVERIES_DEFAULT + 1}st failed delivery",
        "give it x-dead-letter-exchange, or x-delivery-limit 1000000",
    )


def _transient(queue: Queue) -> Finding:
    summary = "is not durable; RabbitMQ 4.3 refuses such queues unless its packager or operator permits them"
    return _warning(queue, "transient-queue", summary, "make it durable")


def _check_policy(policy: Policy, version: BrokerVersion) -> Iterator[Finding]:
    since = APPLY_TO_SINCE.get(policy.apply_to)
    if since is not None and since > version:
        summary = f"applies to {policy.apply_to}, which RabbitMQ {version} refuses; an import aborts there"
        yield _error(policy, "apply-to-refused", summary, "apply it to queues and match by name")
    for name, value in policy.definition.items():
        rule = _POLICY_RULES.get(name)
        if rule is None:
            continue
        if not _takes(rule, version, operator=policy.operator):
            yield _error(policy, "policy-key-refused", _refusal(rule, policy, version), _way_out(rule))
        elif name == "delivery-limit" and version < _V4_0 and type(value) is int and value < 0:
            summary = f"has delivery-limit {value}, which RabbitMQ {version} refuses; an import aborts there"
            yield _error(policy, "policy-value-refused", summary, "say 1000000")
        elif name == "queue-mode" and version >= _V4_0:
            yield _warning(policy, "argument-without-effect", f"{name} does nothing on RabbitMQ {version}", "drop it")


def _takes(rule: PolicyRule, version: BrokerVersion, *, operator: bool) -> bool:
    since = rule.operator_since if operator else rule.since
    # A key that no operator policy takes is wrong on every version; `arguments` reports it.
    return (since is None or since <= version) and (rule.removed_in is None or version < rule.removed_in)


def _refusal(rule: PolicyRule, policy: Policy, version: BrokerVersion) -> str:
    whose = "in an operator policy " if policy.operator else ""
    return f"sets {rule.name}, which RabbitMQ {version} refuses {whose}(400); an import aborts there"


def _way_out(rule: PolicyRule) -> str:
    if rule.name.startswith("ha-"):
        return "classic mirroring is gone; use quorum queues"
    if rule.removed_in is not None:
        return "use queue-leader-locator"
    return (
        f"it works from {rule.since} on" if rule.operator_since is None else f"it works from {rule.operator_since} on"
    )


class _DeliveryPolicies:
    """The policies that give a queue a delivery limit or a dead-letter exchange."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._patterns: dict[str, list[re.Pattern[str] | None]] = {}
        for policy in policies:
            helps = "dead-letter-exchange" in policy.definition or "delivery-limit" in policy.definition
            if helps and policy.apply_to in ("all", "queues", "quorum_queues"):
                self._patterns.setdefault(policy.vhost, []).append(_pattern(policy.pattern))

    def cover(self, queue: Queue) -> bool:
        """Whether some policy may apply. Which of several wins is not decided here: better no warning than a wrong
        one."""
        return any(one is None or one.search(queue.name) for one in self._patterns.get(queue.vhost, ()))


def _pattern(written: str) -> re.Pattern[str] | None:
    """The pattern; None where Python reads it differently from RabbitMQ's PCRE."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(written)
    except (re.error, OverflowError, RecursionError, Warning):
        return None


def _error(about: Vhost | Exchange | Queue | Policy, code: str, summary: str, hint: str) -> Finding:
    return Finding(code=code, address=about.address, summary=summary, hint=hint)


def _warning(about: Vhost | Exchange | Queue | Policy, code: str, summary: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, address=about.address, summary=summary, hint=hint)
