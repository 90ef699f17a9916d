"""What a filter asks of dead letters, as values: all of its terms must hold. The grammar is in `grammar`, what a term
means is in `matching`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

NameField: TypeAlias = Literal[
    "id",
    "vhost",
    "queue",
    "dlq",
    "exchange",
    "topic",
    "service",
    "type",
    "reason",
    "status",
    "group",
    "message_id",
    "correlation_id",
    "error_type",
    "operation",
]
MomentField: TypeAlias = Literal["dead", "collected", "updated"]
NumberField: TypeAlias = Literal["attempts", "redrives", "returns", "size", "status_code"]
Flag: TypeAlias = Literal["poison", "edited", "copy", "due"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTerm:
    """A field equal to one of the values. `*` in a value stands for anything; `queue` is the failed queue or the DLQ;
    statuses are in lower case."""

    field: NameField
    values: tuple[str, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTerm:
    """A moment, in milliseconds since 1970: from `from_ms` on and before `until_ms`; None is open."""

    field: MomentField
    from_ms: int | None
    until_ms: int | None
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberTerm:
    """A number, both ends included; None is open."""

    field: NumberField
    low: int | None
    high: int | None
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTerm:
    """Poison, edited, a further copy, or due for auto-retry."""

    flag: Flag
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTerm:
    """The error's type or its message contains the text, in any case."""

    text: str
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WordsTerm:
    """Full text: all these words, in this order when it is a phrase; the last may be a beginning (`time*`)."""

    words: tuple[str, ...]
    is_phrase: bool = False
    is_prefix: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyTerm:
    """A value in a JSON body. A number in the path is a place in a list, `*` any place."""

    path: tuple[str, ...]
    value: str
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderTerm:
    """A header's value, as text."""

    name: str
    value: str
    negated: bool = False


GLOBS_MAX = 50
"""Names with `*` that a filter has at most: each is compared with every name there is."""
STARS_MAX = 10
"""In one of them."""

Term: TypeAlias = NameTerm | TimeTerm | NumberTerm | FlagTerm | ErrorTerm | WordsTerm | BodyTerm | HeaderTerm


@dataclass(frozen=True, slots=True)
class Filter:
    """All terms hold. No terms: every dead letter."""

    terms: tuple[Term, ...] = ()


def too_many_stars(terms: Iterable[Term]) -> str | None:
    """Why a filter with these terms would be too much work, in a sentence; None where it would not."""
    globs = [value for term in terms if isinstance(term, NameTerm) for value in term.values if "*" in value]
    if len(globs) > GLOBS_MAX:
        return f"a filter has at most {GLOBS_MAX} names with *, and this one has {len(globs):,}"
    if any(value.count("*") > STARS_MAX for value in globs):
        return f"a name has at most {STARS_MAX} *"
    return None
