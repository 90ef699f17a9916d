"""Masks single values in bodies and headers. What can't be parsed is hidden whole.

A path is written as filters write it: `customer.card`, `items.*.price`, `"a.b".c`. In a list it
applies to each element, in a string that contains JSON to the value inside: `customer.card` finds the card even where
`customer` is a string.

Work is counted and limited, because a sender may build a body that is slow to read.
"""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from redrive.core import RedriveError
from redrive.core import headers as known
from redrive.records.access import Redaction, RedactionKind, Role
from redrive.records.explanations import STACK_HEADERS
from redrive.records.filters.filter_problems import InvalidFilter
from redrive.records.filters.grammar import parse_filter
from redrive.records.filters.terms import BodyTerm

MASK = "[redacted]"
PATH_CHARACTERS_MAX = 300
Path: TypeAlias = tuple[str, ...]

_ERROR_HEADERS = frozenset(
    name.casefold() for name in {*STACK_HEADERS, known.FINAL_ERROR, known.STACK, known.HISTORY, "failure-reason"}
)
_ERROR_BEGINNINGS = ("exception-", "mt-fault-", "nservicebus.exceptioninfo", "x-exception")
_STRINGS_DEEP_MAX = 5
"""A string of JSON in a string of JSON … deeper ones are hidden whole."""
HIDING_BYTES_MAX = 16 << 20
"""A larger body is not looked through."""
WORK_MAX = 1_000_000
"""For one body; about a second."""
_BYTES_A_STEP = 20
"""Reading so many bytes of JSON takes as long as one value that is looked at, about a microsecond."""
_STRING_STEPS = 10
"""What it takes to find that a string is no JSON, however short it is."""
_ASKED_AFTER = 20_000


class MaskingTooExpensive(Exception):
    """It takes too long to look through a body for what is hidden."""


class InvalidRedaction(RedriveError):
    """A value that can't be hidden so; the text says what to write."""


def path_of(text: str) -> Path:
    """The steps of a path. Raises `InvalidFilter`."""
    filter = parse_filter(f"body.{text}:x", now_ms=0)
    (term,) = filter.terms
    assert isinstance(term, BodyTerm)
    return term.path


def check_redaction_path(kind: RedactionKind, text: str) -> str:
    """What a rule is to name, cleaned. Raises `InvalidRedaction`."""
    text = text.strip()
    if not text or len(text) > PATH_CHARACTERS_MAX or not text.isprintable():
        raise InvalidRedaction(f"a path has 1 to {PATH_CHARACTERS_MAX} visible characters, like customer.card")
    if kind == "header":
        return text
    for prefix in ("$.", "body."):
        text = text.removeprefix(prefix)
    try:
        filter = parse_filter(f"body.{text}:x", now_ms=0)
    except InvalidFilter as error:
        raise InvalidRedaction(f"{text} is no path in a body: {error.findings[0].text}") from None
    if len(filter.terms) != 1 or not isinstance(filter.terms[0], BodyTerm) or filter.terms[0].value != "x":
        raise InvalidRedaction(f"{text} is no path in a body; write it like customer.card or items.*.price")
    return text


def trial_redaction(kind: RedactionKind, text: str, hidden_from: Role) -> Redaction:
    """A redaction that is nowhere kept, to see what it would hide. Raises `InvalidRedaction`."""
    return Redaction(id="", kind=kind, path=check_redaction_path(kind, text), hidden_from=hidden_from)


def has_error_text(name: str) -> bool:
    """Whether a header has an error's text or stack in it, ours or another framework's; in any case."""
    folded = name.casefold()
    return folded in _ERROR_HEADERS or folded.startswith(_ERROR_BEGINNINGS)


def overlaps(one: Path, other: Path) -> bool:
    """Whether one path may lead to a place at, above or below the other's. A place in a list may be left out."""
    waiting, seen = [(0, 0)], set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        first, second = place
        if first == len(one) or second == len(other):
            return True
        if _may_be_same(one[first], other[second]):
            waiting.append((first + 1, second + 1))
        if _is_place(one[first]) and not _is_place(other[second]):
            waiting.append((first + 1, second))
        if _is_place(other[second]) and not _is_place(one[first]):
            waiting.append((first, second + 1))
    return False


def _is_place(step: str) -> bool:
    return step == "*" or (step.isascii() and step.isdigit())


def _may_be_same(one: str, other: str) -> bool:
    """Whether two steps may name the same: a place in a list is `0` as well as `00`."""
    if one == other or "*" in (one, other):
        return True
    return (
        one.isascii() and one.isdigit() and other.isascii() and other.isdigit() and one.lstrip("0") == other.lstrip("0")
    )


