"""A filter split by what answers each term, and its terms in SQL. Pure: nothing here asks a database.

    groups       the error's type and the group: a few rows of `groups`, whose letters have an index
    conditions   columns of a row: names, moments, numbers, marks, the error's text
    words        the full-text index
    checks       a value in the body or a header: candidates by their words, then `content_checks` reads the content

`records.matches` says what a term means; this finds the same letters faster.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from redrive.records import (
    BodyTerm,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    NameTerm,
    NumberTerm,
    Status,
    TimeTerm,
    WordsTerm,
    ends_open,
    fold,
    matches_glob,
    phrases_of,
    storable,
)
from redrive.stores.schema.dialect import Dialect
from redrive.stores.search.content_checks import Check, words_wanted
from redrive.stores.search.full_text import CUT, known_to_sqlite

COLUMNS: dict[str, tuple[str, ...]] = {
    "id": ("id",),
    "vhost": ("vhost",),
    "queue": ("queue", "dlq"),
    "dlq": ("dlq",),
    "exchange": ("exchange",),
    "topic": ("routing_key",),
    "service": ("service",),
    "type": ("type",),
    "reason": ("reason",),
    "status": ("status",),
    "group": ("group_id",),
    "message_id": ("message_id",),
    "correlation_id": ("correlation_id",),
    "error_type": ("error_type",),
    "operation": ("operation_id",),
}
_MOMENTS = {"dead": "dead_at_ms", "collected": "collected_at_ms", "updated": "updated_at_ms"}
_NUMBERS = {
    "attempts": "attempts",
    "redrives": "redrives",
    "returns": "returns",
    "size": "size_bytes",
    "status_code": "status_code",
}

_LARGEST = 2**63 - 1
# What has a meaning in SQLite's GLOB and in PostgreSQL's LIKE, besides our `*`.
_GLOB_WORDS = re.compile(r"([\[?])")
_LIKE_WORDS = re.compile(r"([%_\\])")

ColumnTerm: TypeAlias = NameTerm | TimeTerm | NumberTerm | FlagTerm | ErrorTerm


@dataclass(frozen=True, slots=True)
class LikelyWords:
    """Words that a letter has if it passes a check, unless they are where the index does not reach."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterParts:
    """A filter by what answers it. `groups` are the terms that a group answers for all of its letters; of the words,
    those that must not be there are `without`."""

    groups: tuple[NameTerm, ...]
    conditions: tuple[ColumnTerm, ...]
    words: tuple[WordsTerm | LikelyWords, ...]
    without: tuple[WordsTerm, ...]
    checks: tuple[Check, ...]


def split_filter(filter: Filter) -> FilterParts:
    """What answers each term. The words of a value that is looked for in contents join the full-text question."""
    groups: list[NameTerm] = []
    conditions: list[ColumnTerm] = []
    words: list[WordsTerm | LikelyWords] = []
    without: list[WordsTerm] = []
    checks: list[Check] = []
    for term in dict.fromkeys(filter.terms):
        match term:
            case WordsTerm():
                if phrases_of(term):
                    (without if term.negated else words).append(term)
            case BodyTerm() | HeaderTerm():
                checks.append(term)
                if wanted := words_wanted(term):
                    words.append(LikelyWords(wanted))
            case NameTerm(field="group" | "error_type") if not term.negated:
                groups.append(term)
            case NameTerm() | TimeTerm() | NumberTerm() | FlagTerm() | ErrorTerm():
                conditions.append(term)
            case _:
                assert_never(term)
    return FilterParts(
        groups=tuple(groups),
        conditions=tuple(conditions),
        words=tuple(words),
        without=tuple(without),
        checks=tuple(checks),
    )


def statuses_left(conditions: Iterable[ColumnTerm]) -> tuple[str, ...]:
    """The statuses that conditions on them leave."""
    left = [status.value for status in Status]
    for term in conditions:
        if isinstance(term, NameTerm) and term.field == "status":
            left = [
                status
                for status in left
                if any(matches_glob(value, status) for value in term.values) is not term.negated
            ]
    return tuple(left)


