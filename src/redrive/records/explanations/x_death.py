"""What x-death says: in which queue a message failed, and why.

The broker keeps one entry for each (queue, reason). 4.x has the most recent first; on 3.10 only the first element is
reliable, so entries are looked up by what they are. `time` is that of an entry's first death.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.core import headers, read_count
from redrive.records.explanations.header_values import NAME_BYTES_MAX, TolerantMessage, moment_ms_of, text_of
from redrive.records.explanations.queue_names import is_waiting_place

_DEATHS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One entry of x-death."""

    queue: str
    reason: str
    exchange: str | None
    routing_key: str | None
    at_ms: int | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedQueue:
    """The death that matters, put together from all of the failed queue's."""

    queue: str
    reason: str
    exchange: str | None
    routing_key: str | None
    rejections: int
    """How often the failed queue's consumer rejected it: handler runs, where the broker counts them."""


def read_deaths(letter: TolerantMessage) -> tuple[Death, ...]:
    """The entries that can be read, in the broker's order."""
    value = letter.header(headers.DEATHS)
    if not isinstance(value, list | tuple):
        return ()
    found = []
    for one in value[:_DEATHS_MAX]:
        if isinstance(one, Mapping):
            queue, reason = _name(one.get("queue")), _name(one.get("reason"))
            if queue and reason:
                found.append(
                    Death(
                        queue=queue,
                        reason=reason,
                        exchange=_name(one.get("exchange")),
                        routing_key=_first_key(one.get("routing-keys")),
                        at_ms=moment_ms_of(one.get("time")),
                        count=read_count(one.get("count")),
                    )
                )
    return tuple(found)


def find_failed_queue(
    deaths: Sequence[Death], letter: TolerantMessage, *, known_queue: str | None
) -> FailedQueue | None:
    """The failed queue and why the message died there; None without deaths.

    A retry loop leaves deaths of its wait queues too, and where a consumer published into one of them that death is
    even the first. So: the queue that is known to be dead-lettered here; else, of the deaths other than by expiry, the
    first one's queue; else that of the first expiry outside a wait queue.
    """
    if not deaths:
        return None
    queue = _failed_queue(deaths, letter, known_queue)
    own = [death for death in deaths if death.queue == queue]
    # The last of its deaths in the failed queue is why it is here; element 0 is the most recent on every version.
    last = own[0] if own[0] is deaths[0] else max(own, key=_latest)
    # Later deaths of another kind have the way back from a wait queue, which is mostly the default exchange.
    route = max(own, key=lambda death: (death.exchange or "", death.routing_key or ""))
    return FailedQueue(
        queue=queue,
        reason=last.reason,
        exchange=route.exchange,
        routing_key=route.routing_key,
        rejections=sum(one.count for one in own if one.reason == "rejected"),
    )


def latest_ms(deaths: Sequence[Death]) -> int | None:
    """When the latest of the deaths was, None if none of them says."""
    return max((death.at_ms for death in deaths if death.at_ms is not None), default=None)


def _failed_queue(deaths: Sequence[Death], letter: TolerantMessage, known_queue: str | None) -> str:
    if any(death.queue == known_queue for death in deaths):
        return str(known_queue)
    first = letter.name("x-first-death-queue")
    counted = [one for one in deaths if one.reason != "expired"]
    if not counted:
        counted = [one for one in deaths if not is_waiting_place(one.queue)] or list(deaths)
    if any(one.queue == first for one in counted):
        return str(first)
    return deaths[0].queue if deaths[0] in counted else max(counted, key=_latest).queue


def _latest(death: Death) -> int:
    return -1 if death.at_ms is None else death.at_ms


def _name(value: Any) -> str | None:
    return text_of(value, NAME_BYTES_MAX) if isinstance(value, str | bytes | bytearray) else None


def _first_key(value: Any) -> str | None:
    return _name(value[0]) if isinstance(value, list | tuple) and value else None
