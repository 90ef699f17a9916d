"""x-death: how a message's deaths are recorded, and when they make a cycle.

There are two ways. Since 3.13 the broker keeps the deaths itself, the latest first, and writes them into the headers on
the way out; a header that a client set is overwritten. 3.10 has nothing but the header, believes a client's, and
reverses the older entries at every death (so that only the first entry's position can be relied on).
"""

from dataclasses import dataclass, replace
from typing import Any

from redrive import wire
from redrive.embedded.engine.messages import Message
from redrive.embedded.engine.profiles import Profile

EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"


@dataclass(frozen=True, slots=True)
class XDeathEntry:
    """All deaths of a message in one queue for one reason; everything but `count` is the first one's."""

    queue: str
    reason: str
    count: int
    time_s: int
    exchange: str
    keys: tuple[str, ...]
    expiration: str | None

    def table(self) -> dict[str, Any]:
        """The entry of x-death."""
        table: dict[str, Any] = {
            "count": wire.Int64(self.count),
            "reason": self.reason,
            "queue": self.queue,
            "time": wire.Timestamp(self.time_s),
            "exchange": self.exchange,
            "routing-keys": list(self.keys),
        }
        if self.expiration is not None:
            table["original-expiration"] = self.expiration
        return table


def record_death(
    message: Message, *, queue: str, reason: str, exchange: str, key: str | None, now_ms: int, profile: Profile
) -> Message:
    """The message as it is published to the dead-letter exchange `exchange`, with `key` if the queue sets one."""
    death = XDeathEntry(
        queue=queue,
        reason=reason,
        count=1,
        time_s=now_ms // 1000,
        exchange=message.exchange,
        keys=tuple(one for one in message.keys if one not in message.bcc),
        expiration=None if message.expiration_ms is None else str(message.expiration_ms),
    )
    dead = message.copy()
    dead.expiration_ms = None
    properties = wire.Properties(message.header)
    if profile.deaths_in_headers:
        headers = _headers_with(properties.headers, death)
        drop = ("CC",) if key is not None and profile.dead_letter_key_drops_cc else ()
        dead.header = wire.sort_headers(properties.edit(headers=headers, drop=drop, expiration=None).raw, once=False)
    else:
        dead.deaths = _deaths_with(message.deaths, death)
        dead.first_death = message.first_death or death
        headers = {"x-death": [one.table() for one in dead.deaths]}
        headers |= _pointer("first", dead.first_death)
        if profile.last_death_headers:
            headers |= _pointer("last", death)
        dead.header = wire.sort_headers(properties.edit(headers=headers, expiration=None).raw, once=False)
    dead.exchange = exchange
    dead.hops, dead.hop_ms = (message.hops + 1 if message.hop_ms == now_ms else 1), now_ms
    if key is not None:
        dead.keys, dead.bcc = (key,), ()
    return dead


def is_cycle(message: Message, target: str, profile: Profile) -> list[str] | None:
    """The cycle that brings a dead message to `target` again without a rejection on the way, or None.

    Searched from the latest death back to the target's own. `message` already has its present death recorded.
    """
    way: list[str] = []
    for queue, reason in _recorded(message, profile):
        if reason == REJECTED:
            return None
        way.append(queue)
        if queue == target:
            return way
    return None


def _pointer(which: str, death: XDeathEntry) -> dict[str, Any]:
    return {
        f"x-{which}-death-reason": death.reason,
        f"x-{which}-death-queue": death.queue,
        f"x-{which}-death-exchange": death.exchange,
    }


def _deaths_with(deaths: tuple[XDeathEntry, ...], new: XDeathEntry) -> tuple[XDeathEntry, ...]:
    for death in deaths:
        if death.queue == new.queue and death.reason == new.reason:
            rest = tuple(one for one in deaths if one is not death)
            return (replace(death, count=death.count + 1), *rest)
    return (new, *deaths)


def _headers_with(headers: dict[str, Any], new: XDeathEntry) -> dict[str, Any]:
    """3.10: what to set in the headers."""
    if "x-death" not in headers:
        return {"x-death": [new.table()], **_pointer("first", new)}
    before = headers["x-death"]
    if not isinstance(before, list):
        return {"x-death": [new.table()]}  # somebody's own header of that name: overwritten, and no first death
    tables = [one for one in before if isinstance(one, dict)]
    if len(tables) > 1:
        tables = _grouped(tables)
    matches = [one for one in tables if one.get("queue") == new.queue and one.get("reason") == new.reason]
    others = [one for one in tables if one not in matches]
    if matches:
        count = matches[0].get("count")
        counted = {**matches[0], "count": wire.Int64(count + 1 if isinstance(count, int) else 1)}
    else:
        counted = new.table()
    return {"x-death": [dict(sorted(counted.items())), *others]}


def _grouped(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each queue and reason, in reverse: each found is put in front of those before it."""
    seen: set[tuple[str, str]] = set()
    grouped: list[dict[str, Any]] = []
    for table in tables:
        place = (str(table.get("queue")), str(table.get("reason")))
        if place not in seen:
            seen.add(place)
            grouped.insert(0, table)
    return grouped


def _recorded(message: Message, profile: Profile) -> list[tuple[str, str]]:
    if not profile.deaths_in_headers:
        return [(death.queue, death.reason) for death in message.deaths]
    deaths = wire.Properties(message.header).header("x-death")
    if not isinstance(deaths, list):
        return []
    # An entry that is not a table was set by a client, so the cycle is not automatic: it counts as a rejection.
    return [
        (str(one.get("queue")), str(one.get("reason"))) if isinstance(one, dict) else ("", REJECTED) for one in deaths
    ]
