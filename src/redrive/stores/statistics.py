"""How many dead letters there are, along every dimension, and what happened over time.

Without a filter, and for a status, the counts that are kept beside the letters say it. Otherwise the letters are
counted, at most `COUNTED_MAX` of the newest; an answer from fewer than all says that it is partial. For one name, such
as a queue, how many there are by status is exact even then.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redrive.records import Filter, NameTerm, Status, glob_matcher
from redrive.stores.database import Database, ReadTransaction
from redrive.stores.letters.counts import ACTIVITY_BUCKET_MS
from redrive.stores.search.budgets import VIEW_BUDGET, within_budget
from redrive.stores.search.filter_sql import sql, statuses_left
from redrive.stores.search.walk import start_walk

KEYS_MAX = 200
COUNTED_MAX = 2_000
COUNTED_S_MAX = 0.04
"""So long it is looked for more to count."""
BUCKETS_MAX = 2_000
DIMENSIONS = ("queue", "dlq", "topic", "service", "type", "group")

StatusCounts = dict[str, dict[str, int]]

_STATUSES = tuple(status.value for status in Status)
_BY_STATUS = ", ".join(f"max(CASE WHEN t.status = '{status}' THEN t.n END) AS {status}" for status in _STATUSES)
_OF_DIMENSION = """
SELECT '{dimension}' AS dimension, t.key, {by_status} FROM tallies AS t
WHERE t.dimension = '{dimension}' AND t.status = ANY($1::text[]) GROUP BY t.key ORDER BY sum(t.n) DESC, t.key LIMIT $2
"""


def _of_dimension(dimension: str) -> str:
    keys = sql("(", _OF_DIMENSION.format(dimension=dimension, by_status=_BY_STATUS), ") AS k")
    if dimension != "group":
        return sql("SELECT k.* FROM", keys)
    columns = ", ".join(f"k.{status}" for status in _STATUSES)
    return sql("SELECT k.dimension, g.id,", columns, "FROM", keys, "JOIN groups AS g ON g.seq = CAST(k.key AS BIGINT)")


_LARGEST = " UNION ALL ".join(_of_dimension(dimension) for dimension in ("all", *DIMENSIONS))
"""The keys with the most along every dimension, groups by their ids. One question: seven of them cost more than the
counting does."""
_COUNTED = """
SELECT l.status, l.queue, l.dlq, l.routing_key, l.service, l.type, l.group_seq FROM letters AS l
WHERE l.seq = ANY($1::bigint[])
"""
_OF_NAMES = """
SELECT t.dimension, t.status, sum(t.n) FROM tallies AS t
WHERE t.dimension = ANY($1::text[]) AND t.key = ANY($2::text[]) AND t.status = ANY($3::text[])
GROUP BY t.dimension, t.status
"""
_ACTIVITY = """
SELECT (a.at_ms - $1) / $3, sum(a.dead), sum(a.redriven), sum(a.returned), sum(a.resolved) FROM activity AS a
WHERE a.at_ms >= $1 AND a.at_ms < $2 AND (CAST($4 AS TEXT) IS NULL OR a.queue = $4) GROUP BY 1 ORDER BY 1
"""
_ACTIVITY_OF = _ACTIVITY.replace("GROUP BY 1", "AND a.dlq = ANY($5::text[]) GROUP BY 1")
_ACTIVE = "SELECT DISTINCT a.dlq FROM activity AS a WHERE a.at_ms >= $1 AND a.at_ms < $2"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterStats:
    """Counts by status; along each dimension by key and status, for the 200 keys with the most."""

    total: int
    by_status: dict[str, int]
    by_queue: StatusCounts
    by_dlq: StatusCounts
    by_topic: StatusCounts
    by_service: StatusCounts
    by_type: StatusCounts
    by_group: StatusCounts
    is_partial: bool = False
    """Not all were counted, only the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityBucket:
    """What happened from `at_ms` until the next bucket."""

    at_ms: int
    dead: int
    redriven: int
    returned: int
    resolved: int


_DLQS = "SELECT DISTINCT key FROM tallies WHERE dimension = 'dlq' ORDER BY key"


