"""Validates policies as RabbitMQ does, with its texts, which were read off the three brokers.

Which version knows a key is decided by the topology room (`check_for`). Values are shown as Erlang writes them.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from redrive.embedded.management.api_profiles import ApiProfile
from redrive.embedded.management.replies import JSON
from redrive.topology import Arguments, BrokerVersion, Policy, Topology, check_for

Accepts: TypeAlias = Callable[[JSON], bool]


def check_policy(
    version: BrokerVersion,
    api_profile: ApiProfile,
    *,
    pattern: JSON,
    apply_to: JSON,
    priority: JSON,
    definition: Mapping[str, JSON],
    operator: bool,
) -> str | None:
    """The error text for a policy; None if it is valid."""
    if not isinstance(priority, int | float) or isinstance(priority, bool):
        return f"priority should be a number, actually was {erlang_term(priority)}"
    if not isinstance(pattern, str):
        return f"pattern should be a binary but was {erlang_term(pattern)}"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f'pattern should be regular expression but is invalid: {{"{error}",{getattr(error, "pos", 0)}}}'
    if apply_to not in api_profile.apply_to:
        return f"apply-to '{apply_to}' unrecognised; {api_profile.apply_to_choice}"
    if not definition:
        return "no policy provided"
    unknown = [key for key in sorted(definition) if not _knows(version, key, definition[key], operator=operator)]
    if unknown:
        pairs = ",".join(f'{{<<"{key}">>,{erlang_term(definition[key])}}}' for key in unknown)
        return f"[{pairs}] are not recognised policy settings"
    for key in sorted(definition):
        accepts, phrase = _KEYS[key]
        value = definition[key]
        if not accepts(value) or _is_refused(version, key, value, "policy-value-refused", operator=operator):
            return f"{erlang_term(value)} is not a valid {phrase}"
    return _delayed_retry(definition)


def erlang_term(value: JSON) -> str:
    """JSON in Erlang's writing: texts are binaries, objects lists of pairs."""
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'<<"{value}">>'
    if isinstance(value, dict):
        return "[" + ",".join(f'{{<<"{key}">>,{erlang_term(one)}}}' for key, one in value.items()) + "]"
    if isinstance(value, list):
        return "[" + ",".join(erlang_term(one) for one in value) + "]"
    return str(value)


def _knows(version: BrokerVersion, key: str, value: JSON, *, operator: bool) -> bool:
    if key not in _KEYS or (operator and key not in _FOR_OPERATORS):
        return False
    return not _is_refused(version, key, value, "policy-key-refused", operator=operator)


def _is_refused(version: BrokerVersion, key: str, value: JSON, code: str, *, operator: bool) -> bool:
    policy = Policy(name="one", pattern="", definition=Arguments({key: value}), operator=operator)
    return any(finding.code == code for finding in check_for(Topology(policies=(policy,)), version))


def _delayed_retry(definition: Mapping[str, JSON]) -> str | None:
    kind = definition.get("delayed-retry-type", "disabled")
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if kind != "disabled" and least is None:
        return f"delayed-retry-min is required when delayed-retry-type is {kind}"
    if least is not None and most is not None and most < least:
        return f"delayed-retry-max ({most}) must not be smaller than delayed-retry-min ({least})"
    return None


def _whole(least: int | None = None) -> Accepts:
    return lambda value: type(value) is int and (least is None or value >= least)


def _one_of(*words: str | int) -> Accepts:
    return lambda value: type(value) in (str, int) and value in words


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


def _is_age(value: JSON) -> bool:
    return isinstance(value, str) and re.fullmatch(r"0*[1-9][0-9]*[YMDhms]", value) is not None


def _anything(_value: JSON) -> bool:
    return True


_KEYS: dict[str, tuple[Accepts, str]] = {
    "alternate-exchange": (_is_text, "alternate exchange name"),
    "consumer-disconnected-timeout": (_whole(0), "consumer disconnected timeout"),
    "consumer-timeout": (_whole(0), "consumer timeout"),
    "dead-letter-exchange": (_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": (_is_text, "dead letter routing key"),
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "dead letter strategy"),
    "delayed-retry-max": (_whole(1), "delayed retry maximum delay. Must be a positive integer"),
    "delayed-retry-min": (_whole(1), "delayed retry minimum delay. Must be a positive integer"),
    "delayed-retry-type": (
        _one_of("all", "failed", "returned", "disabled"),
        "delayed retry type. Must be one of: all, failed, returned, disabled",
    ),
    "delivery-limit": (_whole(), "delivery limit"),
    "expires": (_whole(1), "queue expiry"),
    "ha-mode": (_one_of("all", "exactly", "nodes"), "ha-mode"),
    "ha-params": (_anything, "ha-params"),
    "ha-promote-on-failure": (_one_of("always", "when-synced"), "ha-promote-on-failure"),
    "ha-promote-on-shutdown": (_one_of("always", "when-synced"), "ha-promote-on-shutdown"),
    "ha-sync-batch-size": (_whole(1), "ha-sync-batch-size"),
    "ha-sync-mode": (_one_of("manual", "automatic"), "ha-sync-mode"),
    "initial-cluster-size": (_whole(0), "cluster size"),
    "max-age": (_is_age, "max age"),
    "max-in-memory-bytes": (_whole(0), "maximum memory in bytes"),
    "max-in-memory-length": (_whole(0), "maximum memory in bytes"),  # the broker's own words
    "max-length": (_whole(0), "maximum length"),
    "max-length-bytes": (_whole(0), "maximum length in bytes"),
    "message-ttl": (_whole(0), "message TTL"),
    "overflow": (_one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "queue-master-locator": (_one_of("min-masters", "client-local", "random"), "queue master locator"),
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_one_of(1, 2), "queue-version value"),
    "stream-filter-size-bytes": (_whole(16), "filter size"),
    "stream-max-segment-size-bytes": (_whole(0), "segment size"),
    "target-group-size": (_whole(1), "qq target count value"),
}
_FOR_OPERATORS = frozenset(
    {
        "delayed-retry-max",
        "delayed-retry-min",
        "delayed-retry-type",
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "queue-master-locator",
        "queue-version",
        "target-group-size",
    }
)
