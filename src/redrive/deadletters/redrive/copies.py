"""The copy of a dead letter that is sent back: where it goes, and what it says. Pure.

    taken off                                           because
    x-death and the like, CC, BCC, delivery counts      they would count on, drop it or route it elsewhere
    expiration, user_id, delivery_mode                  it must live, be accepted, and survive a restart
    x-retry-count, x-final-*, x-redrive-reason …        they tell of the life that is over; attempts start afresh

    written
    x-redriven-id, -count, -at, -by                     which dead letter it was, how often, when, by whom
    x-redriven-mark                                     the proof of that, for when it dies again
    x-original-queue, -exchange, -routing-key           where it came from, if it does not say so itself
    x-redrive-attempts-before                           the runs so far, if the operation keeps them
    x-redrive-possible-duplicate                        true if an earlier copy may be with the broker already
    x-redrive-stripped                                  what could not be kept and can't be known otherwise
    x-redrive-id                                        the dead letter's id, if the message has no message_id

Everything else goes out as it came in, byte for byte; x-original-* that are there stay.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from redrive.client import Outgoing
from redrive.core import (
    COPY_DROPS,
    PlainMessage,
    RedriveError,
    deaths_in,
    headers,
    original_routing_key,
    read_count,
    shorten,
)
from redrive.records import ClaimedLetter, RedriveTarget, make_mark
from redrive.stores import unwrap_envelope
from redrive.wire import Properties, ProtocolError, copy_properties

_PROPERTIES_BYTES_MAX = 131_072 - 20
"""What a usual frame has room for. More can't be sent by anybody, and to try again is to try for ever."""
NAME_BYTES_MAX = 255
"""AMQP's names and keys end there."""

REDRIVE_DROPS = (
    COPY_DROPS
    | headers.LIFE_HEADERS
    | {
        headers.REDRIVEN_ID,
        headers.REDRIVEN_COUNT,
        headers.REDRIVEN_MARK,
        headers.REDRIVEN_AT,
        headers.REDRIVEN_BY,
        headers.POSSIBLE_DUPLICATE,
    }
)
"""What a redriven copy does not take with it, unless it is written anew."""


