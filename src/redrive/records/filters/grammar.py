"""The grammar of filters: one text for the command line, the API, the URL and the page.

    filter   = term { blank term }                        all of them hold
    term     = [ "-" | "not:" ] ( field ":" values | words )
    values   = value { "," value }                        one of them; a list only where a field has names
    value    = { character | quoted }                     `*` stands for anything
    words    = word [ "*" ] | quoted [ "*" ]              full text; quoted is a phrase, `*` makes the last a beginning
    quoted   = '"' { character | '\\"' | '\\\\' } '"'

Fields are read in any case and with `-`, `_` or nothing between their words. Pure: what is relative becomes absolute by
the `now_ms` that is passed in.
"""

import re
from collections.abc import Mapping
from typing import get_args

from redrive.core import did_you_mean
from redrive.records.filters.filter_problems import FilterProblem, InvalidFilter, UnreadableValue
from redrive.records.filters.lexer import Piece, RawTerm, split_terms
from redrive.records.filters.terms import (
    BodyTerm,
    ErrorTerm,
    Filter,
    Flag,
    FlagTerm,
    HeaderTerm,
    MomentField,
    NameField,
    NameTerm,
    NumberField,
    NumberTerm,
    Term,
    TimeTerm,
    WordsTerm,
    too_many_stars,
)
from redrive.records.filters.values import read_moments, read_numbers
from redrive.records.search_words import words_of
from redrive.records.states import Status

TEXT_MAX = 10_000
TERMS_MAX = 100
PATH_STEPS_MAX = 100
PROBLEMS_MAX = 50
"""Nobody reads more of them."""

ALIASES: Mapping[str, str] = {
    "key": "topic",
    "routing_key": "topic",
    "event_type": "type",
    "code": "status_code",
    "corr_id": "correlation_id",
    "service_name": "service",
}
"""Other names of fields, beside the ways to write one."""

_NAMES: dict[str, NameField] = {name: name for name in get_args(NameField)}
_MOMENTS: dict[str, MomentField] = {name: name for name in get_args(MomentField)}
_NUMBERS: dict[str, NumberField] = {name: name for name in get_args(NumberField)}
_MARKS: dict[str, Flag] = {name: name for name in get_args(Flag)}
FIELDS = (*_NAMES, "error", *_MOMENTS, *_NUMBERS, "is", "words", "body", "header")
_SQUASHED = {name.replace("_", ""): name for name in (*FIELDS, *ALIASES)}
_FIELD_BEGINS = re.compile(r"(?P<name>[^\W\d][\w-]*)(?P<sign>[.=<>])", re.ASCII)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def parse_filter(text: str, *, now_ms: int) -> Filter:
    """The filter a text writes. Raises `InvalidFilter`, with everything that is wrong and where."""
    if len(text) > TEXT_MAX:
        long = FilterProblem(
            code="too-long",
            summary=f"a filter has at most {TEXT_MAX:,} characters",
            hint="give ids as arguments instead",
            start=TEXT_MAX,
            end=TEXT_MAX,
        )
        raise InvalidFilter(text[:TEXT_MAX], [long])
    problems: list[FilterProblem] = []
    if found := _UNSTORABLE.search(text):
        problems.append(
            FilterProblem(
                code="no-text",
                summary="no text holds this character",
                hint="leave it out, or put * for it",
                start=found.start(),
                end=found.end(),
            )
        )
        raise InvalidFilter(text, problems)
    terms: list[Term] = []
    for raw in split_terms(text, problems):
        if len(problems) >= PROBLEMS_MAX:
            break
        try:
            terms.append(_read_term(raw, now_ms))
        except UnreadableValue as error:
            problems.append(
                FilterProblem(code=error.code, summary=error.summary, hint=error.hint, start=raw.start, end=raw.end)
            )
    if len(terms) > TERMS_MAX:
        summary = f"a filter has at most {TERMS_MAX} terms"
        problems.append(
            FilterProblem(code="too-long", summary=summary, hint="put values in one list", start=0, end=len(text))
        )
    elif stars := too_many_stars(terms):
        hint = "write the names out, or ask several times"
        problems.append(FilterProblem(code="too-many-stars", summary=stars, hint=hint, start=0, end=len(text)))
    if problems:
        raise InvalidFilter(text, sorted(problems, key=lambda problem: problem.start)[:PROBLEMS_MAX])
    return Filter(tuple(terms))


def _read_term(raw: RawTerm, now_ms: int) -> Term:
    if raw.field is None:
        _refuse_field_without_colon(raw.value)
        return _read_words(raw.value, is_negated=raw.is_negated)
    first, *path = raw.field
    field = _SQUASHED.get(first.text.lower().replace("_", "").replace("-", ""))
    if field is None or first.is_quoted:
        hint = did_you_mean(first.text.lower(), FIELDS)
        raise UnreadableValue(
            f"there is no field {first.text}",
            f'{hint}{"" if hint.endswith("?") else ";"} to search for it as text, put it in "quotes"',
            code="unknown-field",
        )
    field = ALIASES.get(field, field)
    if field in ("body", "header"):
        return _read_inside(field, tuple(piece.text for piece in path), raw)
    if path:
        raise UnreadableValue(f"{field} has no parts", "only body. and header. do", code="unknown-field")
    if not raw.value:
        raise UnreadableValue(f"{field}: needs a value", f'write {field}:VALUE, or {field}:"" for an empty one')
    return _read_field(field, raw, now_ms)


