"""Which index leads to the letters that a filter asks for, and in which pieces.

The field that leaves the fewest letters leads, as the counts beside the letters say; the other conditions are asked of
what its index gives. Names with `*` are written out first where the counts know all names there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from redrive.records import NameTerm
from redrive.stores.database import ReadTransaction
from redrive.stores.search.filter_sql import COLUMNS, ColumnTerm, FilterStatement, sql, statuses_left

PIECES_MAX = 60
"""More pieces of an index are not merged, unless the counts say which of them have letters."""
COUNTED_PIECES_MAX = 400
"""So many of those are: the names of a token for some queues are many and mostly quiet."""
NAMES_MAX = 200
RARE = 20
"""Where one letter of so many answers, looking through all of them is quicker than merging many pieces."""
GATHERED_MAX = 5_000
"""So many letters are sorted rather than found in order."""

_COUNTED = {"queue": ("queue", "dlq"), "dlq": ("dlq",), "topic": ("topic",), "service": ("service",), "type": ("type",)}
_WITH_STATUS = {"queue", "dlq"}
"""Their indexes go on with the status."""
_LOOKED_UP = {"id", "message_id", "correlation_id"}
_EXACT_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChoice:
    """`letters`: at most so many, None when nobody counted. `rest`: conditions that it does not answer itself."""

    term: NameTerm | None = None
    groups: tuple[int, ...] | None = None
    drives_by_groups: bool = False
    statuses: tuple[str, ...] = ()
    letters: int | None = None
    rest: tuple[ColumnTerm, ...] = ()
    counted: frozenset[tuple[str, str, str]] | None = None
    """The pieces (column, value, status) that have letters; None when nobody asked."""

    @property
    def is_nothing(self) -> bool:
        """No letter can answer."""
        has_names = self.term is None or bool(self.term.values)
        return self.groups == () or not has_names or not self.statuses or self.counted == frozenset()

    @property
    def has_left(self) -> bool:
        """There are groups that do not drive."""
        return self.groups is not None and not self.drives_by_groups

    @property
    def is_gathered(self) -> bool:
        """Its letters are few and come in no order."""
        if self.drives_by_groups:
            is_few = self.letters is not None and self.letters <= GATHERED_MAX
            return self.groups is not None and len(self.groups) > PIECES_MAX and is_few
        return self.term is not None and self.term.field in _LOOKED_UP

    def pieces(self, statement: FilterStatement) -> Iterator[tuple[str, ...]]:
        """The conditions of each piece of the index."""
        if self.drives_by_groups and self.groups is not None:
            if self.is_gathered:
                yield (f"l.group_seq = ANY({statement.bind(list(self.groups))}::bigint[])",)
            else:
                yield from ((f"l.group_seq = {statement.bind(seq)}",) for seq in self.groups)
        elif self.term is None:
            yield ()
        elif self.is_gathered:
            column = COLUMNS[self.term.field][0]
            yield (f"l.{column} = ANY({statement.bind(list(self.term.values))}::text[])",)
        else:
            for column in COLUMNS[self.term.field]:
                for value in self.term.values:
                    statuses = [each for each in self.statuses if self._has_letters(column, value, each)]
                    if column in _WITH_STATUS and not statuses:
                        continue
                    is_value = f"l.{column} = {statement.bind(value)}"
                    if column in _WITH_STATUS:
                        yield from ((is_value, f"l.status = {statement.bind(each)}") for each in statuses)
                    else:
                        yield (is_value,)

    def leaves(self, statement: FilterStatement) -> tuple[str, ...]:
        """The condition on groups that do not drive, to be asked of each letter."""
        return self._groups_condition(statement) if self.has_left else ()

    def all_conditions(self, statement: FilterStatement) -> tuple[str, ...]:
        """Everything it stands for and leaves, as conditions."""
        groups = () if self.groups is None else self._groups_condition(statement)
        terms = (*self.rest, *((self.term,) if self.term is not None else ()))
        if self.term is not None and self.term.field in _WITH_STATUS and len(self.statuses) < 5:
            terms = (*terms, NameTerm(field="status", values=self.statuses))
        return (*groups, *statement.all_of(terms))

    def _has_letters(self, column: str, value: str, status: str) -> bool:
        return self.counted is None or (column, value, status) in self.counted

    def _groups_condition(self, statement: FilterStatement) -> tuple[str, ...]:
        # `+`: whatever drives, it is not this.
        return (f"+l.group_seq = ANY({statement.bind(list(self.groups or ()))}::bigint[])",)


async def find_groups(tx: ReadTransaction, terms: Iterable[NameTerm]) -> list[tuple[int, int]]:
    """The groups that answer all terms, with how many letters each has."""
    statement = FilterStatement(tx.dialect, now_ms=0)
    where = " AND ".join(statement.on_group(term) for term in terms)
    rows = await tx.rows(sql("SELECT g.seq, g.letters FROM groups AS g WHERE", where), *statement.arguments)
    return [(seq, letters) for seq, letters in rows if letters]


async def expand_names(tx: ReadTransaction, conditions: Iterable[ColumnTerm]) -> tuple[ColumnTerm, ...]:
    """The conditions with names that hold `*`, or are many, written out as those that have letters, where they are
    few. The database compares them: so many names are no work for the event loop."""
    expanded: list[ColumnTerm] = []
    for term in conditions:
        is_counted = isinstance(term, NameTerm) and not term.negated and term.field in _COUNTED
        if isinstance(term, NameTerm) and is_counted and (_is_open(term) or len(term.values) > _EXACT_MAX):
            statement = FilterStatement(tx.dialect, now_ms=0)
            counted = f"dimension = ANY({statement.bind(list(_COUNTED[term.field]))}::text[]) AND"
            query = sql("SELECT DISTINCT key FROM tallies WHERE", counted, statement.on_tally(term))
            rows = await tx.rows(sql(query, f"LIMIT {NAMES_MAX + 1}"), *statement.arguments)
            if len(rows) <= NAMES_MAX:
                term = NameTerm(field=term.field, values=tuple(sorted(key for (key,) in rows)))
        expanded.append(term)
    return tuple(expanded)


async def choose_index(
    tx: ReadTransaction, conditions: Sequence[ColumnTerm], groups: list[tuple[int, int]] | None, *, measured: bool
) -> IndexChoice:
    """The field with the fewest letters. `measured`: how many they are is asked even where there is no choice."""
    statuses = statuses_left(conditions)
    seqs = None if groups is None else tuple(seq for seq, _ in groups)
    best: IndexChoice | None = None
    if groups is not None and seqs is not None:
        letters = sum(each for _, each in groups)
        # With a condition on another column PostgreSQL would leave the index of groups for that one's in each piece.
        is_alone = all(_is_of_status(each) for each in conditions)
        is_merged = len(seqs) <= PIECES_MAX or (
            is_alone and GATHERED_MAX < letters <= await _total(tx) // RARE and len(seqs) <= COUNTED_PIECES_MAX
        )
        if is_merged or letters <= GATHERED_MAX:
            best = IndexChoice(
                groups=seqs, drives_by_groups=True, statuses=statuses, letters=letters, rest=tuple(conditions)
            )
    drivers = [term for term in conditions if isinstance(term, NameTerm) and _may_drive(term, statuses)]
    is_choice = len(drivers) + (best is not None) > 1
    for term in drivers:
        counted = await _counted(tx, term, statuses) if _pieces(term, statuses) > PIECES_MAX else None
        if counted is not None and counted.is_too_many:
            continue
        size = None if counted is None else counted.letters
        if counted is None and (is_choice or measured):
            size = await _letters_of(tx, term, statuses)
        if best is None or (size is not None and (best.letters is None or size < best.letters)):
            best = IndexChoice(
                term=term,
                groups=seqs,
                statuses=statuses,
                letters=size,
                rest=tuple(each for each in conditions if not _is_answered(each, term)),
                counted=None if counted is None else counted.pieces,
            )
    return best or IndexChoice(groups=seqs, statuses=statuses, rest=tuple(conditions))


def _may_drive(term: NameTerm, statuses: tuple[str, ...]) -> bool:
    if term.negated or _is_open(term):
        return False
    if term.field in _LOOKED_UP:
        return True
    if term.field == "status":
        return len(term.values) <= PIECES_MAX
    if term.field not in _COUNTED:
        return False
    return _pieces(term, statuses) <= PIECES_MAX or (term.field in _WITH_STATUS and len(term.values) <= NAMES_MAX)


def _pieces(term: NameTerm, statuses: tuple[str, ...]) -> int:
    """Of how many pieces of an index a term's letters are, at most."""
    if term.field in _LOOKED_UP or term.field == "status":
        return 1
    columns = COLUMNS[term.field]
    return len(term.values) * sum(len(statuses) if column in _WITH_STATUS else 1 for column in columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The pieces of a term that have letters, and how many letters those are."""

    pieces: frozenset[tuple[str, str, str]]
    letters: int
    is_too_many: bool


async def _counted(tx: ReadTransaction, term: NameTerm, statuses: tuple[str, ...]) -> _Counted:
    query = """
    SELECT dimension, key, status, n FROM tallies
    WHERE dimension = ANY($1::text[]) AND key = ANY($2::text[]) AND status = ANY($3::text[])
    """
    rows = await tx.rows(query, list(_COUNTED[term.field]), list(term.values), list(statuses))
    letters = sum(row[3] for row in rows)
    is_many = len(rows) > COUNTED_PIECES_MAX or letters * RARE > await _total(tx)
    pieces = frozenset((dimension, key, status) for dimension, key, status, _ in rows)
    return _Counted(pieces=pieces, letters=letters, is_too_many=is_many)


async def _total(tx: ReadTransaction) -> int:
    return int(await tx.value("SELECT coalesce(sum(n), 0) FROM tallies WHERE dimension = 'all'"))


def _is_open(term: NameTerm) -> bool:
    return any("*" in value for value in term.values)


def _is_answered(condition: ColumnTerm, driver: NameTerm) -> bool:
    """The driver's pieces answer this condition."""
    if condition is driver:
        return True
    return driver.field in _WITH_STATUS and _is_of_status(condition)


def _is_of_status(condition: ColumnTerm) -> bool:
    return isinstance(condition, NameTerm) and condition.field == "status"


async def _letters_of(tx: ReadTransaction, term: NameTerm, statuses: tuple[str, ...]) -> int:
    """At most so many letters answer the term."""
    if term.field in _LOOKED_UP:
        return len(term.values)
    if term.field == "status":
        query = "SELECT coalesce(sum(n), 0) FROM tallies WHERE dimension = 'all' AND status = ANY($1::text[])"
        return int(await tx.value(query, list(term.values)))
    query = """
    SELECT coalesce(sum(n), 0) FROM tallies
    WHERE dimension = ANY($1::text[]) AND key = ANY($2::text[]) AND status = ANY($3::text[])
    """
    return int(await tx.value(query, list(_COUNTED[term.field]), list(term.values), list(statuses)))
