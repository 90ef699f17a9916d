"""Walks through the dead letters that answer a filter, in order, a bounded step at a time.

There are three ways, and a walk keeps to one:

    merged     one ordered piece of an index for every value of a field (and status), merged: by (when it died, number)
    gathered   the few letters that an id or a small group leads to, sorted: by the same
    searched   what the full-text index gives: by number, which is the order it has them in

So a page costs what it shows, however deep it is and however many letters there are. Terms that no index answers are
checked letter by letter: a step reads a bounded window, sized by the time of the last one, and says how many letters
it checked. With a time limit, a walk does not wait for a slow full-text query (a common prefix, or a phrase of common
words); it checks the words letter by letter.
"""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from redrive.records import (
    VALUES_BYTES_MAX,
    BodyTerm,
    Filter,
    MessageContent,
    NameTerm,
    Status,
    TimeTerm,
    WordsTerm,
    ends_open,
    phrases_of,
)
from redrive.stores.database import ReadTransaction
from redrive.stores.errors import FilterTooExpensive
from redrive.stores.schema.dialect import Dialect
from redrive.stores.search.budgets import SELECT_BUDGET, SearchBudget
from redrive.stores.search.filter_sql import ColumnTerm, FilterParts, FilterStatement, LikelyWords, split_filter, sql
from redrive.stores.search.index_choice import IndexChoice, choose_index, expand_names, find_groups
from redrive.stores.search.offload import check_contents_offloaded
from redrive.wire import BEFORE_BODY_BYTES_MAX, may_be_envelope

Key = tuple[int, ...]
"""The position of a letter in a walk: (when it died, number), or (number,) in a searched one."""

SMALL = 1_000
"""Up to so many letters are looked at one by one rather than found by their words."""
CONTENTS_MAX = 500
"""How many contents are read together; half as many by a walk with a time limit."""
CONTENT_LOOKS = 2
"""Reading a content costs as much as looking at so many letters."""
CONTENTS_BYTES_MAX = 4 << 20
"""The size of contents that are read together."""
LOOK_COST = 10_000
"""Checking so many bytes of contents costs one look; see `records.Meter`."""
STEP_COST_MAX = 5_000 * LOOK_COST
LONG = 50_000
"""Fewer letters are looked through without windows. PostgreSQL also must not plan a statement with windows while the
table is empty: it would keep to that plan, which reads the whole table, for minutes."""
WINDOWS = (2_000, 25_000)
"""How many letters one step looks through for what no index answers: the first step in all pieces together, and any
step in each piece at most."""
WINDOW_S = 0.02
"""How long a step should take; the next window is chosen by how long this one took."""
WINDOW_GROWTH_MAX = 4
WINDOW_LOOKS = 5
"""The database looks at so many letters in the time that this process needs for one."""
NEAR = 1_000
"""Letters that PostgreSQL looks through for a word before it asks its index for all that have it."""
SHORT = 3
"""Characters. Very many words may begin with a shorter prefix."""
INDEX_S = 0.03
"""How long a walk with a time limit waits for the full-text index."""

_CONTENTS_OF = sql(
    f"SELECT seq, properties, CASE WHEN length(body) <= {VALUES_BYTES_MAX} THEN body END",
    "FROM contents WHERE seq = ANY($1::bigint[])",
)
_PROPERTIES_OF = "SELECT seq, properties, NULL FROM contents WHERE seq = ANY($1::bigint[])"
_BEGINNINGS_OF = "SELECT seq, substr(body, 1, $2) FROM contents WHERE seq = ANY($1::bigint[])"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkStep:
    """One step of a walk: the keys of letters that answer, the last letter looked at, how many were looked at."""

    found: list[Key]
    last: Key | None
    is_end: bool
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCondition:
    """A filter as one condition over `letters AS l`; where it is not exact, contents must be checked too."""

    sql: str
    args: tuple[object, ...]
    is_exact: bool


def filter_condition(filter: Filter, *, dialect: Dialect, now_ms: int, first: int = 1) -> FilterCondition:
    """The whole filter in SQL, with arguments from `first` on."""
    parts = split_filter(filter)
    statement = FilterStatement(dialect, now_ms=now_ms, first=first, chooses=True)
    conditions = statement.all_of((*parts.groups, *parts.conditions))
    for each in parts.without:
        if dialect.kind == "sqlite":
            # All that have them, once: letter by letter it would take minutes.
            asked = statement.search([each])
            conditions.append(sql("l.seq NOT IN (SELECT rowid FROM letter_words WHERE letter_words MATCH", asked, ")"))
        else:
            conditions.append(statement.lacks_words(each))
    if parts.words:
        asked = statement.search(parts.words)
        if dialect.kind == "sqlite":
            conditions.append(sql("l.seq IN (SELECT rowid FROM letter_words WHERE letter_words MATCH", asked, ")"))
        else:
            conditions.append(sql("l.seq IN (SELECT w.seq FROM letter_words AS w WHERE w.words @@", asked, ")"))
    text = " AND ".join(conditions) if conditions else "TRUE"
    return FilterCondition(sql=text, args=tuple(statement.arguments), is_exact=not parts.checks)