def _read_field(field: str, raw: RawTerm, now_ms: int) -> Term:
    value, negated = _joined(raw.value), raw.is_negated
    if field in _NAMES:
        values = _listed(raw.value)
        if field == "status":
            values = tuple(_read_status(one) for one in values)
        return NameTerm(field=_NAMES[field], values=values, negated=negated)
    if field in _MOMENTS:
        from_ms, until_ms = read_moments(value, now_ms)
        return TimeTerm(field=_MOMENTS[field], from_ms=from_ms, until_ms=until_ms, negated=negated)
    if field in _NUMBERS:
        low, high = read_numbers(value, is_size=field == "size")
        return NumberTerm(field=_NUMBERS[field], low=low, high=high, negated=negated)
    if field == "is":
        if value.lower() not in _MARKS:
            raise UnreadableValue(f"nothing is {value}", did_you_mean(value.lower(), _MARKS))
        return FlagTerm(flag=_MARKS[value.lower()], negated=negated)
    if field == "error":
        if not value:
            raise UnreadableValue("error: needs a text", "write error:Timeout")
        return ErrorTerm(text=value, negated=negated)
    return _words(value, is_phrase=False, is_negated=negated)


def _read_status(written: str) -> str:
    status = written.lower().replace("-", "_").replace(" ", "_")
    known = [one.value for one in Status]
    if status not in known:
        raise UnreadableValue(f"there is no status {written}", did_you_mean(status, known))
    return status


def _read_inside(field: str, path: tuple[str, ...], raw: RawTerm) -> Term:
    if not raw.value:
        raise UnreadableValue(
            f"{field}. needs a value", f"write {field}.name:VALUE, or * for any", code="invalid-value"
        )
    if field == "header":
        # A header's name may have points in it; only quotes keep it from being one name.
        name = ".".join(path)
        if not name:
            raise UnreadableValue("header. needs a name", "write header.x-tenant:acme")
        return HeaderTerm(name=name, value=_joined(raw.value), negated=raw.is_negated)
    if not path or not all(path):
        raise UnreadableValue(
            "body. needs a path", "write body.customer.id:42, or body.items.*.sku:A1 for any place in a list"
        )
    if len(path) > PATH_STEPS_MAX:
        raise UnreadableValue(
            f"this path has {len(path):,} steps, and {PATH_STEPS_MAX} at most can be followed", "shorten it"
        )
    return BodyTerm(path=path, value=_joined(raw.value), negated=raw.is_negated)


def _refuse_field_without_colon(pieces: tuple[Piece, ...]) -> None:
    """`body.customer` and `attempts>3` are hardly words to search for: in quotes they are."""
    found = None if pieces[0].is_quoted else _FIELD_BEGINS.match(pieces[0].text)
    if found is None:
        return
    field = _SQUASHED.get(found["name"].lower().replace("_", "").replace("-", ""))
    written = "".join(f'"{piece.text}"' if piece.is_quoted else piece.text for piece in pieces)
    if field is None or written == found[0] or (found["sign"] == "." and field not in ("body", "header")):
        return
    if found["sign"] != ".":
        meant = f"{found['name']}:{written[found.start('sign') :].removeprefix('=')}"
    else:
        meant = written.replace("=", ":", 1) if "=" in written else f"{written}:*"
    raise UnreadableValue(
        f"{written} has no colon, so that it would be words to search for",
        f'did you mean `{meant}`? to search for it as text, put it in "quotes"',
        code="no-colon",
    )


def _read_words(pieces: tuple[Piece, ...], *, is_negated: bool) -> WordsTerm:
    text = _joined(pieces)
    # `order-17` is one word to its writer and two to the index: they must stand together.
    return _words(text, is_phrase=pieces[0].is_quoted or len(words_of(text)) > 1, is_negated=is_negated)


def _words(text: str, *, is_phrase: bool, is_negated: bool) -> WordsTerm:
    is_prefix = text.endswith("*")
    words = words_of(text)
    if not words or (is_prefix and not words_of(text[-2:])):
        raise UnreadableValue(
            f"{text or 'nothing'} has no letters or digits to search for", "search for a word", code="no-words"
        )
    if "*" in text[:-1]:
        raise UnreadableValue(
            f"{text} has * where it can't be searched", "put it at the end of a word", code="no-words"
        )
    return WordsTerm(words=words, is_phrase=is_phrase, is_prefix=is_prefix, negated=is_negated)


def _joined(pieces: tuple[Piece, ...]) -> str:
    return "".join(piece.text for piece in pieces)


def _listed(pieces: tuple[Piece, ...]) -> tuple[str, ...]:
    """The values of a list: commas part them, but for those in quotes."""
    values = [""]
    has_any = [False]
    for piece in pieces:
        if piece.is_quoted:
            values[-1] += piece.text
            has_any[-1] = True
            continue
        first, *others = piece.text.split(",")
        values[-1] += first
        has_any[-1] = has_any[-1] or bool(first)
        values += others
        has_any += [bool(other) for other in others]
    if not all(has_any):
        raise UnreadableValue("a value of the list is missing", 'take the comma away, or write "" for an empty value')
    return tuple(values)
