"""Filters drawn by a seed. Most ask for what one of the letters has, written a little differently: in another case,
composed or not, a part of it, with a `*`."""

import json
import unicodedata
from random import Random
from typing import Any, get_args

from redrive.records import (
    BodyTerm,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    NameTerm,
    NumberTerm,
    Status,
    Term,
    TimeTerm,
    WordsTerm,
)
from redrive.records.filters.terms import Flag, MomentField, NameField, NumberField
from redrive.stores import ExportedLetter
from redrive.stores.message_contents import headers_of
from tests.selections.letters import HEADER_NAMES, NAMES, ODD, draw_text, texts_of
from tests.unit.stores.made_letters import NOW_MS

_ATTRIBUTES = {"topic": "routing_key", "group": "group_id", "operation": "operation_id"}


def draw_filter(luck: Random, letters: list[ExportedLetter]) -> Filter:
    """One to four terms."""
    return Filter(tuple(draw_term(luck, letters) for _ in range(luck.choice((1, 1, 1, 2, 2, 3, 4)))))


def draw_term(luck: Random, letters: list[ExportedLetter]) -> Term:
    """Any kind of term, a third of them negated."""
    each, negated = luck.choice(letters), luck.random() < 0.33
    match luck.choice((0, 0, 1, 2, 3, 4, 4, 4, 5, 5, 6, 6, 7)):
        case 0:
            return _named(luck, each, negated)
        case 1:
            bounds = [None if luck.random() < 0.3 else NOW_MS + luck.choice((-1, 0, 1, 2, 2**70)) for _ in range(2)]
            moment: MomentField = luck.choice(get_args(MomentField))
            return TimeTerm(field=moment, from_ms=bounds[0], until_ms=bounds[1], negated=negated)
        case 2:
            limits = [None if luck.random() < 0.3 else luck.choice((0, 1, 3, 42, 404, 429, 2**70)) for _ in range(2)]
            number: NumberField = luck.choice(get_args(NumberField))
            return NumberTerm(field=number, low=limits[0], high=limits[1], negated=negated)
        case 3:
            mark: Flag = luck.choice(get_args(Flag))
            return FlagTerm(flag=mark, negated=negated)
        case 4:
            error = luck.choice((each.letter.error_type, each.letter.error_message))
            text = luck.choice([error or "room", error or "429", *texts_of(each.letter), draw_text(luck)])
            text = _part(luck, text) if luck.random() < 0.5 else text
            return ErrorTerm(text=_written(luck, text) or "o", negated=negated)
        case 5:
            return _words(luck, each, negated)
        case 6:
            path, value = _path(luck, each)
            return BodyTerm(path=path, value=_starred(luck, value), negated=negated)
        case _:
            return _header(luck, each, negated)


def _named(luck: Random, each: ExportedLetter, negated: bool) -> NameTerm:
    field: NameField = luck.choice(get_args(NameField))
    if field == "status":
        statuses = tuple(status.value for status in luck.sample(list(Status), luck.randrange(1, 4)))
        return NameTerm(field=field, values=statuses, negated=negated)
    own = getattr(each.letter, _ATTRIBUTES.get(field, field))
    values = [own or "", *luck.choices((*NAMES, *ODD), k=luck.choice((0, 0, 1, 8)))]
    return NameTerm(field=field, values=tuple(_starred(luck, value) for value in values), negated=negated)


def _words(luck: Random, each: ExportedLetter, negated: bool) -> WordsTerm:
    text = luck.choice([*texts_of(each.letter), each.content.body.decode("utf-8", "replace")[-200:], draw_text(luck)])
    parts = text.split() or ["room"]
    start = luck.randrange(len(parts))
    words = [_written(luck, part) for part in parts[start : start + luck.randrange(1, 4)]]
    is_prefix = luck.random() < 0.3
    if is_prefix:
        words[-1] = _part(luck, words[-1], from_start=True)
    return WordsTerm(words=tuple(words), is_phrase=luck.random() < 0.5, is_prefix=is_prefix, negated=negated)


def _path(luck: Random, each: ExportedLetter) -> tuple[tuple[str, ...], str]:
    """A path into the letter's body, and what is there."""
    try:
        text = each.content.body.strip().decode("utf-8-sig")
        value: Any = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return (luck.choice(("a", "b", "*")),), draw_text(luck)
    path: list[str] = []
    while isinstance(value, dict | list) and value and len(path) < 6:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = luck.choice(keys)
        value = value[key]
        path.append("*" if luck.random() < 0.2 else str(key))
        if isinstance(value, list) and luck.random() < 0.2:
            value = luck.choice(value) if value else "room"
            break
    found = value if isinstance(value, str) else json.dumps(value) if not isinstance(value, dict | list) else "x"
    return tuple(path) or ("a",), found if luck.random() < 0.8 else draw_text(luck)


def _header(luck: Random, each: ExportedLetter, negated: bool) -> HeaderTerm:
    headers = headers_of(each.content.properties)
    name = luck.choice([*headers, luck.choice(HEADER_NAMES)])
    value = headers.get(name, draw_text(luck))
    while isinstance(value, list):
        value = luck.choice(value) if value else "room"
    text = value if isinstance(value, str) else str(value)
    written = name.swapcase() if luck.random() < 0.3 else name
    return HeaderTerm(name=written, value=_starred(luck, text), negated=negated)


def _written(luck: Random, text: str) -> str:
    """The same to whoever reads it, perhaps."""
    how = luck.random()
    if how < 0.3:
        return text.swapcase()
    if how < 0.4:
        return text.upper()
    if how < 0.6:
        return unicodedata.normalize(luck.choice(("NFC", "NFD")), text)
    return text


def _part(luck: Random, text: str, *, from_start: bool = False) -> str:
    if len(text) < 2:
        return text
    start = 0 if from_start else luck.randrange(len(text))
    return text[start : start + luck.randrange(1, len(text) + 1)]


def _starred(luck: Random, value: str) -> str:
    if len(value) > 300:
        return f"*{value[-20:]}"
    how = luck.random()
    if how < 0.6 or not value:
        return value
    if how < 0.7:
        return _written(luck, value)
    place = luck.randrange(len(value) + 1)
    if how < 0.85:
        return f"{value[:place]}*"
    end = luck.randrange(place, len(value) + 1)
    return f"{value[:place]}*{value[end:]}"
