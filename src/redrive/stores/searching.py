"""Going through the dead letters that answer a filter, in order, a bounded bite at a time.

There are three ways, and a walk keeps to one:

    merged     one ordered piece of an index for every value of a field (and status), merged: by (when it died, number)
    gathered   the few letters that an id or a small group leads to, sorted: by the same
    searched   what the full-text index gives: by number, which is the order it has them in

So a page costs what it shows, however deep it is and however many letters there are; only what no index answers is
looked at letter by letter, and a walk says after each bite how many those were.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from redrive.records import Content, Filter, Named, Status
from redrive.stores.checking import passes
from redrive.stores.database import Reading
from redrive.stores.dialect import Dialect
from redrive.stores.drivers import Driver, choose_driver, expand_names, find_groups
from redrive.stores.questions import Question, Statement, sql, take_apart

Key = tuple[int, ...]
"""Where a letter stands in a walk: (when it died, number), or (number,) in a searched one."""

SMALL = 1_000
"""So few letters are looked at one by one rather than found by their words."""
CONTENTS_MAX = 500
CONTENTS_BYTES_MAX = 16 << 20
NEAR = 1_000
"""Letters that PostgreSQL looks through for a word before it asks its index for all that have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bite:
    """One step of a walk: the keys of letters that answer, the last one looked at, how many that were."""

    found: list[Key]
    last: Key | None
    is_end: bool
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A filter as one condition over `letters AS l`; where it is not exact, contents must be looked at too."""

    sql: str
    args: tuple[object, ...]
    is_exact: bool


def condition(filter: Filter, *, dialect: Dialect, now_ms: int, first: int = 1) -> Condition:
    """The whole filter in SQL, with arguments from `first` on."""
    question = take_apart(filter)
    statement = Statement(dialect, now_ms=now_ms, first=first, chooses=True)
    parts = statement.all_of((*question.groups, *question.conditions), question.without)
    if question.words:
        asked = statement.search(question.words)
        if dialect.kind == "sqlite":
            parts.append(sql("l.seq IN (SELECT rowid FROM letter_words WHERE letter_words MATCH", asked, ")"))
        else:
            parts.append(sql("l.seq IN (SELECT w.seq FROM letter_words AS w WHERE w.words @@", asked, ")"))
    text = " AND ".join(parts) if parts else "TRUE"
    return Condition(sql=text, args=tuple(statement.arguments), is_exact=not question.checks)


async def matching(
    tx: Reading, filter: Filter, *, statuses: Sequence[Status], limit: int | None, now_ms: int
) -> list[int]:
    """The numbers of the letters that answer the filter and have one of the statuses, the longest dead first."""
    names = Named(field="status", values=tuple(status.value for status in statuses))
    walk = await start_walk(tx, Filter((*filter.terms, names)), now_ms=now_ms, newest_first=False)
    keys: list[Key] = []
    async for bite in walk.bites(5_000):
        keys += bite
        if limit is not None and not walk.is_searched and len(keys) >= limit:
            break
    seqs = [key[-1] for key in keys]
    if walk.is_searched:
        ordered = "SELECT l.seq FROM letters AS l WHERE l.seq = ANY($1::bigint[]) ORDER BY l.dead_at_ms, l.seq"
        seqs = [seq for (seq,) in await tx.rows(ordered, seqs)]
    return seqs if limit is None else seqs[:limit]


async def start_walk(
    tx: Reading, filter: Filter, *, now_ms: int, newest_first: bool, is_searched: bool | None = None
) -> "Walk":
    """A walk through what answers the filter. `is_searched`: go on with a walk that was, or was not."""
    question = take_apart(filter)
    question = replace(question, conditions=await expand_names(tx, question.conditions))
    groups = await find_groups(tx, question.groups) if question.groups else None
    driver = await choose_driver(tx, question.conditions, groups, measured=bool(question.words))
    if not question.words:
        is_searched = False
    elif is_searched is None:
        is_searched = driver.letters is None or driver.letters > SMALL
    return Walk(tx, question, driver, now_ms=now_ms, newest_first=newest_first, is_searched=is_searched)


class Walk:
    """See the module. Made by `start_walk`; lives as long as its transaction."""

    def __init__(
        self, tx: Reading, question: Question, driver: Driver, *, now_ms: int, newest_first: bool, is_searched: bool
    ) -> None:
        self.is_searched = is_searched
        self._tx = tx
        self._question = question
        self._driver = driver
        self._now_ms = now_ms
        self._before, self._down = ("<", " DESC") if newest_first else (">", "")

    async def bites(self, size: int) -> AsyncIterator[list[Key]]:
        """Everything, in pieces of about `size`."""
        last: Key | None = None
        while True:
            bite = await self.bite(last, size)
            if bite.found:
                yield bite.found
            if bite.is_end:
                return
            last = bite.last

    async def bite(self, after: Key | None, want: int) -> Bite:
        """What comes after a key: at most `want` letters that answer, perhaps fewer without being the end."""
        if self._driver.is_nothing:
            return Bite(found=[], last=after, is_end=True, looked_at=0)
        if self._question.checks:
            return await self._checked(after, want)
        return await self._candidates(after, want)

    async def _checked(self, after: Key | None, want: int) -> Bite:
        """Candidates whose contents were looked at."""
        bite = await self._candidates(after, max(want, CONTENTS_MAX))
        held = await self._held(bite.found)
        contents = await self._contents([key[-1] for key in held])
        found: list[Key] = []
        for place, key in enumerate(held):
            content = contents.get(key[-1])
            if content is not None and passes(content, self._question.checks):
                found.append(key)
            if len(found) == want and place + 1 < len(bite.found):
                return Bite(found=found, last=key, is_end=False, looked_at=place + 1)
        if len(held) < len(bite.found):
            return Bite(found=found, last=held[-1], is_end=False, looked_at=len(held))
        return Bite(found=found, last=bite.last, is_end=bite.is_end, looked_at=max(bite.looked_at, len(held)))

    async def _held(self, keys: list[Key]) -> list[Key]:
        """As many of them, from the first on, as have contents that fit into memory together."""
        query = "SELECT seq, size_bytes FROM letters WHERE seq = ANY($1::bigint[])"
        sizes = {row[0]: row[1] for row in await self._tx.rows(query, [key[-1] for key in keys])}
        total = 0
        for place, key in enumerate(keys):
            total += sizes.get(key[-1], 0)
            if total > CONTENTS_BYTES_MAX:
                return keys[: max(place, 1)]
        return keys

    async def _contents(self, seqs: list[int]) -> dict[int, Content]:
        query = "SELECT seq, properties, body FROM contents WHERE seq = ANY($1::bigint[])"
        rows = await self._tx.rows(query, seqs) if seqs else []
        return {seq: Content(properties=bytes(properties), body=bytes(body)) for seq, properties, body in rows}

    async def _candidates(self, after: Key | None, want: int) -> Bite:
        """Letters that answer everything but the checks."""
        if self.is_searched:
            return await self._searched(after, want)
        statement = Statement(self._tx.dialect, now_ms=self._now_ms)
        text = self._ordered(statement, after, want)
        found: list[Key] = [(dead_at_ms, seq) for dead_at_ms, seq in await self._tx.rows(text, *statement.arguments)]
        last = found[-1] if found else after
        return Bite(found=found, last=last, is_end=len(found) < want, looked_at=len(found))

    def _ordered(self, statement: Statement, after: Key | None, want: int) -> str:
        """Keys in the order of death: the pieces that the driver names, merged."""
        rest = statement.all_of(self._driver.rest, self._question.without)
        if self._question.words:
            rest.append(statement.has_words(self._question.words))
        if after is not None:
            places = f"{statement.bind(after[0])}, {statement.bind(after[1])}"
            rest.append(f"(l.dead_at_ms, l.seq) {self._before} ({places})")
        limit = statement.bind(want)
        plus = "+" if self._driver.is_gathered else ""
        pieces = []
        for piece in self._driver.pieces(statement):
            where = " AND ".join((*piece, *rest)) or "TRUE"
            order = f"ORDER BY {plus}l.dead_at_ms{self._down}, {plus}l.seq{self._down}"
            pieces.append(sql("SELECT l.dead_at_ms, l.seq FROM letters AS l WHERE", where, order, "LIMIT", limit))
        if len(pieces) == 1:
            return pieces[0]
        merged = " UNION ".join(sql("SELECT * FROM (", piece, ") AS piece") for piece in pieces)
        return sql(merged, f"ORDER BY 1{self._down}, 2{self._down} LIMIT", limit)

    async def _searched(self, after: Key | None, want: int) -> Bite:
        """Keys in the order of the full-text index; conditions are asked of what it gives."""
        statement = Statement(self._tx.dialect, now_ms=self._now_ms)
        conditions = [*self._driver.all_conditions(statement), *statement.all_of((), self._question.without)]
        size = max(want, 2_000) if conditions else want
        seqs, edge, is_end = await self._words_after(after, size)
        found, last = seqs, edge if after is None or edge is not None else after[0]
        if conditions and seqs:
            place = statement.bind(seqs)
            query = sql("SELECT l.seq FROM letters AS l WHERE", *(f"{each} AND" for each in conditions))
            query = sql(query, f"l.seq = ANY({place}::bigint[]) ORDER BY l.seq{self._down}")
            found = [seq for (seq,) in await self._tx.rows(query, *statement.arguments)]
        if len(found) > want:
            found, is_end = found[:want], False
            last = found[-1]
        last_key = None if last is None else (last,)
        # Looking for a word costs something even where it is not.
        looked_at = max(len(seqs), NEAR // 10)
        return Bite(found=[(seq,) for seq in found], last=last_key, is_end=is_end, looked_at=looked_at)

    async def _words_after(self, after: Key | None, size: int) -> tuple[list[int], int | None, bool]:
        """At most `size` letters that have the words, the last one looked at, and whether it was the last there is."""
        statement = Statement(self._tx.dialect, now_ms=self._now_ms)
        asked = statement.search(self._question.words)
        beyond = "" if after is None else f"{self._before} {statement.bind(after[0])}"
        limit = statement.bind(size)
        if self._tx.dialect.kind == "sqlite":
            key = f"AND rowid {beyond}" if beyond else ""
            queries = ["SELECT rowid FROM letter_words WHERE letter_words MATCH", asked, key, "ORDER BY rowid"]
            rows = await self._tx.rows(sql(*queries, f"{self._down} LIMIT", limit), *statement.arguments)
            seqs = [seq for (seq,) in rows]
            return seqs, seqs[-1] if seqs else None, len(seqs) < size
        # PostgreSQL's index has no order. A word that many letters have is in the next ones that come; one that few
        # have is quickly fetched as a whole. The server can't tell which it is, so the cheap way is tried first.
        order = f"ORDER BY w.seq{self._down} LIMIT"
        where = f"w.seq {beyond}" if beyond else "TRUE"
        width = max(NEAR, 2 * size)
        near = sql("(SELECT w.seq, w.words FROM letter_words AS w WHERE", where, order, f"{width})")
        edge = "min" if self._down else "max"
        looks = f"SELECT {edge}(w.seq), count(*), array_agg(w.seq ORDER BY w.seq{self._down}) FILTER (WHERE w.words @@"
        row = await self._tx.row(sql(looks, asked, ") FROM", near, "AS w"), *statement.arguments[:-1])
        last, count, near_seqs = row if row is not None else (None, 0, None)
        seqs = list(near_seqs or ())
        if len(seqs) > size:
            return seqs[:size], seqs[size - 1], False
        if count < width or len(seqs) >= width // 100:
            return seqs, last, count < width
        hits = sql("SELECT w.seq FROM letter_words AS w WHERE w.words @@", asked, "AND", where)
        rows = await self._tx.rows(
            sql("WITH w AS MATERIALIZED (", hits, ") SELECT w.seq FROM w", order, limit), *statement.arguments
        )
        seqs = [seq for (seq,) in rows]
        return seqs, seqs[-1] if seqs else None, len(seqs) < size