def hide_in_body(
    body: bytes, paths: tuple[Path, ...], *, work_max: int = WORK_MAX, go_on: Callable[[], None] | None = None
) -> bytes | None:
    """The body with the values masked; as it is where it has none of them; None where it is no JSON. `go_on` is called
    now and then, and may end it by raising. Raises `MaskingTooExpensive`."""
    if not body:
        return body
    if len(body) > HIDING_BYTES_MAX:
        raise MaskingTooExpensive
    try:
        reading = _Reading(work_max, go_on)
        document = reading.read(body)
        is_changed = False
        for path in paths:
            document, is_masked = _masked(document, path, reading, strings=0)
            is_changed |= is_masked
        # Of a key that is there twice we have read the last one; what the others hold must not get out.
        return json.dumps(document, ensure_ascii=False).encode() if is_changed or reading.is_doubled else body
    except (ValueError, RecursionError):
        return None


def hide_in_headers(headers: Any, names: frozenset[str] | None, *, hides_errors: bool = False) -> Any:
    """Headers, an object or a list of entries, with these values masked, also inside of tables; None hides every value.

    `hides_errors` masks also what has an error's text in it.
    """
    if names is None:
        return _without_values(headers)
    if not names and not hides_errors:
        return headers

    def hidden(name: object) -> bool:
        text = str(name)
        return text.casefold() in names or (hides_errors and has_error_text(text))

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: MASK if hidden(name) else shown(one) for name, one in value.items()}
        if isinstance(value, list):
            return [
                [one[0], MASK if hidden(one[0]) else shown(one[1])] if _is_entry(one) else shown(one) for one in value
            ]
        return value

    return shown(headers) if isinstance(headers, dict | list) else None


def _without_values(headers: Any) -> Any:
    if isinstance(headers, dict):
        return dict.fromkeys(headers)
    if isinstance(headers, list):
        return [[entry[0], None] if _is_entry(entry) else None for entry in headers]
    return None


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2


class _Reading:
    """Reads JSON, counts the work, and remembers whether any of it had a key twice."""

    def __init__(self, work_max: int, go_on: Callable[[], None] | None) -> None:
        self.is_doubled = False
        self._left = work_max
        self._go_on = go_on
        self._asked_at = work_max

    def spend(self, steps: int) -> None:
        """So much is about to be done. Raises `MaskingTooExpensive`."""
        self._left -= steps
        if self._left < 0:
            raise MaskingTooExpensive
        if self._go_on is not None and self._asked_at - self._left >= _ASKED_AFTER:
            self._asked_at = self._left
            self._go_on()

    def read(self, text: str | bytes) -> Any:
        """Raises `ValueError`, `RecursionError`, `MaskingTooExpensive`."""
        self.spend(len(text) // _BYTES_A_STEP)
        return json.loads(text, object_pairs_hook=self._take)

    def _take(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        taken = dict(pairs)
        self.is_doubled |= len(taken) < len(pairs)
        return taken


def _masked(value: Any, path: Path, reading: _Reading, *, strings: int) -> tuple[Any, bool]:
    """The value with what the path leads to masked, and whether there was any. Lists and tables change in place."""
    reading.spend(1)
    if not path:
        return MASK, True
    step, is_changed = path[0], False
    if isinstance(value, dict):
        keys: list[Any] = list(value) if step == "*" else [step] if step in value else []
        for key in keys:
            value[key], is_masked = _masked(value[key], path[1:], reading, strings=strings)
            is_changed |= is_masked
    elif isinstance(value, list):
        places = range(len(value))
        if step.isascii() and step.isdigit():
            places = range(int(step), int(step) + 1) if len(step) < 10 and int(step) < len(value) else range(0)
        for place in places:
            left = path[1:] if _is_place(step) else path
            value[place], is_masked = _masked(value[place], left, reading, strings=strings)
            is_changed |= is_masked
    elif isinstance(value, str):
        return _masked_string(value, path, reading, strings=strings)
    return value, is_changed


def _may_lead_into(text: str, path: Path) -> bool:
    """Whether a text of JSON, whole or cut off, can have a value at the path: it names the keys on the way. With a
    backslash in it they may be written in many ways."""
    return "\\" in text or all(step in text for step in path if not _is_place(step))


def _masked_string(text: str, path: Path, reading: _Reading, *, strings: int) -> tuple[str, bool]:
    """A string that may be JSON itself, with what the path leads to in there masked."""
    begins = text.lstrip("\ufeff \t\r\n")[:1]
    if begins not in ("{", "[", '"') or not _may_lead_into(text, path):
        return text, False
    reading.spend(_STRING_STEPS)
    was_doubled, reading.is_doubled = reading.is_doubled, False
    try:
        if strings >= _STRINGS_DEEP_MAX:
            return MASK, True
        inner, is_masked = _masked(reading.read(text.lstrip("\ufeff")), path, reading, strings=strings + 1)
        is_changed = is_masked or reading.is_doubled
        return (json.dumps(inner, ensure_ascii=False), True) if is_changed else (text, False)
    except (ValueError, RecursionError):
        # JSON that was cut off may hold the value all the same. A text in quotes is only a text.
        return (text, False) if begins == '"' else (MASK, True)
    finally:
        reading.is_doubled = was_doubled
