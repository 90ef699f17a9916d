"""Counts that are stored beside the dead letters, so that no page has to count them: by status along every dimension,
by group, and activity over time.

A transaction notes its changes in a `CountChanges` and writes them once, at its end, summed up and in a fixed order:
two transactions that touch the same counts then wait for each other instead of locking each other out.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from redrive.records import Status
from redrive.stores.database import WriteTransaction

ACTIVITY_BUCKET_MS = 300_000
"""What happened is counted by five minutes; wider buckets are sums of these."""

ActivityKind: TypeAlias = Literal["dead", "redriven", "returned", "resolved"]
_ACTIVITY_KINDS: tuple[ActivityKind, ...] = ("dead", "redriven", "returned", "resolved")

_TALLY = """
INSERT INTO tallies (dimension, key, status, n) VALUES ($1, $2, $3, $4)
ON CONFLICT (dimension, key, status) DO UPDATE SET n = tallies.n + excluded.n
"""
# For every row PostgreSQL starts a statement anew; of many groups there are many rows.
_TALLY_AT_ONCE = """
INSERT INTO tallies (dimension, key, status, n) SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
ON CONFLICT (dimension, key, status) DO UPDATE SET n = tallies.n + excluded.n
"""
_EMPTY_AT_ONCE = """
DELETE FROM tallies AS t USING unnest($1::text[], $2::text[], $3::text[]) AS e (dimension, key, status)
WHERE t.n = 0 AND t.dimension = e.dimension AND t.key = e.key AND t.status = e.status
"""
_EMPTY = "DELETE FROM tallies WHERE n = 0 AND dimension = $1 AND key = $2 AND status = $3"
_GROUP = "UPDATE groups SET letters = letters + $2, redriven = redriven + $3, returned = returned + $4 WHERE seq = $1"
_ACTIVITY = """
INSERT INTO activity (at_ms, queue, dlq, dead, redriven, returned, resolved) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (at_ms, queue, dlq) DO UPDATE SET dead = activity.dead + excluded.dead,
    redriven = activity.redriven + excluded.redriven, returned = activity.returned + excluded.returned,
    resolved = activity.resolved + excluded.resolved
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountKey:
    """What a dead letter is counted by."""

    queue: str
    dlq: str
    topic: str
    service: str | None
    type: str | None
    group_seq: int

    def dimensions(self) -> tuple[tuple[str, str], ...]:
        """Its value in every dimension that it has."""
        keys = [
            ("all", ""),
            ("queue", self.queue),
            ("dlq", self.dlq),
            ("topic", self.topic),
            ("group", str(self.group_seq)),
        ]
        if self.service is not None:
            keys.append(("service", self.service))
        if self.type is not None:
            keys.append(("type", self.type))
        return tuple(keys)


def bucket_ms_of(at_ms: int) -> int:
    """The beginning of the five minutes that a moment is counted in."""
    return at_ms - at_ms % ACTIVITY_BUCKET_MS


class CountChanges:
    """The changes of one transaction."""

    def __init__(self) -> None:
        self._by_status: Counter[tuple[CountKey, Status]] = Counter()
        self._redriven: Counter[int] = Counter()
        self._returned: Counter[int] = Counter()
        self._activity: defaultdict[tuple[int, str, str], Counter[ActivityKind]] = defaultdict(Counter)

    def move(self, key: CountKey, before: Status | None, after: Status | None, *, n: int = 1) -> None:
        """Dead letters of this key changed their status; None is not being in the store."""
        if before is not None:
            self._by_status[key, before] -= n
        if after is not None:
            self._by_status[key, after] += n

    def add_activity(self, kind: ActivityKind, key: CountKey, at_ms: int, *, n: int = 1) -> None:
        """Something happened to dead letters of this key."""
        self._activity[bucket_ms_of(at_ms), key.queue, key.dlq][kind] += n
        if kind == "redriven":
            self._redriven[key.group_seq] += n
        elif kind == "returned":
            self._returned[key.group_seq] += n

    async def write(self, tx: WriteTransaction) -> None:
        """Adds everything to the counts. Once, as the last thing of a transaction."""
        await self._write_groups(tx)
        await self._write_tallies(tx)
        rows: list[tuple[int, str, str, int, int, int, int]] = []
        for (at_ms, queue, dlq), counts in sorted(self._activity.items()):
            dead, redriven, returned, resolved = (counts[kind] for kind in _ACTIVITY_KINDS)
            rows.append((at_ms, queue, dlq, dead, redriven, returned, resolved))
        await _many(tx, _ACTIVITY, rows)

    async def _write_groups(self, tx: WriteTransaction) -> None:
        letters: Counter[int] = Counter()
        for (key, _), n in self._by_status.items():
            letters[key.group_seq] += n
        rows = [
            (seq, letters[seq], self._redriven[seq], self._returned[seq])
            for seq in sorted(letters.keys() | self._redriven.keys() | self._returned.keys())
        ]
        await _many(tx, _GROUP, [row for row in rows if any(row[1:])])

    async def _write_tallies(self, tx: WriteTransaction) -> None:
        sums: Counter[tuple[str, str, str]] = Counter()
        for (key, status), n in self._by_status.items():
            if not n:
                continue  # it came and went, or stayed what it was
            name = status.value
            for dimension, value in key.dimensions():
                sums[dimension, value, name] += n
        rows = [(*where, n) for where, n in sorted(sums.items()) if n]
        # A count that is zero now would stay as an empty line of statistics.
        empty = [where for where, n in sorted(sums.items()) if n < 0]
        if tx.dialect.kind == "postgresql":
            await _at_once(tx, _TALLY_AT_ONCE, rows)
            await _at_once(tx, _EMPTY_AT_ONCE, empty)
        else:
            await _many(tx, _TALLY, rows)
            await _many(tx, _EMPTY, empty)


async def _many(tx: WriteTransaction, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        await tx.many(sql, rows)


async def _at_once(tx: WriteTransaction, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
    """The rows as one array for each column: they are written, and locked, in their order."""
    if rows:
        await tx.run(sql, *(list(column) for column in zip(*rows, strict=True)))
