"""The columns of a dead letter's row, declared once: by the fields of `records.DeadLetter`.

Every field is a column of `letters` with the same name, but for those in `_READ_FROM`. A new row takes a column from
the `Arrival` if that has a field of the name, else from its `Explanation`; a column that neither has is state, and
begins as its default, or as `_INITIAL` says. A redriven message that died again overwrites what the first two said.

To add a field: add it to `DeadLetter` (with a default), and to `Explanation` where headers tell it; add the column with
a module in `schema/versions`. Inserts, COPY, selects, updates, export and import follow from here.
"""

from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any

from redrive.records import Arrival, DeadLetter, Explanation

# A letter is claimed with the time at which it may count as silent, and counts as nothing before its copy is confirmed.
BEING_SENT = """
(l.status = 'retrying' AND EXISTS (
    SELECT 1 FROM items AS i WHERE i.letter_seq = l.seq AND i.state = 'sending' AND i.redrives = l.redrives))
"""
"""Whether the letter `l` has a copy on its way whose end is not recorded, as a condition."""

_READ_FROM = {
    "stack": "c.stack",
    "group_id": "g.id",
    "silent_at_ms": f"CASE WHEN {BEING_SENT} THEN NULL ELSE l.silent_at_ms END",
}
"""Fields that are not read from the column of their name: `c` are the contents, `g` is the group."""
_KEPT_ELSEWHERE = ("stack", "group_id")
_INITIAL: dict[str, Any] = {"redrives": 0, "returns": 0, "is_poison": 0, "is_edited": 0}
"""State of a new row in fields without a default; NULL in all others."""
_IDENTITY = ("id", "version", "status")
_MEASURED = ("size_bytes", "dead_at_ms")


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def text_fields(kind: type) -> tuple[str, ...]:
    """The fields of a record that hold a text, or None."""
    return tuple(field.name for field in fields(kind) if field.type in (str, str | None))


ORIGIN = tuple(name for name in text_fields(DeadLetter) if name in _names(Arrival) and name not in _IDENTITY)
"""Where a letter was taken from: columns that its arrival has."""
EXPLAINED = tuple(name for name in _names(DeadLetter) if name in _names(Explanation) and name not in _KEPT_ELSEWHERE)
"""What its headers say: columns that its explanation has."""
OVERWRITTEN = (*ORIGIN, *EXPLAINED, "error_folded", "group_seq", *_MEASURED)
"""The columns that a recurrence overwrites."""
STATE = tuple(
    name for name in _names(DeadLetter) if name not in (*_IDENTITY, *ORIGIN, *EXPLAINED, *_KEPT_ELSEWHERE, *_MEASURED)
)
"""What happened since it was collected."""

INSERTED = ("seq", *_IDENTITY, *OVERWRITTEN, *STATE)
"""All columns of `letters`."""
CONTENT_INSERTED = ("seq", "stack", "history", "properties", "body")
"""All columns of `contents`."""
SELECTED = ", ".join(("l.seq", *(_READ_FROM.get(name, f"l.{name}") for name in _names(DeadLetter))))
"""A letter's number, and its fields in the order of `DeadLetter`."""

origin_of = attrgetter(*ORIGIN)
explained_of = attrgetter(*EXPLAINED)
state_of = attrgetter(*STATE)


def new_state() -> list[Any]:
    """The values of `STATE` in a new row, before anything is known of it."""
    defaults = {field.name: field.default for field in fields(DeadLetter) if field.default is not MISSING}
    return [defaults.get(name, _INITIAL.get(name)) for name in STATE]