async def find_matching(
    tx: ReadTransaction,
    filter: Filter,
    *,
    statuses: Sequence[Status],
    limit: int | None,
    now_ms: int,
    budget: SearchBudget = SELECT_BUDGET,
) -> list[int]:
    """The numbers of the letters that answer the filter and have one of the statuses, the longest dead first. Raises
    FilterTooExpensive."""
    names = NameTerm(field="status", values=tuple(status.value for status in statuses))
    walk = await start_walk(tx, Filter((*filter.terms, names)), now_ms=now_ms, newest_first=False)
    keys: list[Key] = []
    async for some in walk.steps(5_000, budget):
        keys += some
        if limit is not None and not walk.is_searched and len(keys) >= limit:
            break
    seqs = [key[-1] for key in keys]
    if walk.is_searched:
        ordered = "SELECT l.seq FROM letters AS l WHERE l.seq = ANY($1::bigint[]) ORDER BY l.dead_at_ms, l.seq"
        seqs = [seq for (seq,) in await tx.rows(ordered, seqs)]
    return seqs if limit is None else seqs[:limit]


async def start_walk(
    tx: ReadTransaction,
    filter: Filter,
    *,
    now_ms: int,
    newest_first: bool,
    is_searched: bool | None = None,
    seconds: float | None = None,
) -> "Walk":
    """A walk through what answers the filter. `is_searched`: how the walk that it goes on with was, None for a new one.
    `seconds`: how long it may take; only with autocommit."""
    until_s = None if seconds is None else time.monotonic() + seconds
    parts = split_filter(filter)
    parts = replace(parts, conditions=await expand_names(tx, parts.conditions))
    groups = await find_groups(tx, parts.groups) if parts.groups else None
    index = await choose_index(tx, parts.conditions, groups, measured=bool(parts.words))
    if not parts.words:
        is_searched = False
    elif is_searched is None:
        is_searched = index.letters is None or index.letters > SMALL
    is_long = not is_searched and await _is_long(tx, parts, index)
    plan = _WalkPlan(parts=parts, index=index, is_searched=is_searched, is_long=is_long)
    return Walk(tx, plan, now_ms=now_ms, newest_first=newest_first, until_s=until_s)


