"""The copy of a dead letter that is sent to the broker: where it goes, and what it carries.

A redriven copy goes to the queue the message failed in, or to another target.

    taken off                                           because
    x-death and the like, CC, BCC, delivery counts      they would count on, drop it or route it elsewhere
    expiration, user_id, delivery_mode                  it must live, be accepted, and survive a restart
    x-retry-count, x-final-*, x-redrive-reason …        they describe the run that is over; attempts start afresh

    written
    x-redriven-id, -count, -at, -by                     which dead letter it was, how often, when, by whom
    x-redriven-mark                                     the proof of that, for when it dies again
    x-original-queue, -exchange, -routing-key           where it came from, if it does not say so itself
    x-redrive-attempts-before                           the attempts so far, if the operation keeps them
    x-redrive-possible-duplicate                        true if an earlier copy may be with the broker already
    x-redrive-stripped                                  what could not be kept and can't be known otherwise
    x-redrive-id                                        the dead letter's id, if the message has no message_id

Everything else goes out as it came in, byte for byte; x-original-* that are there stay.

A restored copy goes back to the dead-letter queue. It is the message as it was collected (or as somebody edited it),
byte for byte, x-death included: x-death is the evidence of how the message died. It does no harm that the original
would not have done: 3.10 counts on in an x-death that a publisher brings, and its cycle detection judges the copy as it
would have judged the original; 4.x begins a new one. Only what would do harm is taken off:

    x-delivery-count, x-acquired-count     the broker's, about a stay in the queue that is over
    CC, BCC                                would route the copy to further queues
    an x-death that no broker wrote        3.10 crashes on it, if the queue lets the copy die
    expiration                             would let it expire in the DLQ
    user_id                                another user's closes the channel
    delivery_mode other than 2             would not survive a restart, as it does in the store

and is kept in `x-redrive-stripped`, except the broker's counts. `x-redrive-possible-duplicate` is written as above.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from redrive.client import Client, ClientError, Outgoing
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
from redrive.inspection import exchange_exists
from redrive.records import (
    ClaimedLetter,
    ItemState,
    Operation,
    OperationKind,
    RedriveTarget,
    SendResult,
    make_mark,
    may_send,
)
from redrive.stores import unwrap_envelope
from redrive.wire import Properties, ProtocolError, copy_properties, odd_deaths, stripped_of

_PROPERTIES_BYTES_MAX = 131_072 - 20
"""What fits into a frame of the usual size. No client can send more, so it is not tried again."""
NAME_BYTES_MAX = 255
"""The longest name or routing key that AMQP can carry."""

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
"""Headers that a redriven copy does not keep; some are written anew."""

_PERSISTENT = 2
_RESTORE_DROPS = headers.COUNT_HEADERS | headers.ROUTING_HEADERS
"""Headers that a restored copy does not keep."""


class Uncopyable(RedriveError):
    """No copy can be made of this dead letter, or not for this target; the text says why. Nothing was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRules:
    """What an operation asks of its copies."""

    target: RedriveTarget
    who: str
    keep_attempts: bool = False


def copy_of(letter: ClaimedLetter, rules: CopyRules, *, now_ms: int) -> Outgoing:
    """The redriven copy of a claimed dead letter. Raises Uncopyable."""
    try:
        exchange, routing_key = route_of(letter, rules.target)
        properties, body = _unwrapped(letter)
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


def restored_copy(letter: ClaimedLetter) -> Outgoing:
    """The copy of a claimed dead letter for the queue it was collected from. Raises Uncopyable."""
    if not letter.dlq:
        raise Uncopyable("nobody knows the queue it was collected from")
    try:
        made = _as_it_was(Properties(letter.content.properties), was_in_doubt=letter.was_in_doubt)
    except ProtocolError as error:
        raise Uncopyable(f"its properties can't be copied: {error}") from None
    return Outgoing("", letter.dlq, letter.content.body, made)