def sql(*parts: str) -> str:
    """A statement from its parts: words of ours and places of arguments, never what somebody gave."""
    return " ".join(parts)


class FilterStatement:
    """Terms in SQL over the rows of `letters AS l` and `groups AS g`, with their arguments.

    SQLite knows no statistics: whatever has an index, it takes for rare. So columns are written `+l.queue` there, which
    no index answers: our code chooses the index, unless the database `chooses`. `now_ms` is
    what `due` is measured by, `first` the number of the first argument.
    """

    def __init__(self, dialect: Dialect, *, now_ms: int, first: int = 1, chooses: bool = False) -> None:
        self.dialect = dialect
        self._first = first
        self.arguments: list[Any] = []
        self._now_ms = now_ms
        self._letter = "+l." if dialect.kind == "sqlite" and not chooses else "l."

    def bind(self, value: Any) -> str:
        """The place of an argument."""
        # A filter's texts come from people; stored ones were cleaned the same way.
        if isinstance(value, list):
            value = [storable(each) if isinstance(each, str) else each for each in value]
        self.arguments.append(storable(value) if isinstance(value, str) else value)
        return f"${self._first + len(self.arguments) - 1}"

    def all_of(self, conditions: Iterable[ColumnTerm], without: Iterable[WordsTerm] = ()) -> list[str]:
        """One SQL condition for each."""
        return [*(self.condition(each) for each in conditions), *map(self.lacks_words, without)]

    def condition(self, term: ColumnTerm) -> str:
        """A term as a condition on a letter."""
        match term:
            case NameTerm(field="group"):
                holds = sql("IN (SELECT g.seq FROM groups AS g WHERE", self.on_group(term), ")")
                holds = f"{self._letter}group_seq {holds}"
            case ErrorTerm():
                holds = self._error_like(term)
            case NameTerm():
                holds = self._named([f"{self._letter}{column}" for column in COLUMNS[term.field]], term.values)
            case TimeTerm():
                holds = self._within(_MOMENTS[term.field], term.from_ms, term.until_ms, upper="<")
            case NumberTerm():
                holds = self._within(_NUMBERS[term.field], term.low, term.high, upper="<=")
            case FlagTerm():
                holds = self._marked(term)
            case _:
                assert_never(term)
        # NULL is neither: a letter without the field does not have the value.
        return f"NOT coalesce(({holds}), FALSE)" if term.negated else f"({holds})"

    def on_group(self, term: NameTerm) -> str:
        """A term as a condition on a group, as if it were not negated."""
        return self._named(["g.error_type" if term.field == "error_type" else "g.id"], term.values)

    def on_tally(self, term: NameTerm) -> str:
        """A term as a condition on the name that `tallies` counts, as if it were not negated."""
        return f"({self._named(['key'], tuple(dict.fromkeys(term.values)))})"

    def search(self, words: Iterable[WordsTerm | LikelyWords]) -> str:
        """The full-text question, as an argument for `MATCH` or `@@`."""
        if self._is_sqlite:
            return self.bind(" AND ".join(map(_fts5, words)))
        return f"{self.bind(' & '.join(map(_tsquery, words)))}::text::tsquery"

    def has_words(self, words: Iterable[WordsTerm | LikelyWords]) -> str:
        """The letter `l` has them. One look into the index for each letter: not for finding letters."""
        asked = self.search(words)
        if self._is_sqlite:
            return sql("EXISTS (SELECT 1 FROM letter_words WHERE letter_words MATCH", asked, "AND rowid = l.seq)")
        return sql("EXISTS (SELECT 1 FROM letter_words AS w WHERE w.seq = l.seq AND w.words @@", asked, ")")

    def lacks_words(self, asked: WordsTerm) -> str:
        """The letter `l` does not have them: looks at its own words, since an index is for finding."""
        if not self._is_sqlite:
            return f"NOT {self.has_words([asked])}"
        return sql("NOT EXISTS (SELECT 1 FROM search_texts AS t WHERE t.seq = l.seq AND", self.keeps_words(asked), ")")

    def keeps_words(self, asked: WordsTerm) -> str:
        """The words that SQLite keeps, `search_texts AS t`, have them. It answers what its index does, letter by
        letter: to look a common word up for one letter there takes a tenth of a millisecond."""
        *phrases, last = [" ".join(map(known_to_sqlite, parts)) for parts in phrases_of(asked)]
        wanted = [*(f" {phrase} " for phrase in phrases), f" {last}" if ends_open(asked) else f" {last} "]
        # Only a packed text is worth a call of Python.
        kept = "' ' || CASE typeof(t.words) WHEN 'text' THEN t.words ELSE unpacked(t.words) END || ' '"
        return " AND ".join(f"instr({kept}, {self.bind(each)}) > 0" for each in wanted)

    @property
    def _is_sqlite(self) -> bool:
        return self.dialect.kind == "sqlite"

    def _named(self, columns: list[str], values: tuple[str, ...]) -> str:
        exact = [value for value in values if "*" not in value]
        parts = []
        for column in columns:
            if len(exact) == 1:
                parts.append(f"{column} = {self.bind(exact[0])}")
            elif exact:
                parts.append(f"{column} = ANY({self.bind(exact)}::text[])")
            parts += [self._like(column, value) for value in values if "*" in value]
        return " OR ".join(parts) if parts else "FALSE"

    def _error_like(self, term: ErrorTerm) -> str:
        # Both databases fold ASCII themselves, SQLite knows no other; what else there is was folded when it was stored.
        place = self.bind(fold(storable(term.text)))
        if self._is_sqlite:
            raw = "lower(coalesce(l.error_type, '') || char(65535) || coalesce(l.error_message, ''))"
            return f"instr(coalesce(l.error_folded, {raw}), {place}) > 0"
        raw = 'lower(concat(l.error_type, chr(65535), l.error_message) COLLATE "C")'
        return f"strpos(coalesce(l.error_folded, {raw}), {place}) > 0"

    def _like(self, column: str, pattern: str) -> str:
        if self._is_sqlite:
            place = self.bind(_GLOB_WORDS.sub(r"[\1]", pattern))
            return f"{column} GLOB {place}"
        place = self.bind(_LIKE_WORDS.sub(r"\\\1", pattern).replace("*", "%"))
        return f"{column} LIKE {place}"

    def _within(self, column: str, low: int | None, high: int | None, *, upper: str) -> str:
        parts = []
        if low is not None:
            parts.append(f"l.{column} >= {self.bind(max(min(low, _LARGEST), -_LARGEST))}")
        if high is not None:
            parts.append(f"l.{column} {upper} {self.bind(max(min(high, _LARGEST), -_LARGEST))}")
        return " AND ".join(parts) if parts else f"l.{column} IS NOT NULL"

    def _marked(self, term: FlagTerm) -> str:
        match term.flag:
            case "poison":
                return "l.is_poison = 1"
            case "edited":
                return "l.is_edited = 1"
            case "copy":
                return "l.copy_of IS NOT NULL"
            case "due":
                return f"{self._letter}status = 'pending' AND {self._letter}due_at_ms <= {self.bind(self._now_ms)}"
            case _:
                assert_never(term.flag)


def _fts5(asked: WordsTerm | LikelyWords) -> str:
    if isinstance(asked, LikelyWords):
        words = " AND ".join(f'"{known_to_sqlite(word)}"' for word in asked.words)
        return f'(({words}) OR "{CUT}")'
    phrases = [f'"{" ".join(map(known_to_sqlite, parts))}"' for parts in phrases_of(asked)]
    return " AND ".join(phrases) + (" *" if ends_open(asked) else "")


def _tsquery(asked: WordsTerm | LikelyWords) -> str:
    if isinstance(asked, LikelyWords):
        words = " & ".join(f"'{word}'" for word in asked.words)
        return f"(({words}) | '{CUT}')"
    phrases = [" <-> ".join(f"'{part}'" for part in parts) for parts in phrases_of(asked)]
    phrases[-1] += ":*" if ends_open(asked) else ""
    return " & ".join(f"({phrase})" for phrase in phrases)