async def _is_long(tx: ReadTransaction, parts: FilterParts, index: IndexChoice) -> bool:
    """Whether it asks many letters for something that no index answers."""
    has_rest = parts.words or parts.without or any(not _is_range(one) for one in index.rest)
    if index.is_gathered or not (has_rest or index.has_left):
        return False
    if index.letters is not None:
        return index.letters > LONG
    return bool(await tx.value("SELECT coalesce(sum(n), 0) FROM tallies WHERE dimension = 'all'") > LONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WalkPlan:
    """How a walk goes: which index leads it, whether it is searched, and whether it looks at many letters."""

    parts: FilterParts
    index: IndexChoice
    is_searched: bool
    is_long: bool


class Walk:
    """See the module. Made by `start_walk`; lives as long as its transaction."""

    def __init__(
        self,
        tx: ReadTransaction,
        plan: _WalkPlan,
        *,
        now_ms: int,
        newest_first: bool,
        until_s: float | None,
    ) -> None:
        self.is_searched = plan.is_searched
        self._tx = tx
        self._parts = plan.parts
        self._index = plan.index
        self._now_ms = now_ms
        self._before, self._down = ("<", " DESC") if newest_first else (">", "")
        self._newest_first = newest_first
        self._is_long = plan.is_long
        self._window: int | None = None
        """Letters of the next window."""
        self._until_s = until_s
        self._is_index_slow = False
        self.bytes_read = 0
        """Of contents."""

    @property
    def is_late(self) -> bool:
        """Its time is over."""
        return self._until_s is not None and time.monotonic() >= self._until_s

    async def steps(self, size: int, budget: SearchBudget) -> AsyncIterator[list[Key]]:
        """Everything, in pieces of about `size`. Raises FilterTooExpensive."""
        last: Key | None = None
        while True:
            step = await self.step(last, size)
            if self.bytes_read > budget.content_bytes:
                raise FilterTooExpensive(f"it reads more than {budget.content_bytes:,} bytes of contents")
            if step.found:
                yield step.found
            if step.is_end:
                return
            last = step.last

    async def step(self, after: Key | None, want: int) -> WalkStep:
        """What comes after a key: at most `want` letters that answer. Fewer do not mean the end: see `is_end`."""
        if self._index.is_nothing:
            return WalkStep(found=[], last=after, is_end=True, looked_at=0)
        if self._parts.checks:
            return await self._checked(after, want)
        return await self._candidates(after, want)

    async def _checked(self, after: Key | None, want: int) -> WalkStep:
        """Candidates whose contents were checked."""
        size = max(want, CONTENTS_MAX) if self._until_s is None else max(CONTENTS_MAX // 2, 1)
        step = await self._candidates(after, size)
        held = await self._held(step.found)
        contents = await self._contents([key[-1] for key in held])
        found: list[Key] = []
        place = cost = 0
        while place < len(held) and cost < STEP_COST_MAX and len(found) < want and not (place and self.is_late):
            some = [contents.get(key[-1]) for key in held[place:]]
            answers, spent = await check_contents_offloaded(some, self._parts.checks)
            cost += spent
            for passed in answers:
                if passed and len(found) < want:
                    found.append(held[place])
                place += 1
                if len(found) == want:
                    break
        looked_at = CONTENT_LOOKS * place + cost // LOOK_COST
        if place < len(step.found):
            return WalkStep(found=found, last=held[place - 1], is_end=False, looked_at=looked_at)
        return WalkStep(found=found, last=step.last, is_end=step.is_end, looked_at=max(step.looked_at, looked_at))

    async def _held(self, keys: list[Key]) -> list[Key]:
        """The first of them, as many as have contents that fit into memory together."""
        query = "SELECT seq, size_bytes FROM letters WHERE seq = ANY($1::bigint[])"
        sizes = {row[0]: row[1] for row in await self._tx.rows(query, [key[-1] for key in keys])}
        total = 0
        for place, key in enumerate(keys):
            total += sizes.get(key[-1], 0)
            if total > CONTENTS_BYTES_MAX:
                return keys[: max(place, 1)]
        return keys

    async def _contents(self, seqs: list[int]) -> dict[int, MessageContent]:
        # A body that is too large to have values is read as empty, which is quicker; and headers need no body.
        is_read = any(isinstance(check, BodyTerm) for check in self._parts.checks)
        query = _CONTENTS_OF if is_read else _PROPERTIES_OF
        rows = await self._tx.rows(query, seqs) if seqs else []
        contents = {
            seq: MessageContent(properties=bytes(properties), body=bytes(body or b"")) for seq, properties, body in rows
        }
        contents |= await self._envelopes(contents, body_bytes=VALUES_BYTES_MAX + 1 if is_read else 0)
        self.bytes_read += sum(len(each.properties) + len(each.body) for each in contents.values())
        return contents

    async def _envelopes(self, contents: dict[int, MessageContent], *, body_bytes: int) -> dict[int, MessageContent]:
        """Those that may be envelopes, with the beginning of their bodies: it holds the message's headers, and so much
        of its own body."""
        seqs = [seq for seq, each in contents.items() if may_be_envelope(each.properties)]
        rows = await self._tx.rows(_BEGINNINGS_OF, seqs, BEFORE_BODY_BYTES_MAX + body_bytes) if seqs else []
        return {seq: MessageContent(properties=contents[seq].properties, body=bytes(body)) for seq, body in rows}

    async def _candidates(self, after: Key | None, want: int) -> WalkStep:
        """Letters that answer everything but the checks."""
        if self.is_searched:
            return await self._searched(after, want)
        statement = FilterStatement(self._tx.dialect, now_ms=self._now_ms)
        rest = statement.all_of((each for each in self._index.rest if not _is_range(each)), self._parts.without)
        rest += self._index.leaves(statement)
        if self._parts.words:
            rest.append(statement.has_words(self._parts.words))
        began_s, window = time.monotonic(), self._next_window() if self._is_long else None
        limit = statement.bind(want)
        pieces = self._merged(self._pieces(statement, after, limit, rest, window), limit)
        if window is None:
            rows = await self._tx.rows(pieces, *statement.arguments)
            found: list[Key] = [(dead_at_ms, seq) for dead_at_ms, seq in rows]
            last = found[-1] if found else after
            return WalkStep(found=found, last=last, is_end=len(found) < want, looked_at=len(found))
        # In one statement: letters that come or go meanwhile would move the edge beyond what was looked through.
        edges = self._merged(self._edges(statement, after, window), "1")
        query = sql("SELECT k.*, 0 FROM (", pieces, ") AS k UNION ALL SELECT e.*, 1 FROM (", edges, ") AS e")
        rows = await self._tx.rows(query, *statement.arguments)
        found = sorted(((row[0], row[1]) for row in rows if not row[2]), reverse=self._newest_first)
        edge = next(((row[0], row[1]) for row in rows if row[2]), None)
        self._fit_window(window, time.monotonic() - began_s)
        return self._within(found, edge, after, want, window)

    def _next_window(self) -> int:
        if self._window is None:
            pieces = sum(1 for _ in self._index.pieces(FilterStatement(self._tx.dialect, now_ms=self._now_ms)))
            self._window = _power_of_two(WINDOWS[0] / max(pieces, 1), 1, WINDOWS[0])
        return self._window

    def _fit_window(self, window: int, took_s: float) -> None:
        """Chooses the next window; sizes are few, since each is a statement of its own that must be planned."""
        growth = min(WINDOW_S / max(took_s, 0.000_1), WINDOW_GROWTH_MAX)
        self._window = _power_of_two(window * growth, 1, WINDOWS[1])

    def _within(self, found: list[Key], edge: Key | None, after: Key | None, want: int, window: int) -> WalkStep:
        """What was found up to the edge, where the first piece ended its window. Without an edge all was looked
        through."""
        if edge is None:
            last = found[-1] if found else after
            return WalkStep(found=found, last=last, is_end=len(found) < want, looked_at=len(found))
        found = [key for key in found if (key >= edge if self._newest_first else key <= edge)]
        if len(found) == want:
            return WalkStep(found=found, last=found[-1], is_end=False, looked_at=len(found))
        looked_at = max(len(found), window // WINDOW_LOOKS)
        return WalkStep(found=found, last=edge, is_end=False, looked_at=looked_at)

    def _pieces(
        self, statement: FilterStatement, after: Key | None, limit: str, rest: list[str], window: int | None
    ) -> list[str]:
        """Keys in the order of death, from each piece of the index. With a window only so many letters are asked for
        the rest."""
        beyond = self._range(statement, after)
        plus = "+" if self._index.is_gathered else ""
        order = f"ORDER BY {plus}l.dead_at_ms{self._down}, {plus}l.seq{self._down}"
        pieces = []
        for piece in self._index.pieces(statement):
            if window is None:
                where = " AND ".join((*piece, *rest, *beyond)) or "TRUE"
                pieces.append(sql("SELECT l.dead_at_ms, l.seq FROM letters AS l WHERE", where, order, "LIMIT", limit))
                continue
            near = " AND ".join((*piece, *beyond)) or "TRUE"
            near = sql("SELECT l.* FROM letters AS l WHERE", near, order, f"LIMIT {window}")
            where = " AND ".join(rest)
            found = sql("SELECT l.dead_at_ms, l.seq FROM (", near, ") AS l WHERE", where, order, "LIMIT", limit)
            pieces.append(found)
        return pieces

    def _merged(self, pieces: list[str], limit: str) -> str:
        if len(pieces) == 1:
            return pieces[0]
        merged = " UNION ".join(sql("SELECT * FROM (", piece, ") AS piece") for piece in pieces)
        return sql(merged, f"ORDER BY 1{self._down}, 2{self._down} LIMIT", limit)

    def _range(self, statement: FilterStatement, after: Key | None) -> tuple[str, ...]:
        """Where in its index each piece begins and ends."""
        asked = statement.all_of(each for each in self._index.rest if _is_range(each))
        if after is None:
            return tuple(asked)
        return (
            *asked,
            f"(l.dead_at_ms, l.seq) {self._before} ({statement.bind(after[0])}, {statement.bind(after[1])})",
        )

    def _edges(self, statement: FilterStatement, after: Key | None, window: int) -> list[str]:
        """The last key of each piece's window; none of one that ends before."""
        beyond = self._range(statement, after)
        order = f"ORDER BY l.dead_at_ms{self._down}, l.seq{self._down} LIMIT 1 OFFSET {window - 1}"
        return [
            sql("SELECT l.dead_at_ms, l.seq FROM letters AS l WHERE", " AND ".join((*piece, *beyond)) or "TRUE", order)
            for piece in self._index.pieces(statement)
        ]

    async def _searched(self, after: Key | None, want: int) -> WalkStep:
        """Keys in the order of the full-text index; conditions are asked of what it gives."""
        statement = FilterStatement(self._tx.dialect, now_ms=self._now_ms)
        conditions = [*self._index.all_conditions(statement), *statement.all_of((), self._parts.without)]
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
        return WalkStep(found=[(seq,) for seq in found], last=last_key, is_end=is_end, looked_at=looked_at)

    async def _words_after(self, after: Key | None, size: int) -> tuple[list[int], int | None, bool]:
        """At most `size` letters that have the words, the last one looked at, and whether it was the last there is."""
        statement = FilterStatement(self._tx.dialect, now_ms=self._now_ms)
        asked = statement.search(self._parts.words)
        beyond = "" if after is None else f"{self._before} {statement.bind(after[0])}"
        limit = statement.bind(size)
        if self._tx.dialect.kind == "sqlite":
            key = f"AND rowid {beyond}" if beyond else ""
            queries = ["SELECT rowid FROM letter_words WHERE letter_words MATCH", asked, key, "ORDER BY rowid"]
            found = await self._from_index(sql(*queries, f"{self._down} LIMIT", limit), *statement.arguments)
            if found is None:
                return await self._kept_after(after, size)
            return found, found[-1] if found else None, len(found) < size
        # PostgreSQL's index has no order. A word that many letters have is in the next ones that come; one that few
        # have is quickly fetched as a whole. The server can't tell which it is, so the cheap way is tried first.
        order = f"ORDER BY w.seq{self._down} LIMIT"
        where = f"w.seq {beyond}" if beyond else "TRUE"
        began_s, width = time.monotonic(), max(NEAR, 2 * size, self._window or 0)
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
        took_s = time.monotonic() - began_s
        hits = sql("SELECT w.seq FROM letter_words AS w WHERE", self._by_index(statement, asked), "AND", where)
        found = await self._from_index(
            sql("WITH w AS MATERIALIZED (", hits, ") SELECT w.seq FROM w", order, limit), *statement.arguments
        )
        if found is None:
            self._fit_window(width, took_s)
            return seqs, last, False
        return found, found[-1] if found else None, len(found) < size

    def _by_index(self, statement: FilterStatement, asked: str) -> str:
        """The words as a condition for PostgreSQL's index. It collects all words with a beginning before it looks at
        anything else, and can't be stopped meanwhile; so short beginnings are asked of what the other words lead to."""
        others = [each for each in self._parts.words if not _begins_many(each)]
        if not others or len(others) == len(self._parts.words):
            return f"w.words @@ {asked}"
        return f"w.words @@ {statement.search(others)} AND coalesce(w.words @@ {asked}, FALSE)"

    async def _from_index(self, query: str, *arguments: object) -> list[int] | None:
        """What a parts to the full-text index gives; None if it takes too long."""
        if self._until_s is None:
            return [seq for (seq,) in await self._tx.rows(query, *arguments)]
        rows = None if self._is_index_slow else await self._tx.rows_within(INDEX_S, query, *arguments)
        self._is_index_slow = rows is None
        return None if rows is None else [seq for (seq,) in rows]

    async def _kept_after(self, after: Key | None, size: int) -> tuple[list[int], int | None, bool]:
        """The same as `_words_after`, from the words that SQLite keeps beside its index."""
        began_s, window = time.monotonic(), self._window or NEAR
        statement = FilterStatement(self._tx.dialect, now_ms=self._now_ms)
        # Letters that only likely have the words are checked later anyway.
        words = [statement.keeps_words(each) for each in self._parts.words if isinstance(each, WordsTerm)]
        where = "" if after is None else f"WHERE k.seq {self._before} {statement.bind(after[0])}"
        near = sql(
            "(SELECT k.seq, k.words FROM search_texts AS k", where, f"ORDER BY k.seq{self._down} LIMIT {window})"
        )
        query = sql("SELECT t.seq,", " AND ".join(words) or "TRUE", "FROM", near, "AS t")
        rows = await self._tx.rows(query, *statement.arguments)
        self._fit_window(window, time.monotonic() - began_s)
        seqs = [seq for seq, has in rows if has]
        if len(seqs) > size:
            return seqs[:size], seqs[size - 1], False
        return seqs, rows[-1][0] if rows else None, len(rows) < window


def _begins_many(asked: WordsTerm | LikelyWords) -> bool:
    return isinstance(asked, WordsTerm) and ends_open(asked) and len(phrases_of(asked)[-1][-1]) < SHORT


def _power_of_two(number: float, least: int, most: int) -> int:
    """The largest power of two up to the number, within bounds."""
    return min(max(1 << max(int(number), 1).bit_length() - 1, least), most)


def _is_range(filter_condition: ColumnTerm) -> bool:
    """Every index goes on with the time of death, so it answers this too."""
    return isinstance(filter_condition, TimeTerm) and filter_condition.field == "dead" and not filter_condition.negated