class Copier:
    """Makes the copies of one operation's batches, and refuses dead letters that can't be sent, each with a reason."""

    def __init__(self, client: Client, *, clock_ms: Callable[[], int]) -> None:
        self._client = client
        self._clock_ms = clock_ms
        self._exchanges: dict[str, bool] = {}

    async def copies(
        self, operation: Operation, claimed: Sequence[ClaimedLetter]
    ) -> tuple[list[tuple[str, Outgoing]], list[SendResult]]:
        """The copies to send, each with its dead letter's id; and the dead letters that can't be sent."""
        made: list[tuple[str, Outgoing]] = []
        refused: list[SendResult] = []
        rules = CopyRules(target=operation.target, who=operation.who, keep_attempts=operation.keep_attempts)
        now_ms = self._clock_ms()
        for letter in claimed:
            try:
                copy = self._copy(operation, letter, rules, now_ms)
                if copy.exchange and not await self._exists(copy.exchange):
                    raise Uncopyable(f"the exchange {copy.exchange} does not exist")
                made.append((letter.id, copy))
            except Uncopyable as error:
                refused.append(SendResult(id=letter.id, state=ItemState.REFUSED, reason=str(error)))
        return made, refused

    def forget_exchanges(self) -> None:
        """Looks at exchanges again: a broker that was away may come back without them."""
        self._exchanges.clear()

    def _copy(self, operation: Operation, letter: ClaimedLetter, rules: CopyRules, now_ms: int) -> Outgoing:
        vhost = self._client.target.vhost
        if letter.vhost != vhost:
            raise Uncopyable(f"it is of vhost {letter.vhost}, and this redriver works on {vhost}; run it there")
        if operation.kind is OperationKind.RESTORE:
            return restored_copy(letter)
        copy = copy_of(letter, rules, now_ms=now_ms)
        # Checked here and not when the operation was created: meanwhile a letter's queue may have changed.
        if not may_send(operation.queues, dlq=letter.dlq, exchange=copy.exchange, routing_key=copy.routing_key):
            where = f"exchange {copy.exchange}" if copy.exchange else f"queue {copy.routing_key}"
            raise Uncopyable(
                f"{shorten(where, 300)} is outside of the queues that {operation.who} is limited to; it stays here"
            )
        return copy

    async def _exists(self, exchange: str) -> bool:
        """A publish to a missing exchange closes the channel, which would put other copies in doubt."""
        known = self._exchanges.get(exchange)
        if known is None:
            try:
                known = await exchange_exists(self._client, exchange)
            except (ClientError, TimeoutError):
                return True  # no connection: the send will find out
            self._exchanges[exchange] = known
        return known


def _unwrapped(letter: ClaimedLetter) -> tuple[Properties, bytes]:
    """The properties and body of a dead letter, unwrapped if it was parked in an envelope."""
    message = unwrap_envelope(letter.content)
    return Properties(message.properties), message.body


def route_of(letter: ClaimedLetter, target: RedriveTarget) -> tuple[str, str]:
    """Exchange and routing key of the copy. Raises Uncopyable for names that AMQP can't carry.

    To the failed queue only, unless the target names something else. An exchange without a key gets
    the key the message was published with first.
    """
    if target.exchange is None:
        exchange, key = "", letter.queue if target.routing_key is None else target.routing_key
    elif target.routing_key is None:
        exchange, key = target.exchange, _first_routing_key(letter)
    else:
        exchange, key = target.exchange, target.routing_key
    # The message's own key is no template: a `{queue}` in it is only text.
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

    The key is None where each message has its own.
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
    """A time as `x-redriven-at` has it: `2026-11-15T08:56:19.120Z`."""
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
        # All attempts so far, since the header that counted them is taken off. A message that died without being
        # counted keeps what an earlier redrive had written.
        before = letter.attempts
        if before is None:
            before = read_count(properties.header(headers.ATTEMPTS_BEFORE))
        written[headers.ATTEMPTS_BEFORE] = before
    if letter.was_in_doubt:
        written[headers.POSSIBLE_DUPLICATE] = True
    return written


def _as_it_was(properties: Properties, *, was_in_doubt: bool) -> Properties:
    drops = {name for name in _RESTORE_DROPS if properties.raw_header(name) is not None}
    if odd_deaths(properties) is not None:
        drops.add(headers.DEATHS)
    stripped = stripped_of(properties, headers.ROUTING_HEADERS | drops)
    written: dict[str, Any] = {headers.STRIPPED: stripped} if stripped else {}
    if was_in_doubt:
        written[headers.POSSIBLE_DUPLICATE] = True
    if not drops and not written and properties.delivery_mode == _PERSISTENT:
        return properties
    return properties.edit(headers=written, drop=drops, expiration=None, user_id=None, delivery_mode=_PERSISTENT)


def _own_id(message: Properties, *, otherwise: str) -> str:
    """The copy's own id: its message's `message_id`, else the `x-redrive-id` that it has or is given."""
    own = message.message_id
    if own is None:
        own = message.header(headers.MESSAGE_ID)
    if own is None:
        return otherwise
    return own if isinstance(own, str) else ""


def _origin(letter: ClaimedLetter, properties: Properties) -> dict[str, str]:
    """The origin headers that the message lacks. With them the first death stays known after the next one, and the
    handler sees the key that the message was published with."""
    known = {headers.ORIGINAL_QUEUE: letter.queue}
    # Where nothing better is known, a letter has the route into its dead-letter queue, which is no origin.
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
    properties, _ = _unwrapped(letter)
    died = deaths_in(properties.header(headers.DEATHS), letter.queue).route
    known = {headers.ORIGINAL_ROUTING_KEY: properties.header(headers.ORIGINAL_ROUTING_KEY)}
    return original_routing_key(
        PlainMessage(
            queue=letter.queue,
            exchange=letter.dlq_exchange,
            routing_key=letter.dlq_routing_key if died is None else died[1],
            headers=known,
        )
    )
