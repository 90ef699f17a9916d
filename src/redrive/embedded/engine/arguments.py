"""The arguments of a queue as RabbitMQ checks them: each by its value, then by the kind of queue.

Arguments that RabbitMQ does not know it takes and ignores, and so does this broker: a client sees the same. What
RabbitMQ knows and this broker can't do is refused. The texts and their order were read off the brokers.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from redrive.embedded.engine.amqp_errors import AmqpError, precondition, resource
from redrive.embedded.engine.amqp_values import erlang, is_integer, type_name
from redrive.embedded.engine.profiles import Profile
from redrive.embedded.engine.queue_settings import (
    CLASSIC,
    DROP_HEAD,
    QUORUM,
    REJECT_PUBLISH,
    REJECT_PUBLISH_DLX,
    STREAM,
)

Check: TypeAlias = Callable[[Any, Mapping[str, Any], Profile], str | None]
"""What is wrong with a value, as RabbitMQ's text has it after the colon; None if nothing is."""

_TEN_YEARS_MS = 315_360_000_000
_AGE = re.compile(r"([0-9]+)(Y|M|D|h|m|s)")
_AGE_UNIT_S = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
_MASTER_LOCATORS = ("client-local", "min-masters", "random")
_MASTER_LOCATOR_GONE = (
    "Feature `queue_master_locator` is deprecated.\nBy default, this feature is not permitted anymore.\nThe feature "
    "will be removed from a future major RabbitMQ version, regardless of the configuration; actual version to "
    "be determined.\nTo continue"
)


def queue_kind(arguments: Mapping[str, Any], where: str) -> str:
    """The kind of queue asked for. Raises AmqpError for one that does not exist, or not here."""
    kind = arguments.get("x-queue-type", CLASSIC)
    if not isinstance(kind, str):
        raise _invalid("x-queue-type", where, f"{{unacceptable_type,{type_name(kind)}}}")
    if kind not in (CLASSIC, QUORUM, STREAM):
        raise _invalid("x-queue-type", where, f"\"unsupported queue type '{kind}'\"")
    return kind


def check_queue(
    name: str,
    vhost: str,
    arguments: Mapping[str, Any],
    profile: Profile,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> str:
    """The kind of a queue that may be declared like this. Raises AmqpError."""
    where = resource("queue", name, vhost)
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, str):
        raise precondition(f"invalid type '{type_name(exchange)}' for arg 'x-dead-letter-exchange' in {where}")
    kind = queue_kind(arguments, where)
    foreign = foreign_arguments(kind, profile)
    # RabbitMQ looks at a kind's own arguments in an order of its own, and then for others' in the declaration's.
    for key, check in _CHECKS.items():
        problem = None if key not in arguments or key in foreign else check(arguments[key], arguments, profile)
        if problem is not None:
            raise _invalid(key, where, problem)
    for key in arguments:
        if key in foreign:
            raise precondition(f"invalid arg '{key}' for {where} of queue type rabbit_{kind}_queue")
    locator = arguments.get("x-queue-master-locator", "client-local")
    if kind == CLASSIC and profile.deaths_in_headers and locator not in _MASTER_LOCATORS:
        raise AmqpError(541)  # 3.10 fails on it
    if "x-queue-master-locator" in arguments and kind == CLASSIC and profile.delayed_retry:
        raise AmqpError(541, _MASTER_LOCATOR_GONE)
    if kind != CLASSIC:
        for wrong, what in ((not durable, "non-durable"), (exclusive, "exclusive-owner"), (auto_delete, "auto-delete")):
            if wrong:
                raise precondition(f"invalid property '{what}' for {where}")
    if kind == STREAM:
        _check_filter_size(arguments, profile)
    return kind


def foreign_arguments(kind: str, profile: Profile) -> frozenset[str]:
    """The arguments that RabbitMQ knows and this kind of queue does not have."""
    foreign = _FOREIGN[kind]
    if not profile.delayed_retry:
        foreign -= {"x-stream-filter-size-bytes"}
    if profile.delayed_retry and kind != QUORUM:
        foreign |= DELAYED_RETRY | {"x-consumer-timeout", "x-consumer-disconnected-timeout"}
    if profile.deaths_in_headers and kind == CLASSIC:
        foreign |= {"x-queue-leader-locator"}
    return foreign


def check_consumer_priority(arguments: Mapping[str, Any], where: str) -> None:
    """x-priority of a consumer."""
    if "x-priority" in arguments and not is_integer(arguments["x-priority"]):
        raise _invalid("x-priority", where, f'"expected integer, got {type_name(arguments["x-priority"])}"')


def read_age_ms(text: str, profile: Profile) -> int | None:
    """A stream's length of time (`1h`, `7D`), or None if the text is not one.

    3.10 and 4.0 fail with 541 on a text that does not begin with a digit.
    """
    match = _AGE.fullmatch(text)
    if match is not None and int(match[1]):
        return int(match[1]) * _AGE_UNIT_S[match[2]] * 1000
    if profile.garbled_age_is_internal_error and not text[:1].isdigit():
        raise AmqpError(541)
    return None


