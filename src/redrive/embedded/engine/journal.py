"""The journal: every hop of every message that has an id, each with the rule that fired.

A hop is a bare tuple, `(at_ms, rule, …)`, written on the hot path and made readable only when somebody asks. The
journal is bounded: the oldest lives are forgotten, and a life that goes round and round loses its middle.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

LIVES_MAX = 100_000
HOPS_MAX = 1_000
_HOPS_KEPT_AT_START = 100

RawHop: TypeAlias = tuple[Any, ...]
Life: TypeAlias = list[RawHop]

PUBLISHED, RETURNED, REFUSED, DELIVERED, ACKED = "published", "returned", "refused", "delivered", "acked"
REQUEUED, DELAYED, DIED, HELD, DROPPED, GONE = "requeued", "delayed", "died", "held", "dropped", "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of a message's life: when (virtual milliseconds since 1970), which rule, and a sentence for people.

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
class Place:
    """Where a copy of a message is now: `state` is ready, in hand, delayed or held (at-least-once, no target yet)."""

    vhost: str
    queue: str
    state: str
    expires_at_ms: int | None = None


class Journal:
    """Lives by message id."""

    def __init__(self, lives_max: int = LIVES_MAX) -> None:
        self._lives: dict[str, Life] = {}
        self._order: deque[str] = deque()
        self._lives_max = lives_max

    def life_of(self, message_id: str) -> Life:
        """The life to write into, a new one for an id never seen."""
        life = self._lives.get(message_id)
        if life is None:
            life = self._lives[message_id] = []
            self._order.append(message_id)
            if len(self._order) > self._lives_max:
                del self._lives[self._order.popleft()]
        elif len(life) > HOPS_MAX:
            del life[_HOPS_KEPT_AT_START : len(life) // 2]
        return life

    def read(self, message_id: str) -> list[Hop]:
        """The life for people; empty for an id never seen or forgotten."""
        return [_readable(hop) for hop in self._lives.get(message_id, ())]


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
