"""The `x-death` header, read once: how often a message died in a queue, why, and how it had come there.

The broker adds an entry for each (queue, reason) and counts in it. Only 4.x keeps the entries in order, so nothing here
relies on their position. Anybody may write the header: an entry that no broker writes counts as nothing.

One `Deaths` may be shared by all messages with the same encoded header; it caches what was read for one queue. It is
also the decoded header, a list, and must not be changed.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from redrive.core import headers
from redrive.core.headers import read_count
from redrive.core.received_messages import ReceivedMessage

REJECTED, EXPIRED = "rejected", "expired"


class QueueDeaths(NamedTuple):
    """The deaths in one queue.

    `otherwise`: whether one of them was no reject. `route` is the exchange and the key that the message first came to
    the queue with, None if no entry has it.
    """

    rejections: int
    otherwise: bool
    route: tuple[str, str] | None


NO_DEATHS = QueueDeaths(0, False, None)


class Deaths(list[Any]):
    """The entries of an x-death header, and what they add up to."""

    __slots__ = ("_has_waited", "_is_as_written", "_queues")

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self._queues: dict[str, QueueDeaths] = {}
        self._has_waited: bool | None = None
        self._is_as_written: bool | None = None

    def in_queue(self, queue: str) -> QueueDeaths:
        """The deaths in a queue."""
        known = self._queues.get(queue)
        if known is None:
            known = self._queues[queue] = _read(self, queue)
        return known

    @property
    def is_as_written(self) -> bool:
        """Whether a broker may have written every entry. RabbitMQ 3.10 crashes on some other entries when the message
        dies again: the message is lost, or the queue with all its messages."""
        if self._is_as_written is None:
            self._is_as_written = all(_is_as_written(one) for one in self)
        return self._is_as_written

    @property
    def has_waited(self) -> bool:
        """Whether it has expired anywhere."""
        if self._has_waited is None:
            self._has_waited = any(isinstance(one, Mapping) and one.get("reason") == EXPIRED for one in self)
        return self._has_waited

    def has_expired_in(self, queues: Collection[str]) -> bool:
        """Whether it has expired in one of these queues."""
        return any(
            isinstance(one, Mapping) and one.get("reason") == EXPIRED and one.get("queue") in queues for one in self
        )


def read_deaths(header: Any) -> Deaths | None:
    """Reads an x-death header's value; None if there is none. A value that is no array is one entry that counts as
    nothing."""
    if header is None or isinstance(header, Deaths):
        return header
    return Deaths(header) if isinstance(header, list | tuple) else Deaths((None,))


def has_odd_deaths(header: Any) -> bool:
    """Whether an x-death header's value is not as a broker writes it."""
    deaths = read_deaths(header)
    return deaths is not None and not deaths.is_as_written


def deaths_in(header: Any, queue: str) -> QueueDeaths:
    """The deaths in one queue by an x-death header's value."""
    deaths = read_deaths(header)
    return NO_DEATHS if deaths is None else deaths.in_queue(queue)


def own_deaths(message: ReceivedMessage) -> QueueDeaths:
    """The deaths of a message in its queue, as far as they are its own.

    From every retry loop of ours a message comes back through the default exchange with its queue's name as the key. A
    message that came by another route has not died here since it was published: its x-death was copied from another
    message, or is from before it was redriven.
    """
    if message.exchange or message.routing_key != message.queue or message.has_anothers_headers:
        return NO_DEATHS
    return deaths_in(message.header(headers.DEATHS), message.queue)


def _is_as_written(death: Any) -> bool:
    if not isinstance(death, Mapping):
        return False
    count, keys = death.get("count"), death.get("routing-keys", ())
    return (
        isinstance(count, int)
        and not isinstance(count, bool)
        and _is_text(death.get("queue"))
        and _is_text(death.get("reason"))
        and _is_text(death.get("exchange", ""))
        and isinstance(keys, list | tuple)
        and all(map(_is_text, keys))
    )


def _is_text(value: Any) -> bool:
    # A text that is no UTF-8 is decoded to a subclass of bytes.
    return isinstance(value, str) or (isinstance(value, bytes) and type(value) is not bytes)


def _read(deaths: list[Any], queue: str) -> QueueDeaths:
    rejections, otherwise = 0, False
    routes = []
    for death in deaths:
        if not isinstance(death, Mapping) or death.get("queue") != queue:
            continue
        if death.get("reason") == REJECTED:
            rejections += read_count(death.get("count"))
        else:
            otherwise = True
        exchange, keys = death.get("exchange"), death.get("routing-keys")
        if isinstance(exchange, str) and isinstance(keys, list | tuple) and keys and isinstance(keys[0], str):
            routes.append((exchange, keys[0]))
    # Later deaths of another kind have the default exchange, by which it came back: so another exchange is the first.
    return QueueDeaths(rejections, otherwise, max(routes, default=None))
