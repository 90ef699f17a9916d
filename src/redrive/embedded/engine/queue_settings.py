"""A queue's effective settings: its arguments merged with the one policy that matches it.

Precedence, measured on all three: dead-letter exchange, key and strategy are the argument's; numbers are the smaller of
the two; overflow and the kind of delayed retry are the policy's. An operator policy bounds a policy the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redrive.embedded.engine.amqp_values import is_integer
from redrive.embedded.engine.profiles import Profile

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"

_SMALLER = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "delivery-limit",
        "delayed-retry-min",
        "delayed-retry-max",
        "consumer-timeout",
    }
)
_POLICY_FIRST = frozenset({"overflow", "delayed-retry-type"})


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """A queue's effective settings; None is "not set" or "no limit"."""

    kind: str
    message_ttl_ms: int | None
    expires_ms: int | None
    length_max: int | None
    bytes_max: int | None
    overflow: str
    dead_letter_exchange: str | None
    dead_letter_key: str | None
    at_least_once: bool
    delivery_limit: int | None
    has_delivery_limit: bool
    single_active: bool
    priority_max: int | None
    delayed_retry: str
    delayed_min_ms: int
    delayed_max_ms: int | None
    consumer_timeout_ms: int | None

    def retry_delay_ms(self, failed: int) -> int:
        """4.3: linear in the failed deliveries, from the minimum up to the maximum."""
        if self.delayed_max_ms is None:
            return self.delayed_min_ms
        return min(self.delayed_min_ms * max(failed, 1), self.delayed_max_ms)


def effective_settings(
    kind: str, arguments: Mapping[str, Any], policy: Mapping[str, Any], profile: Profile
) -> QueueSettings:
    """Merge arguments and the effective policy."""

    def chosen(key: str) -> Any:
        argument, by_policy = arguments.get(f"x-{key}"), policy.get(key)
        if argument is None or by_policy is None:
            return by_policy if argument is None else argument
        if key in _SMALLER and is_integer(argument) and is_integer(by_policy):
            return min(argument, by_policy)
        return by_policy if key in _POLICY_FIRST else argument

    def number(key: str) -> int | None:
        value = chosen(key)
        return int(value) if is_integer(value) else None

    quorum = kind == QUORUM
    overflow = chosen("overflow") or DROP_HEAD
    if quorum and overflow == REJECT_PUBLISH_DLX:
        overflow = DROP_HEAD  # a quorum queue reads it as drop-head
    exchange = chosen("dead-letter-exchange")
    limit = number("delivery-limit") if quorum else None
    has_limit = limit is not None
    if quorum and limit is None:
        limit = profile.delivery_limit_default
    if limit is not None and limit < 0 and profile.negative_limit_is_none:
        limit = None
    delayed = quorum and profile.delayed_retry
    delayed_min_ms = number("delayed-retry-min") if delayed else None
    return QueueSettings(
        kind=kind,
        message_ttl_ms=number("message-ttl"),
        expires_ms=number("expires"),
        length_max=number("max-length"),
        bytes_max=number("max-length-bytes"),
        overflow=overflow,
        dead_letter_exchange=exchange,
        dead_letter_key=chosen("dead-letter-routing-key"),
        # With drop-head it silently falls back to at-most-once.
        at_least_once=quorum
        and chosen("dead-letter-strategy") == "at-least-once"
        and overflow == REJECT_PUBLISH
        and exchange is not None,
        delivery_limit=limit,
        has_delivery_limit=has_limit,
        single_active=arguments.get("x-single-active-consumer") is True,
        priority_max=None if quorum else number("max-priority"),
        delayed_retry="disabled" if delayed_min_ms is None else str(chosen("delayed-retry-type") or "disabled"),
        delayed_min_ms=delayed_min_ms or 0,
        delayed_max_ms=number("delayed-retry-max"),
        consumer_timeout_ms=number("consumer-timeout") if profile.queues_set_timeout else None,
    )


def bounded(policy: Mapping[str, Any], operator: Mapping[str, Any]) -> dict[str, Any]:
    """A policy's definition under an operator policy's: numbers the smaller, the rest the operator's."""
    merged = dict(policy)
    for key, value in operator.items():
        before = merged.get(key)
        smaller = key in _SMALLER and is_integer(before) and is_integer(value)
        merged[key] = min(before, value) if smaller else value
    return merged
