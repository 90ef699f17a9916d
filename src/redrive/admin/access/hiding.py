"""Hiding single values in bodies and headers. Pure; what can't be understood is hidden whole.

A path is written as filters write it: `customer.card`, `items.*.price`, `"a.b".c`.
"""

import json
from typing import Any, TypeAlias

from redrive.admin.problems import invalid
from redrive.records import BodyPath, InvalidFilter, RedactionKind, parse_filter

MASK = "[redacted]"
PATH_CHARACTERS_MAX = 300
Path: TypeAlias = tuple[str, ...]


def path_of(text: str) -> Path:
    """The steps of a path. Raises `InvalidFilter`."""
    filter = parse_filter(f"body.{text}:x", now_ms=0)
    (term,) = filter.terms
    assert isinstance(term, BodyPath)
    return term.path


def checked_path(kind: RedactionKind, text: str) -> str:
    """What a rule is to name, cleaned. Raises `Problem` 422."""
    text = text.strip()
    if not text or len(text) > PATH_CHARACTERS_MAX or not text.isprintable():
        raise invalid(f"a path has 1 to {PATH_CHARACTERS_MAX} visible characters, like customer.card")
    if kind == "header":
        return text
    for prefix in ("$.", "body."):
        text = text.removeprefix(prefix)
    try:
        filter = parse_filter(f"body.{text}:x", now_ms=0)
    except InvalidFilter as error:
        raise invalid(f"{text} is no path in a body: {error.findings[0].text}") from None
    if len(filter.terms) != 1 or not isinstance(filter.terms[0], BodyPath) or filter.terms[0].value != "x":
        raise invalid(f"{text} is no path in a body; write it like customer.card or items.*.price")
    return text


def overlaps(one: Path, other: Path) -> bool:
    """Whether a value at one path may be, hold, or lie in one at the other."""
    return all(_may_be_same(first, second) for first, second in zip(one, other, strict=False))


def _may_be_same(one: str, other: str) -> bool:
    """Whether two steps may name the same: a place in a list is `0` as well as `00`."""
    if one == other or "*" in (one, other):
        return True
    return (
        one.isascii() and one.isdigit() and other.isascii() and other.isdigit() and one.lstrip("0") == other.lstrip("0")
    )


def hide_in_body(body: bytes, paths: tuple[Path, ...]) -> bytes | None:
    """The body with the values masked; as it is where it has none of them; None where it is no JSON."""
    if not body:
        return body
    doubled: list[bool] = []

    def take(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        taken = dict(pairs)
        if len(taken) < len(pairs):
            doubled.append(True)
        return taken

    try:
        document = json.loads(body, object_pairs_hook=take)
        holder = [document]
        is_changed = False
        for path in paths:
            is_changed |= _hide(holder, ("*", *path))
        # Of a key that is there twice we have read the last one; what the others hold must not get out.
        return json.dumps(holder[0], ensure_ascii=False).encode() if is_changed or doubled else body
    except (ValueError, RecursionError):
        return None


def hide_in_headers(headers: Any, names: frozenset[str] | None) -> Any:
    """Headers, an object or a list of entries, with these values masked; None hides every value."""

    def shown(name: object, value: Any) -> Any:
        if names is None:
            return None
        return MASK if str(name).casefold() in names else value

    if isinstance(headers, dict):
        return {name: shown(name, value) for name, value in headers.items()}
    if isinstance(headers, list):
        return [[entry[0], shown(entry[0], entry[1])] if _is_entry(entry) else None for entry in headers]
    return headers if names is not None and not names else None


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2


def _hide(value: Any, path: Path) -> bool:
    """Masks what the path leads to, below `value`; whether there was any."""
    is_changed = False
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        place, depth = waiting.pop()
        step, is_last = path[depth], depth == len(path) - 1
        for key in _keys(place, step):
            if is_last:
                place[key] = MASK
                is_changed = True
            else:
                waiting.append((place[key], depth + 1))
    return is_changed


def _keys(place: Any, step: str) -> list[Any]:
    """The keys or places that a step names."""
    if isinstance(place, dict):
        if step == "*":
            return list(place)
        return [step] if step in place else []
    if isinstance(place, list):
        if step == "*":
            return list(range(len(place)))
        if step.isascii() and step.isdigit() and len(step) < 10 and int(step) < len(place):
            return [int(step)]
    return []