DELAYED_RETRY = frozenset({"x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"})
_ONLY_STREAM = frozenset(
    {"x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size", "x-stream-filter-size-bytes"}
)
_ONLY_QUORUM = frozenset(
    {
        "x-delivery-limit",
        "x-dead-letter-strategy",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-quorum-initial-group-size",
    }
)
_ONLY_CLASSIC = frozenset({"x-max-priority", "x-queue-mode", "x-queue-version", "x-queue-master-locator"})
_NOT_STREAM = frozenset(
    {
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-overflow",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-single-active-consumer",
    }
)
_FOREIGN = {
    CLASSIC: _ONLY_STREAM | _ONLY_QUORUM,
    QUORUM: _ONLY_STREAM | _ONLY_CLASSIC,
    STREAM: _ONLY_QUORUM | _ONLY_CLASSIC | _NOT_STREAM,
}
_FILTER_BYTES = (16, 255)


def _check_filter_size(arguments: Mapping[str, Any], profile: Profile) -> None:
    """What 4.x says only when it makes the stream, and 3.10 never."""
    size = arguments.get("x-stream-filter-size-bytes")
    if size is None or not profile.streams_filter:
        return
    if not is_integer(size) or not _FILTER_BYTES[0] <= size <= _FILTER_BYTES[1]:
        gap = " " if profile.delayed_retry else "  "
        raise precondition(f"Invalid value for{gap}x-stream-filter-size-bytes")


def _invalid(key: str, where: str, problem: str) -> AmqpError:
    return precondition(f"invalid arg '{key}' for {where}: {problem}")


def _whole(least: int = 0, most: int | None = None, above: str = "value_too_large") -> Check:
    def check(value: Any, _arguments: Mapping[str, Any], _profile: Profile) -> str | None:
        if not is_integer(value):
            return f'"expected integer, got {type_name(value)}"'
        if value < 0:
            return f"{{value_negative,{value}}}"
        if value < least:
            return f"{{value_zero,{value}}}"
        if most is not None and value > most:
            return f"{{{above},{value}}}"
        return None

    return check


def _word(words: tuple[str, ...], wrong: str) -> Check:
    def check(value: Any, _arguments: Mapping[str, Any], _profile: Profile) -> str | None:
        if not isinstance(value, str):
            return f"{{unacceptable_type,{type_name(value)}}}"
        return None if value in words else wrong

    return check


def _key(value: Any, arguments: Mapping[str, Any], _profile: Profile) -> str | None:
    if not isinstance(value, str):
        return f"{{unacceptable_type,{type_name(value)}}}"
    return None if "x-dead-letter-exchange" in arguments else "routing_key_but_no_dlx_defined"


def _flag(value: Any, _arguments: Mapping[str, Any], _profile: Profile) -> str | None:
    return None if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"


def _mode(value: Any, _arguments: Mapping[str, Any], profile: Profile) -> str | None:
    if profile.delayed_retry or value in ("default", "lazy"):  # 4.3 has forgotten what it was
        return None
    return f"\"unsupported queue mode '{erlang(value)}'\""


def _file_version(value: Any, _arguments: Mapping[str, Any], profile: Profile) -> str | None:
    if value in ((2,) if profile.delayed_retry else (1, 2)):
        return None
    return f"\"unsupported queue version '{erlang(value)}'\""


def _consumer_timeout(value: Any, arguments: Mapping[str, Any], profile: Profile) -> str | None:
    return _whole()(value, arguments, profile) if profile.delayed_retry else None


def _age(value: Any, _arguments: Mapping[str, Any], profile: Profile) -> str | None:
    if not isinstance(value, str):
        return f"{{unacceptable_type,{type_name(value)}}}"
    return None if read_age_ms(value, profile) is not None else "invalid_max_age"


def _filter_size(value: Any, arguments: Mapping[str, Any], profile: Profile) -> str | None:
    return None if not profile.delayed_retry or is_integer(value) else _whole()(value, arguments, profile)


def _leader(value: Any, arguments: Mapping[str, Any], profile: Profile) -> str | None:
    if profile.deaths_in_headers and arguments.get("x-queue-type", CLASSIC) == CLASSIC:
        return None  # it is foreign there, which is said later
    words = (
        "client-local",
        "balanced",
        "random",
        "least-leaders",
        *(() if profile.deaths_in_headers else ("min-masters",)),
    )
    return _word(words, "invalid_queue_locator_arg")(value, arguments, profile)


_CHECKS: dict[str, Check] = {
    "x-expires": _whole(1, _TEN_YEARS_MS),
    "x-message-ttl": _whole(0, _TEN_YEARS_MS),
    "x-dead-letter-routing-key": _key,
    "x-dead-letter-strategy": _word(("at-most-once", "at-least-once"), "invalid_dlx_strategy"),
    "x-max-length": _whole(),
    "x-max-length-bytes": _whole(),
    "x-max-in-memory-length": _whole(),
    "x-max-in-memory-bytes": _whole(),
    "x-max-priority": _whole(0, 255, "max_value_exceeded"),
    "x-overflow": _word((DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX), "invalid_overflow"),
    "x-queue-mode": _mode,
    "x-queue-version": _file_version,
    "x-single-active-consumer": _flag,
    "x-consumer-timeout": _consumer_timeout,
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _whole(),
    "x-stream-filter-size-bytes": _filter_size,
    "x-quorum-initial-group-size": _whole(1),
    "x-initial-cluster-size": _whole(1),
    "x-queue-leader-locator": _leader,
}
"""In the order in which RabbitMQ looks at them: the first that is wrong is the one it names."""
