"""Declaring again what exists: it must be the same, in everything that RabbitMQ compares.

The texts are RabbitMQ's: "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '2' but current is
'1'".
"""

from collections.abc import Iterable, Mapping
from typing import Any

from redrive.embedded.engine.amqp_errors import precondition
from redrive.embedded.engine.amqp_values import erlang, type_class, type_name
from redrive.embedded.engine.arguments import DELAYED_RETRY, foreign_arguments, read_age_ms
from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.queue_settings import CLASSIC, QUORUM, STREAM

_ABSENT = object()

_COMPARED = {
    CLASSIC: (
        "x-queue-type",
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-single-active-consumer",
    ),
    QUORUM: (
        "x-queue-type",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        "x-consumer-timeout",
        "x-consumer-disconnected-timeout",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
    ),
    STREAM: (
        "x-queue-type",
        "x-max-length-bytes",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}
"""By the kind of queue that is there, in the order in which RabbitMQ compares: the first that differs is named."""
_LATE = DELAYED_RETRY | {"x-stream-filter-size-bytes", "x-consumer-timeout", "x-consumer-disconnected-timeout"}


def compare_field(name: str, received: Any, current: Any, where: str) -> None:
    """One property (durable, auto_delete, type …)."""
    if received != current:
        raise _different(name, where, _bare(received), _bare(current))


def compare_queue_arguments(
    received: Mapping[str, Any], current: Mapping[str, Any], kind: str, where: str, profile: Profile
) -> None:
    """A queue's arguments, those that this version compares for this kind of queue."""
    foreign = foreign_arguments(kind, profile)
    keys = [key for key in _COMPARED[kind] if key not in foreign and (profile.delayed_retry or key not in _LATE)]
    compare_arguments(_typed(received, profile), _typed(current, profile), keys, where)


def compare_arguments(received: Mapping[str, Any], current: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Some arguments. Numbers of different widths are one type; an absent argument differs from every value."""
    for key in keys:
        new, old = received.get(key, _ABSENT), current.get(key, _ABSENT)
        if new is old:
            continue
        if new is _ABSENT or old is _ABSENT:
            raise _different(key, where, _with_type(new), _with_type(old))
        if new != old or type_class(new) != type_class(old):
            raise _different(key, where, _bare(new), _bare(old))


def _typed(arguments: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """x-queue-type made comparable: absent is classic; 4.x says so in its text, 3.10 says there is none."""
    kind = arguments.get("x-queue-type", CLASSIC)
    rest = {key: value for key, value in arguments.items() if key != "x-queue-type"}
    age = rest.get("x-max-age")
    if profile.delayed_retry and isinstance(age, str):
        rest["x-max-age"] = str(read_age_ms(age, profile))  # 4.3 compares milliseconds, and says so
    return {"x-queue-type": kind, **rest} if profile.fills_in_queue_type or kind != CLASSIC else rest


def _different(key: str, where: str, received: str, current: str) -> Exception:
    return precondition(f"inequivalent arg '{key}' for {where}: received {received} but current is {current}")


def _bare(value: Any) -> str:
    return f"'{erlang(value)}'"


def _with_type(value: Any) -> str:
    return "none" if value is _ABSENT else f"the value '{erlang(value)}' of type '{type_name(value)}'"