class Statistics:
    """The statistics of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def dead_letter_queues(self) -> tuple[str, ...]:
        """The dead-letter queues of which anything is stored."""
        async with self._database.autocommit() as tx:
            return tuple(row[0] for row in await tx.rows(_DLQS))

    async def totals(self, filter: Filter | None = None, *, now_ms: int) -> LetterStats:
        """How many there are of what answers the filter. Raises FilterTooExpensive."""
        terms = () if filter is None else filter.terms
        if all(isinstance(term, NameTerm) and term.field == "status" for term in terms):
            async with self._database.autocommit() as tx:
                return _stats(await _largest(tx, terms), is_partial=False)
        # Each statement for itself, as a page of letters.
        async with within_budget(VIEW_BUDGET, self._database, filter), self._database.autocommit() as tx:
            counted, is_partial = await _count(tx, Filter(terms), now_ms)
            counted["group"] = await _by_id(tx, counted["group"])
            return _stats(counted, is_partial=is_partial)

    async def series(
        self, *, from_ms: int, until_ms: int, bucket_ms: int, queue: str | None = None, dlqs: Sequence[str] = ()
    ) -> tuple[ActivityBucket, ...]:
        """What happened, bucket by bucket, empty ones too; with `dlqs` (names with `*`) to what was taken from these
        dead-letter queues only.

        Buckets begin and end at whole five minutes, and are as wide as it takes to be at most `BUCKETS_MAX`.
        """
        begin = from_ms - from_ms % ACTIVITY_BUCKET_MS
        width = max(bucket_ms, ACTIVITY_BUCKET_MS, -(-(until_ms - begin) // BUCKETS_MAX))
        width = -(-width // ACTIVITY_BUCKET_MS) * ACTIVITY_BUCKET_MS
        async with self._database.read() as tx:
            if dlqs:
                active = [row[0] for row in await tx.rows(_ACTIVE, begin, until_ms)]
                names = list(filter(glob_matcher(dlqs), active))
                rows = await tx.rows(_ACTIVITY_OF, begin, until_ms, width, queue, names)
            else:
                rows = await tx.rows(_ACTIVITY, begin, until_ms, width, queue)
        found = {int(place): [int(n) for n in deeds] for place, *deeds in rows}
        buckets = []
        for place in range(max(0, -(-(until_ms - begin) // width))):
            dead, redriven, returned, resolved = found.get(place, [0, 0, 0, 0])
            at_ms = begin + place * width
            buckets.append(
                ActivityBucket(at_ms=at_ms, dead=dead, redriven=redriven, returned=returned, resolved=resolved)
            )
        return tuple(buckets)


async def _largest(tx: ReadTransaction, terms: Iterable[object]) -> dict[str, StatusCounts]:
    statuses = statuses_left(term for term in terms if isinstance(term, NameTerm))
    found: dict[str, StatusCounts] = {name: {} for name in ("all", *DIMENSIONS)}
    for dimension, key, *counts in await tx.rows(_LARGEST, list(statuses), KEYS_MAX):
        found[dimension][key] = {status: n for status, n in zip(_STATUSES, counts, strict=True) if n is not None}
    return found


async def _count(tx: ReadTransaction, filter: Filter, now_ms: int) -> tuple[dict[str, StatusCounts], bool]:
    """The newest letters that answer, counted along every dimension; and whether there are more."""
    walk = await start_walk(tx, filter, now_ms=now_ms, newest_first=True, seconds=COUNTED_S_MAX)
    seqs: list[int] = []
    looked_at, step = 0, await walk.step(None, COUNTED_MAX)
    while True:
        seqs += [key[-1] for key in step.found]
        looked_at += step.looked_at
        if step.is_end or looked_at >= COUNTED_MAX or walk.is_late:
            break
        step = await walk.step(step.last, COUNTED_MAX - len(seqs))
    counts: dict[str, defaultdict[str, Counter[str]]] = {name: defaultdict(Counter) for name in ("all", *DIMENSIONS)}
    for status, *keys in await tx.rows(_COUNTED, seqs) if seqs else ():
        counts["all"][""][status] += 1
        for name, key in zip(DIMENSIONS, keys, strict=True):
            if key is not None:
                counts[name][str(key)][status] += 1
    if not step.is_end:
        exact = await _by_status(tx, filter)
        if exact is not None:
            counts["all"][""] = Counter(exact)
    return {name: {key: dict(by) for key, by in count.items()} for name, count in counts.items()}, not step.is_end


async def _by_status(tx: ReadTransaction, filter: Filter) -> dict[str, int] | None:
    """Exact counts for a filter on one name, and perhaps on statuses; None for any other."""
    terms = [term for term in filter.terms if isinstance(term, NameTerm)]
    named = [term for term in terms if term.field != "status"]
    if len(terms) < len(filter.terms) or len(named) != 1 or named[0].negated or "*" in "".join(named[0].values):
        return None
    dimensions = {"queue": ["queue", "dlq"]}.get(named[0].field, [named[0].field])
    if not set(dimensions) <= set(DIMENSIONS) or named[0].field == "group":
        return None
    rows = await tx.rows(_OF_NAMES, dimensions, list(named[0].values), list(statuses_left(terms)))
    if len({row[0] for row in rows}) > 1:
        # Somebody's dead-letter queue is another's queue: letters may be in both counts.
        return None
    return {status: int(n) for _, status, n in rows}


async def _by_id(tx: ReadTransaction, counts: StatusCounts) -> StatusCounts:
    """Counts of groups by their ids, for those with the most."""
    top = _ranked(counts)
    seqs = [int(key) for key in top]
    rows = await tx.rows("SELECT seq, id FROM groups WHERE seq = ANY($1::bigint[])", seqs) if seqs else []
    ids = {str(row[0]): row[1] for row in rows}
    return {ids[key]: by for key, by in top.items() if key in ids}


def _stats(counts: dict[str, StatusCounts], *, is_partial: bool) -> LetterStats:
    by_status = counts["all"].get("", {})
    top = {name: _ranked(counts[name]) for name in DIMENSIONS}
    return LetterStats(
        total=sum(by_status.values()),
        by_status={status: by_status[status] for status in _STATUSES if status in by_status},
        by_queue=top["queue"],
        by_dlq=top["dlq"],
        by_topic=top["topic"],
        by_service=top["service"],
        by_type=top["type"],
        by_group=top["group"],
        is_partial=is_partial,
    )


def _ranked(counts: StatusCounts) -> StatusCounts:
    """The keys with the most first; at most `KEYS_MAX`."""
    ranked = sorted(counts.items(), key=lambda each: (-sum(each[1].values()), each[0]))
    return dict(ranked[:KEYS_MAX])
