"""A stream: a log that every consumer reads for itself, from where it likes. Nothing leaves it.

A consumer's prefetch is its credit: so many messages it may hold unsettled, and whatever it says of one earns it the
next (on 3.10 it may only ack). What is stored is AMQP 1.0 within RabbitMQ, and shows it: tables and arrays among the
headers are gone, a message without delivery mode has one on 4.x. On 3.10 what dies at most once into a stream is lost.

A message is a chunk of its own here; a real broker puts what arrives at once into one, and begins there for `last`, a
time or an interval. Retention works on whole segment files, half a gigabyte each by default, and is not played.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.embedded.engine import journal
from redrive.embedded.engine.ages import read_age_ms
from redrive.embedded.engine.amqp_values import is_integer
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.messages import Entry, Message
from redrive.embedded.engine.profiles import Profile, Returning
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import Refusal, precondition, resource

if TYPE_CHECKING:
    from redrive.embedded.engine.channel_state import ChannelState


class Stream(Queue):
    """One stream. Its `ready` is always empty; the log is what `resting` shows."""

    is_stream = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._log: list[Entry] = []
        self._counts = True  # what is shown of a message is worked out for each delivery

    @property
    def stored(self) -> int:
        """How many messages there are; those in hand are among them."""
        return len(self._log)

    @property
    def stored_bytes(self) -> int:
        """The size of their bodies."""
        return sum(len(entry.message.body) for entry in self._log)

    def resting(self) -> Iterator[Entry]:
        """Every message."""
        return iter(self._log)

    def offer(self, message: Message, publisher: object | None = None) -> bool:
        """Take a message, at its end. None of a publisher who waits for that: on 3.10 it is lost."""
        house = self.house
        if publisher is None and house.profile.streams_lose_dead_letters:
            if message.life is not None:
                why = f"{self.name} is a stream, which takes no dead letters at most once on {house.profile.name}"
                message.life.append((house.now_ms, journal.DROPPED, why))
            return True
        self._log.append(Entry(message, len(self._log), house.now_ms, None))
        self.dispatch()
        return True

    def presented(self, entry: Entry, *, fetched: bool = False) -> tuple[bool, bytes]:
        """Never redelivered; the header with its offset."""
        return False, _stream_header(entry.message, entry.sequence, self.house.profile)

    def dispatch(self) -> None:
        """Give each consumer what it has credit for."""
        log = self._log
        for consumer in list(self.consumers.all):
            assert isinstance(consumer, StreamConsumer)
            while consumer.position < len(log) and consumer.has_room() and not self._stalls():
                entry = log[consumer.position]
                consumer.position += 1
                if consumer.wants(entry.message):
                    self.deliver(Entry(entry.message, entry.sequence, entry.since_ms, None), consumer)

    def discard(self, entries: Iterable[Entry], how: Returning) -> None:
        """Messages in hand are settled; they stay where they are."""
        for _ in entries:
            self._let_go()

    def give_back(self, entries: Iterable[Entry], how: Returning) -> None:
        """The same: nobody's return makes a stream deliver anything again."""
        for _ in entries:
            self._let_go()

    def purge(self) -> int:
        """Raises Refusal."""
        raise self.refusal("queue.purge not supported by stream queues")

    def keep(self, wanted: Any, *, why: str) -> None:
        """A stream keeps everything."""

    def end(self, why: str) -> None:
        """The stream is gone, and all in it."""
        super().end(why)
        for entry in self._log:
            self._note_end(entry, why)
        self._log.clear()

    def refusal(self, what: str) -> Refusal:
        """540, as RabbitMQ words it for streams."""
        return Refusal(540, f"{what} {resource('queue', self.name, self.vhost.name)}")

    def subscribe(
        self, channel: "ChannelState", tag: str, *, no_ack: bool, number: int, arguments: Mapping[str, Any]
    ) -> "StreamConsumer":
        """basic.consume. Raises Refusal."""
        where = resource("queue", self.name, self.vhost.name)
        profile = self.house.profile
        if "x-priority" in arguments:
            raise precondition(f"invalid arg 'x-priority' for {where} of queue type rabbit_stream_queue")
        position = self._position(arguments.get("x-stream-offset", "next"), where)
        if channel.prefetch == 0:
            named = f"'{where}'" if profile.deaths_in_headers else f"stream {where}"
            raise precondition(f"consumer prefetch count is not set for {named}")
        if no_ack:
            kind = "stream queues" if profile.deaths_in_headers else "stream"
            raise Refusal(540, f"automatic acknowledgement not supported by {kind} {where}")
        return StreamConsumer(channel, self, tag, number=number, arguments=arguments, position=position)

    def _position(self, offset: Any, where: str) -> int:
        """The number of the first message that a consumer reads. Raises Refusal."""
        if is_integer(offset):
            return max(0, int(offset))
        if isinstance(offset, datetime):
            return self._since(round(offset.timestamp() * 1000))
        if isinstance(offset, wire.Timestamp):
            return self._since(int(offset) * 1000)
        if not isinstance(offset, str):
            raise Refusal(541)
        match offset:
            case "first":
                return 0
            case "last":
                return max(0, len(self._log) - 1)
            case "next":
                return len(self._log)
        age_ms = read_age_ms(offset, self.house.profile)
        if age_ms is None:
            shown = f'<<"{offset}">>' if offset else "<<>>"
            problem = f"{{invalid_stream_offset_arg,{{longstr,{shown}}}}}"
            raise precondition(f"invalid arg 'x-stream-offset' for {where}: {problem}")
        return self._since(self.house.now_ms - age_ms)

    def _since(self, at_ms: int) -> int:
        return bisect_left(self._log, at_ms, key=lambda entry: entry.since_ms)


class StreamConsumer(Consumer):
    """A reader: `position` is the next message it looks at."""

    __slots__ = ("_filters", "_takes_unfiltered", "position")

    def __init__(
        self,
        channel: "ChannelState",
        stream: Stream,
        tag: str,
        *,
        number: int,
        arguments: Mapping[str, Any],
        position: int,
    ) -> None:
        prefetch = channel.prefetch
        super().__init__(
            channel, stream, tag, no_ack=False, exclusive=False, prefetch=prefetch, number=number, arguments=arguments
        )
        self.position = position
        chosen = arguments.get("x-stream-filter") if stream.house.profile.streams_filter else None
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
