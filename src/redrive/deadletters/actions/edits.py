"""Edits of a dead letter: another body, other headers or properties, and the difference as text. Pure.

What an edit does not name keeps its bytes. The difference is kept with the dead letter for good, so it is bounded; if
it is cut, it says so.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from redrive.core import RedriveError, headers, shorten
from redrive.records import MessageContent
from redrive.wire import Properties, PropertyChanges, ProtocolError, Timestamp

DIFF_BYTES_MAX = 64_000
"""A longer difference is cut, and says how much of it is missing."""
DIFFED_BYTES_MAX = 1 << 20
"""Bodies above this are compared by size only: difflib takes minutes for them."""
_LINES_MAX = 5_000
_VALUE_BYTES_MAX = 500

_FIXED = frozenset({"headers", "delivery_mode", "expiration", "user_id"})
"""A redriven copy does not keep these, so an edit of them would have no effect and is refused."""

_KINDS: dict[str, tuple[Any, str]] = {
    "priority": (int, "a number from 0 to 255"),
    "timestamp": (datetime | Timestamp, "a time"),
}
"""What a property's value may be; text for those not named here."""


class InvalidEdit(RedriveError):
    """The edit can't be made; the text says why in a sentence. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterEdit:
    """The changes. None as a body: it stays. None as a property: it is removed."""

    body: bytes | None = None
    set_headers: Mapping[str, Any] = field(default_factory=dict)
    drop_headers: Collection[str] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedContent:
    """The content after an edit, and the difference."""

    content: MessageContent
    diff: str


def edit_content(content: MessageContent, edit: LetterEdit) -> EditedContent:
    """Applies the edit. Raises InvalidEdit, also where nothing would change."""
    _check(edit)
    try:
        old = Properties(content.properties)
        changes = cast(PropertyChanges, dict(edit.properties))
        new = old.edit(headers=edit.set_headers, drop=edit.drop_headers, **changes)
        described = [*_property_changes(old, new), *_header_changes(old, new)]
    except (ProtocolError, TypeError, ValueError, OverflowError) as error:
        raise InvalidEdit(f"these headers or properties can't be written: {shorten(str(error), 300)}") from None
    body = content.body if edit.body is None else edit.body
    if body != content.body:
        described += body_diff(content.body, body)
    if not described:
        raise InvalidEdit("the edit changes nothing")
    return EditedContent(
        content=MessageContent(properties=new.raw, body=body), diff=shorten("\n".join(described) + "\n", DIFF_BYTES_MAX)
    )


def body_diff(old: bytes, new: bytes) -> list[str]:
    """A unified diff where both are text, their sizes where one is not or both are large."""
    before, after = _text(old), _text(new)
    if before is None or after is None or max(len(old), len(new)) > DIFFED_BYTES_MAX:
        return [f"body: {_size(old)} → {_size(new)}"]
    lines_before, lines_after = before.splitlines(), after.splitlines()
    if max(len(lines_before), len(lines_after)) > _LINES_MAX:
        return [f"body: {_size(old)} → {_size(new)}"]
    diff = list(difflib.unified_diff(lines_before, lines_after, "body before", "body after", lineterm="", n=2))
    # Texts that differ only in their line ends have no difference in lines.
    return diff or [f"body: {_size(old)} → {_size(new)}, only its line ends"]


def _check(edit: LetterEdit) -> None:
    for name in edit.properties:
        if name in _FIXED:
            raise InvalidEdit(f"{name} can't be edited: a redriven copy never takes it along")
        wanted = _KINDS.get(name, (str, "text"))
        value = edit.properties[name]
        if value is not None and (not isinstance(value, wanted[0]) or isinstance(value, bool)):
            raise InvalidEdit(f"the property {name} must be {wanted[1]}, not {shorten(repr(value), 100)}")
    both = set(edit.set_headers) & set(edit.drop_headers)
    if both:
        raise InvalidEdit(f"the header {min(both)!r} is to be both set and taken away; say one")
    for name in (*edit.set_headers, *edit.drop_headers):
        if name in (headers.REDRIVEN_ID, headers.REDRIVEN_COUNT, headers.REDRIVEN_MARK):
            raise InvalidEdit(f"the header {name} can't be edited: a copy that dies again is known by it")


def _property_changes(old: Properties, new: Properties) -> list[str]:
    before, after = old.present(), new.present()
    names = [name for name in dict.fromkeys((*before, *after)) if name != "headers"]
    return _changes("property", names, before, after)


def _header_changes(old: Properties, new: Properties) -> list[str]:
    names = [
        name for name in dict.fromkeys((*old.headers, *new.headers)) if old.raw_header(name) != new.raw_header(name)
    ]
    return _changes("header", names, old.headers, new.headers)


def _changes(kind: str, names: Collection[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    lines = []
    for name in names:
        if kind == "header" or before.get(name) != after.get(name):
            if name in before:
                lines.append(f"-{kind} {name}: {_typed(before[name])}")
            if name in after:
                lines.append(f"+{kind} {name}: {_typed(after[name])}")
    return lines


def _typed(value: Any) -> str:
    """A value with its type where a reader could take it for another: `7` and `Int8 7` differ on the wire."""
    plain = type(value) in (str, bool, int, float, dict, list, type(None))
    return shorten(repr(value) if plain else f"{type(value).__name__} {value!r}", _VALUE_BYTES_MAX)


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _size(body: bytes) -> str:
    kind = "text" if _text(body) is not None else "gzip" if body[:2] == b"\x1f\x8b" else "binary"
    return f"{len(body):,} bytes of {kind}"
