"""A stream: a log that every consumer reads for itself, from where it likes. Nothing leaves it.

A consumer's prefetch is its credit: so many messages may be unacked, and settling one earns it the next (on 3.10 it may
only ack). RabbitMQ stores AMQP 1.0, and it shows: tables and arrays among the headers are gone, and a message without
delivery mode has one on 4.x. On 3.10 a message that is dead-lettered at most once into a stream is lost.

Each message is a chunk of its own here; a real broker puts what arrives together into one chunk, and begins there for
`last`, a time or an interval. Retention works on whole segment files, half a gigabyte each by default, and is not
modelled.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.amqp_errors import AmqpError, precondition, resource
from redrive.embedded.engine.amqp_values import is_integer
from redrive.embedded.engine.arguments import read_age_ms
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.messages import Message, QueueEntry
from redrive.embedded.engine.profiles import Profile, SettledBy
from redrive.embedded.engine.queues import Queue

if TYPE_CHECKING:
    from redrive.embedded.engine.channel_base import ChannelBase


class Stream(Queue):
    """One stream. Its `ready` is always empty; `ready_entries` is the log."""

    is_stream = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._log: list[QueueEntry] = []
        self._counts_deliveries = True  # each delivery computes its own header

    @property
    def stored(self) -> int:
        """How many messages there are, unacked ones included."""
        return len(self._log)

    @property
    def stored_bytes(self) -> int:
        """The size of their bodies."""
        return sum(len(entry.message.body) for entry in self._log)

    def ready_entries(self) -> Iterator[QueueEntry]:
        """Every message."""
        return iter(self._log)

    def enqueue(self, message: Message, publisher: object | None = None) -> bool:
        """Append a message. Without a publisher it is a dead letter (at most once), which 3.10 loses."""
        engine = self.engine
        if publisher is None and engine.profile.streams_lose_dead_letters:
            if message.history is not None:
                why = f"{self.name} is a stream, which takes no dead letters at most once on {engine.profile.name}"
                message.history.append((engine.now_ms, journal.DROPPED, why))
            return True
        self._log.append(QueueEntry(message, len(self._log), engine.now_ms, None))
        self.dispatch()
        return True

    def as_delivered(self, entry: QueueEntry, *, fetched: bool = False) -> tuple[bool, bytes]:
        """Never redelivered; the header with its offset."""
        return False, _stream_header(entry.message, entry.sequence, self.engine.profile)

    def dispatch(self) -> None:
        """Deliver to each consumer what it has credit for."""
        log = self._log
        for consumer in list(self.consumers.all):
            assert isinstance(consumer, StreamConsumer)
            while consumer.position < len(log) and consumer.has_room() and not self._send_buffer_is_full():
                entry = log[consumer.position]
                consumer.position += 1
                if consumer.wants(entry.message):
                    self.deliver(QueueEntry(entry.message, entry.sequence, entry.enqueued_ms, None), consumer)

    def discard(self, entries: Iterable[QueueEntry], how: SettledBy) -> None:
        """Unacked messages are settled; they stay in the log."""
        for _ in entries:
            self._forget_unacked()

    def requeue(self, entries: Iterable[QueueEntry], how: SettledBy) -> None:
        """The same: a stream never redelivers."""
        for _ in entries:
            self._forget_unacked()

    def purge(self) -> int:
        """Raises AmqpError."""
        raise self.unsupported("queue.purge not supported by stream queues")

    def keep_only(self, wanted: Any, *, why: str) -> None:
        """A stream keeps everything."""

    def end(self, why: str) -> None:
        """The stream is gone, and all in it."""
        super().end(why)
        for entry in self._log:
            self._note_end(entry, why)
        self._log.clear()

    def unsupported(self, what: str) -> AmqpError:
        """540, as RabbitMQ words it for streams."""
        return AmqpError(540, f"{what} {resource('queue', self.name, self.vhost.name)}")

    def subscribe(
        self, channel: "ChannelBase", tag: str, *, no_ack: bool, number: int, arguments: Mapping[str, Any]
    ) -> "StreamConsumer":
        """basic.consume. Raises AmqpError."""
        where = resource("queue", self.name, self.vhost.name)
        profile = self.engine.profile
        if "x-priority" in arguments:
            raise precondition(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
        position = self._position(arguments.get("x-stream-offset", "next"), where)
        if channel.prefetch == 0:
            named = f"'{where}'" if profile.deaths_in_headers else f"stream {where}"
            raise precondition(f"consumer prefetch count is not set for {named}")
        if no_ack:
            kind = "stream queues" if profile.deaths_in_headers else "stream"
            raise AmqpError(540, f"automatic acknowledgement not supported by {kind} {where}")
        return StreamConsumer(channel, self, tag, number=number, arguments=arguments, position=position)

    def _position(self, offset: Any, where: str) -> int:
        """The number of the first message that a consumer reads. Raises AmqpError."""
        if is_integer(offset):
            return max(0, int(offset))
        if isinstance(offset, datetime):
            return self._since(round(offset.timestamp() * 1000))
        if isinstance(offset, wire.Timestamp):
            return self._since(int(offset) * 1000)
        if not isinstance(offset, str):
            raise AmqpError(541)
        match offset:
            case "first":
                return 0
            case "last":
                return max(0, len(self._log) - 1)
            case "next":
                return len(self._log)
        age_ms = read_age_ms(offset, self.engine.profile)
        if age_ms is None:
            shown = f'<<"{offset}">>' if offset else "<<>>"
            problem = f"{{invalid_stream_offset_arg,{{longstr,{shown}}}}}"
            raise precondition(f"invalid arg 'x-stream-offset' for {where}: {problem}")
        return self._since(self.engine.now_ms - age_ms)

    def _since(self, at_ms: int) -> int:
        return bisect_left(self._log, at_ms, key=lambda entry: entry.enqueued_ms)


class StreamConsumer(Consumer):
    """A reader: `position` is the next message it looks at."""

    __slots__ = ("_filters", "_takes_unfiltered", "position")

    def __init__(
        self,
        channel: "ChannelBase",
        stream: Stream,
        tag: str,
        *,
        number: int,
        arguments: Mapping[str, Any],
        position: int,
    ) -> None:
        super().__init__(channel, stream, tag, no_ack=False, exclusive=False, number=number, arguments=arguments)
        self.position = position
        chosen = arguments.get("x-stream-filter") if stream.engine.profile.streams_filter else None
        if isinstance(chosen, str):
            chosen = [chosen]
        self._filters = None if chosen is None else frozenset(one for one in chosen if isinstance(one, str))
        self._takes_unfiltered = arguments.get("x-stream-match-unfiltered") is True

    def wants(self, message: Message) -> bool:
        """Whether the message passes its filter."""
        if self._filters is None:
            return True
        value = wire.Properties(message.header).headers.get("x-stream-filter-value")
        return self._takes_unfiltered if value is None else value in self._filters


def _stream_header(message: Message, offset: int, profile: Profile) -> bytes:
    """The content header as a stream gives it back."""
    properties = wire.Properties(message.header)
    kept = set() if profile.deaths_in_headers else {"CC"}
    if message.deaths:
        kept.add("x-death")
    lost = [key for key, value in properties.headers.items() if isinstance(value, dict | list) and key not in kept]
    mode = properties.delivery_mode
    if mode is None and not profile.deaths_in_headers:
        mode = 1
    changed = properties.edit(headers={"x-stream-offset": wire.Int64(offset)}, drop=lost, delivery_mode=mode)
    return wire.sort_headers(changed.raw, once=False)
