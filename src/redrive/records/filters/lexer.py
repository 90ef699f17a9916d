"""A filter's text cut into terms, before anybody knows what they mean."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from redrive.records.filters.filter_problems import FilterProblem

_FIELD = re.compile(r"[^\W\d][\w-]*", re.ASCII)
_NOT = re.compile(r"not:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of characters that stood in quotes, or did not."""

    text: str
    is_quoted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTerm:
    """A term: its field taken apart at the points (None: words to search for), and the pieces of its value."""

    is_negated: bool
    field: tuple[Piece, ...] | None
    value: tuple[Piece, ...]
    start: int
    end: int


def split_terms(text: str, problems: list[FilterProblem]) -> Iterator[RawTerm]:
    """The terms in order; what can't be one is added to `problems` and left out."""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        start = place
        pieces, place, is_closed = _read_pieces(text, start)
        if not is_closed:
            _note(problems, "open-quote", 'a " is not closed', 'close it, or write \\" inside of quotes', start, place)
            return
        term = _read_term(text[start:place], pieces, start, place, problems)
        if term is not None:
            yield term


def _read_pieces(text: str, place: int) -> tuple[list[Piece], int, bool]:
    """What stands up to the next blank outside of quotes, where that is, and whether every quote was closed."""
    pieces: list[Piece] = []
    bare: list[str] = []
    while place < len(text) and not text[place].isspace():
        if text[place] != '"':
            bare.append(text[place])
            place += 1
            continue
        if bare:
            pieces.append(Piece("".join(bare), False))
            bare = []
        quoted: list[str] = []
        place += 1
        while place < len(text) and text[place] != '"':
            if text[place] == "\\" and place + 1 < len(text):
                place += 1
            quoted.append(text[place])
            place += 1
        if place >= len(text):
            return pieces, place, False
        place += 1
        pieces.append(Piece("".join(quoted), True))
    if bare:
        pieces.append(Piece("".join(bare), False))
    return pieces, place, True


def _read_term(
    written: str, pieces: list[Piece], start: int, end: int, problems: list[FilterProblem]
) -> RawTerm | None:
    pieces, negations = _take_negations(pieces)
    if negations > 1:
        _note(problems, "negated-twice", f"{written} is negated twice", 'put a text with - in "quotes"', start, end)
        return None
    if not pieces:
        _note(problems, "empty-term", f"{written} has nothing after it", "write -queue:orders or -word", start, end)
        return None
    field, value = _take_field(pieces)
    return RawTerm(is_negated=negations == 1, field=field, value=tuple(value), start=start, end=end)


def _take_negations(pieces: list[Piece]) -> tuple[list[Piece], int]:
    count = 0
    while pieces and not pieces[0].is_quoted:
        text = pieces[0].text
        if text.startswith("-"):
            rest = text[1:]
        elif _NOT.match(text):
            rest = text[4:]
        else:
            break
        count += 1
        pieces = [Piece(rest, False), *pieces[1:]] if rest else pieces[1:]
    return pieces, count


def _take_field(pieces: list[Piece]) -> tuple[tuple[Piece, ...] | None, list[Piece]]:
    """The parts of the field before the first colon outside of quotes, and what comes after it.

    A term is a field's only if it begins like one: `12:30` and `"a: b"` are words.
    """
    if pieces[0].is_quoted or _FIELD.match(pieces[0].text) is None:
        return None, pieces
    parts: list[Piece] = [Piece("", False)]
    for number, piece in enumerate(pieces):
        if piece.is_quoted:
            parts[-1] = Piece(parts[-1].text + piece.text, True)
            continue
        before, colon, after = piece.text.partition(":")
        first, *others = before.split(".")
        parts[-1] = Piece(parts[-1].text + first, parts[-1].is_quoted)
        parts += [Piece(other, False) for other in others]
        if colon:
            return tuple(parts), [*([Piece(after, False)] if after else []), *pieces[number + 1 :]]
    return None, pieces


def _note(problems: list[FilterProblem], code: str, summary: str, hint: str, start: int, end: int) -> None:
    problems.append(FilterProblem(code=code, summary=summary, hint=hint, start=start, end=end))
