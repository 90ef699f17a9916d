"""Values inside a message, as filters ask for them: at a path in a JSON body, or of a header; and the words of a text.

Whatever the message holds, a question is answered with yes or no. Numbers are compared as they are written in the body,
so that what matches is also what full-text search finds: `42` is not `42.0`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from redrive.records.filters import BodyPath, HeaderIs

_WORD = re.compile(r"[^\W_]+")
_JSON = msgspec.json.Decoder(float_hook=str)
_LEAVES_MAX = 100_000
"""Values that a path with `*` may lead to; a body of more is hostile or no business of a filter."""


def matches_body(term: BodyPath, body: bytes) -> bool:
    """Whether a JSON body has the value at the path, negation applied. `*` in the value stands for any text.

    A path that leads to a list also matches what is in it; tables never equal a value. No JSON, no match.
    """
    return _has_value(term, body) is not term.negated


def matches_header(term: HeaderIs, headers: Mapping[str, Any]) -> bool:
    """Whether the header has the value, negation applied; the name in any case if there is none of exactly this one."""
    found = [headers[term.name]] if term.name in headers else []
    if not found:
        wanted = term.name.casefold()
        found = [value for name, value in headers.items() if name.casefold() == wanted]
    is_there = any(matches_glob(term.value, text) for value in found for text in header_texts(value))
    return is_there is not term.negated


def header_texts(value: Any) -> Iterator[str]:
    """A header's value as the texts it may be asked for by: one for a scalar, those of its values for a list."""
    match value:
        case list() | tuple():
            for one in value:
                if not isinstance(one, list | tuple):
                    yield from header_texts(one)
        case str():
            yield value
        case bytes() | bytearray():
            yield bytes(value).decode("utf-8", "replace")
        case None | bool():
            yield _LITERALS[value]
        case datetime():
            yield value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case int() | float() | Decimal():
            yield format(value) if not isinstance(value, int) else format(int(value), "d")
        case _:
            return


def matches_glob(pattern: str, text: str) -> bool:
    """Whether a text is what the pattern says, `*` standing for any text. Linear, however many stars there are."""
    first, *others = pattern.split("*")
    if not others:
        return first == text
    last = others.pop()
    if len(first) + len(last) > len(text) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in others:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def words_of(text: str) -> tuple[str, ...]:
    """A text as full-text search sees it: runs of letters and digits, in lower case."""
    return tuple(_WORD.findall(text.lower()))


def certain_words(pattern: str) -> tuple[str, ...]:
    """The words that stand in the text of whatever matches a value with `*`: those that no `*` touches."""
    lowered = pattern.lower()
    return tuple(
        found.group()
        for found in _WORD.finditer(lowered)
        if "*" not in lowered[max(found.start() - 1, 0) : found.start()] + lowered[found.end() : found.end() + 1]
    )


_LITERALS = {None: "null", True: "true", False: "false"}


def _has_value(term: BodyPath, body: bytes) -> bool:
    try:
        document = _JSON.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    for number, leaf in enumerate(_leaves(document, term.path)):
        if number >= _LEAVES_MAX:
            return False
        text = _json_text(leaf)
        if text is not None and matches_glob(term.value, text):
            return True
    return False


def _leaves(document: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The values a path leads to; a list at its end gives its elements too."""
    waiting: list[tuple[Any, int]] = [(document, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth == len(path):
            if isinstance(value, list):
                yield from value
            else:
                yield value
            continue
        step = path[depth]
        if isinstance(value, dict):
            if step in value:
                waiting.append((value[step], depth + 1))
            elif step == "*":
                waiting.extend((one, depth + 1) for one in value.values())
        elif isinstance(value, list):
            if step == "*":
                waiting.extend((one, depth + 1) for one in value)
            elif step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(value):
                waiting.append((value[int(step)], depth + 1))


def _json_text(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None | bool():
            return _LITERALS[value]
        case int():
            return format(value, "d") if abs(value) < 1 << 64 else None
        case _:
            return None