class Uncopyable(RedriveError):
    """No copy can be made of this dead letter, or not for this target; the text says why. Nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRules:
    """What an operation asks of its copies."""

    target: RedriveTarget
    who: str
    keep_attempts: bool = False


def copy_of(letter: ClaimedLetter, rules: CopyRules, *, now_ms: int) -> Outgoing:
    """The copy of a claimed dead letter. Raises Uncopyable."""
    try:
        exchange, routing_key = route_of(letter, rules.target)
        properties, body = _opened(letter)
        made = copy_properties(
            properties,
            set_headers=_written(letter, properties, body, rules, now_ms),
            drop_headers=REDRIVE_DROPS,
            new_id=lambda: letter.id,
            bound_to=(letter.queue if exchange else routing_key, body),
        )
    except ProtocolError as error:
        raise Uncopyable(f"its properties can't be copied: {error}") from None
    if len(made.raw) > _PROPERTIES_BYTES_MAX:
        raise Uncopyable(
            f"its headers leave no room for those of a copy ({len(made.raw)} bytes, and a frame takes"
            f" {_PROPERTIES_BYTES_MAX}); edit it with fewer, or publish it yourself from an export"
        )
    return Outgoing(exchange, routing_key, body, made)


def _opened(letter: ClaimedLetter) -> tuple[Properties, bytes]:
    """The message of a dead letter, out of its envelope if it was parked in one."""
    message = unwrap_envelope(letter.content)
    return Properties(message.properties), message.body


def route_of(letter: ClaimedLetter, target: RedriveTarget) -> tuple[str, str]:
    """Exchange and routing key of the copy. Raises Uncopyable for names that AMQP can't carry.

    To the failed queue and no other consumer, unless the target names something else. An exchange without a key gets
    the key the message was published with first.
    """
    if target.exchange is None:
        exchange, key = "", letter.queue if target.routing_key is None else target.routing_key
    elif target.routing_key is None:
        exchange, key = target.exchange, _first_routing_key(letter)
    else:
        exchange, key = target.exchange, target.routing_key
    # A key of the message's own is no template: a `{queue}` in it is only a name.
    exchange = exchange.replace("{queue}", letter.queue)
    if target.routing_key is not None:
        key = key.replace("{queue}", letter.queue)
    for kind, name in (("exchange", exchange), ("routing key", key)):
        if 4 * len(name) > NAME_BYTES_MAX and len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise Uncopyable(f"the {kind} {shorten(name, 60)!r} is longer than {NAME_BYTES_MAX} bytes")
    if not exchange and not key:
        raise Uncopyable("nobody knows the queue it failed in; name a target")
    return exchange, key


def targets_of(queues: dict[str, int], target: RedriveTarget) -> dict[tuple[str, str | None], int]:
    """Where the copies of so many dead letters of each failed queue go: (exchange, key) → how many.

    A key that only the message itself knows is None.
    """
    found: dict[tuple[str, str | None], int] = {}
    for queue, count in queues.items():
        exchange = "" if target.exchange is None else target.exchange.replace("{queue}", queue)
        key: str | None
        if target.routing_key is not None:
            key = target.routing_key.replace("{queue}", queue)
        else:
            key = queue if target.exchange is None else None
        found[exchange, key] = found.get((exchange, key), 0) + count
    return found


@lru_cache(maxsize=16)
def iso_time(now_ms: int) -> str:
    """A moment as `x-redriven-at` has it: `2026-11-15T08:56:19.120Z`."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _written(
    letter: ClaimedLetter, properties: Properties, body: bytes, rules: CopyRules, now_ms: int
) -> dict[str, Any]:
    written: dict[str, Any] = {
        headers.REDRIVEN_ID: letter.id,
        headers.REDRIVEN_COUNT: letter.redrives,
        headers.REDRIVEN_MARK: make_mark(
            letter.secret,
            operation_id=letter.operation_id,
            vhost=letter.vhost,
            letter_id=letter.id,
            count=letter.redrives,
            message_id=_own_id(properties, otherwise=letter.id),
            body=body,
        ),
        headers.REDRIVEN_AT: iso_time(now_ms),
        headers.REDRIVEN_BY: rules.who
        if len(rules.who) < 60 and rules.who.isascii()
        else shorten(rules.who, NAME_BYTES_MAX),
        **_origin(letter, properties),
    }
    if rules.keep_attempts:
        # All runs so far, since the header that counted them is taken off. One that died without being counted keeps
        # what an earlier redrive had written.
        before = letter.attempts
        if before is None:
            before = read_count(properties.header(headers.ATTEMPTS_BEFORE))
        written[headers.ATTEMPTS_BEFORE] = before
    if letter.was_in_doubt:
        written[headers.POSSIBLE_DUPLICATE] = True
    return written


def _own_id(message: Properties, *, otherwise: str) -> str:
    """The copy's own id: its message's `message_id`, else the `x-redrive-id` that it has or is given."""
    own = message.message_id
    if own is None:
        own = message.header(headers.MESSAGE_ID)
    if own is None:
        return otherwise
    return own if isinstance(own, str) else ""


def _origin(letter: ClaimedLetter, properties: Properties) -> dict[str, str]:
    """What the copy is to say about where it came from and its message does not: whoever parked it, its next death must
    not be all that is known, and its handler sees the key that it was published with."""
    known = {headers.ORIGINAL_QUEUE: letter.queue}
    # How it came into its dead-letter queue is told where nothing better is known, and is no origin.
    if (letter.exchange, letter.routing_key) != (letter.dlq_exchange, letter.dlq_routing_key):
        known[headers.ORIGINAL_EXCHANGE] = letter.exchange
        known[headers.ORIGINAL_ROUTING_KEY] = letter.routing_key
    return {
        name: value
        for name, value in known.items()
        if (value or name != headers.ORIGINAL_QUEUE)
        and len(value.encode("utf-8", "replace")) <= NAME_BYTES_MAX
        and properties.header(name) is None
    }


def _first_routing_key(letter: ClaimedLetter) -> str:
    properties, _ = _opened(letter)
    died = deaths_in(properties.header(headers.DEATHS), letter.queue).route
    told = {headers.ORIGINAL_ROUTING_KEY: properties.header(headers.ORIGINAL_ROUTING_KEY)}
    return original_routing_key(
        PlainMessage(
            queue=letter.queue,
            exchange=letter.dlq_exchange,
            routing_key=letter.dlq_routing_key if died is None else died[1],
            headers=told,
        )
    )
