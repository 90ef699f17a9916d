"""The journal: every hop of every message that has an id, each with the rule that fired.

A hop is a bare tuple, `(at_ms, rule, …)`, written on the hot path and made readable only when it is read. The journal
is bounded: the oldest histories are forgotten, and a very long history loses its middle.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

HISTORIES_MAX = 100_000
HOPS_MAX = 1_000
_HOPS_KEPT_AT_START = 100

RawHop: TypeAlias = tuple[Any, ...]
History: TypeAlias = list[RawHop]

PUBLISHED, RETURNED, REFUSED, DELIVERED, ACKED = "published", "returned", "refused", "delivered", "acked"
REQUEUED, DELAYED, DIED, HELD, DROPPED, GONE = "requeued", "delayed", "died", "held", "dropped", "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of a message's history: when (virtual milliseconds since 1970), which rule, and a sentence for people.

    `queue` is where it happened, `targets` the queues that got a copy by it, `why` the reason of a death or an end,
    `delay_ms` how long a queue delays it by itself; each only where the rule has such a thing.
    """

    at_ms: int
    rule: str
    text: str
    queue: str | None = None
    targets: tuple[str, ...] = ()
    why: str = ""
    delay_ms: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLocation:
    """Where a copy of a message is now: `state` is ready, unacked, delayed or held (at-least-once, no target yet)."""

    vhost: str
    queue: str
    state: str
    expires_at_ms: int | None = None


class Journal:
    """Lives by message id."""

    def __init__(self, histories_max: int = HISTORIES_MAX) -> None:
        self._histories: dict[str, History] = {}
        self._order: deque[str] = deque()
        self._histories_max = histories_max

    def history_of(self, message_id: str) -> History:
        """The history to write into, a new one for an id never seen."""
        history = self._histories.get(message_id)
        if history is None:
            history = self._histories[message_id] = []
            self._order.append(message_id)
            if len(self._order) > self._histories_max:
                del self._histories[self._order.popleft()]
        elif len(history) > HOPS_MAX:
            del history[_HOPS_KEPT_AT_START : len(history) // 2]
        return history

    def read(self, message_id: str) -> list[Hop]:
        """The history for people; empty for an id never seen or forgotten."""
        return [_readable(hop) for hop in self._histories.get(message_id, ())]


def _readable(hop: RawHop) -> Hop:
    at_ms, rule, *details = hop
    text = _TEXTS[rule](*details)
    match rule, details:
        case "published", (_, _, targets):
            return Hop(at_ms=at_ms, rule=rule, text=text, targets=targets)
        case "died", (reason, queue, _, targets):
            return Hop(at_ms=at_ms, rule=rule, text=text, queue=queue, targets=targets, why=reason)
        case "dropped", (why,):
            return Hop(at_ms=at_ms, rule=rule, text=text, why=why)
        case "held" | "gone", (queue, why):
            return Hop(at_ms=at_ms, rule=rule, text=text, queue=queue, why=why)
        case "delayed", (queue, delay_ms):
            return Hop(at_ms=at_ms, rule=rule, text=text, queue=queue, delay_ms=delay_ms)
        case "returned", _:
            return Hop(at_ms=at_ms, rule=rule, text=text)
        case _, (queue, *_):
            return Hop(at_ms=at_ms, rule=rule, text=text, queue=queue)
    raise AssertionError(f"no such hop: {hop!r}")  # pragma: no cover - the rules above are all there are


def _after(waited_ms: int) -> str:
    return f"{waited_ms / 1000:g} s"


def _published(exchange: str, key: str, queues: tuple[str, ...]) -> str:
    way = f"published to {exchange or '(default)'} with {key!r}"
    return f"{way} → {', '.join(queues)}" if queues else f"{way}: no queue takes it, so it is gone"


def _died(reason: str, queue: str, waited_ms: int, targets: tuple[str, ...]) -> str:
    return f"{_DEATHS.get(reason, reason)} in {queue} after {_after(waited_ms)} → {', '.join(targets)}"


_DEATHS = {"maxlen": "pushed out for length", "delivery_limit": "over the delivery limit"}
_TEXTS: dict[str, Callable[..., str]] = {
    PUBLISHED: _published,
    RETURNED: lambda exchange, key: f"returned to its publisher: no route from {exchange or '(default)'} with {key!r}",
    REFUSED: lambda queue: f"refused by {queue}, which is full",
    DELIVERED: lambda queue, tag: f"delivered from {queue} to {tag}",
    ACKED: lambda queue: f"acked in {queue}",
    REQUEUED: lambda queue: f"back in {queue}",
    DELAYED: lambda queue, delay_ms: f"delayed in {queue} for {_after(delay_ms)}",
    DIED: _died,
    HELD: lambda queue, why: f"held in {queue}: {why}",
    DROPPED: lambda why: f"dropped: {why}",
    GONE: lambda queue, why: f"gone with {queue}: {why}",
}
