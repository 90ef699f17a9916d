"""Export and import of dead letters as JSON lines, lossless, however many there are.

One line is one dead letter with everything known of it: its row, properties as typed JSON, body (`text` where it is
UTF-8, else `base64`), earlier contents, edits, lifecycle. Lines are written and read a few at a time. An import keeps
ids, except those of groups, which are made anew. A dead letter whose id exists already is left as it is. A line that
can't be read ends the import: what came before it is in the store, and the error says so.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, replace
from typing import Any

import msgspec

from redrive.core import Attempt, RedriveError, shorten
from redrive.records import DeadLetter, Filter, LifecycleEntry, MessageContent, group_of
from redrive.stores import EarlierContent, ExportedEdit, ExportedLetter, ImportResult, Store
from redrive.wire import EncodingError, properties_as_json, properties_from_json

FORMAT = "redrive-dead-letter/1"
PIECE = 100
PIECE_BYTES = 16 << 20
"""An import stores so many dead letters, or so many bytes, at a time."""
LINE_BYTES_MAX = 1 << 30


class BadLine(RedriveError):
    """A line of an import can't be read. Those before it are in the store, those from it on are not."""

    def __init__(self, number: int, reason: str, imported: ImportResult) -> None:
        self.number = number
        self.reason = reason
        self.imported = imported
        super().__init__(
            f"line {number}: {reason}; the {imported.inserted + imported.skipped:,} dead letters before it are in the"
            " store, nothing from it on is"
        )


async def export_lines(store: Store, filter: Filter, *, now_ms: int) -> AsyncIterator[bytes]:
    """A line, with its line end, for each dead letter that matches the filter, the longest dead first."""
    async for exported in store.letters.stream(filter, now_ms=now_ms):
        yield write_line(exported)


async def import_lines(store: Store, lines: Iterable[bytes], *, who: str, now_ms: int) -> ImportResult:
    """Stores the dead letters of the lines; empty lines are skipped. Raises BadLine, StoreUnavailable."""
    total = ImportResult(inserted=0, skipped=0)
    piece: list[ExportedLetter] = []
    piece_bytes = 0

    async def put() -> None:
        nonlocal total, piece, piece_bytes
        if piece:
            done = await store.letters.insert_exported(piece, who=who, now_ms=now_ms)
            total = ImportResult(inserted=total.inserted + done.inserted, skipped=total.skipped + done.skipped)
        piece, piece_bytes = [], 0

    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            piece.append(_regrouped(read_line(line), store.group_key))
        except ValueError as error:
            await put()
            raise BadLine(number, str(error), total) from None
        piece_bytes += len(line)
        if len(piece) >= PIECE or piece_bytes >= PIECE_BYTES:
            await put()
    await put()
    return total


def _regrouped(exported: ExportedLetter, group_key: bytes) -> ExportedLetter:
    """The letter in the group that it would be in if it had been collected here.

    Group ids belong to one database, and a line must not choose the group that its letter counts in.
    """
    kind = group_of(exported.letter, group_key=group_key)
    return replace(exported, letter=replace(exported.letter, group_id=kind.id), group_title=kind.title)


def write_line(exported: ExportedLetter) -> bytes:
    """One dead letter as a line of JSON."""
    line = {
        "format": FORMAT,
        "letter": asdict(exported.letter),
        **_content_as_json(exported.content),
        "history": [asdict(one) for one in exported.history],
        "past": [
            {"at_ms": one.at_ms, "redrives": one.redrives, **_content_as_json(one.content)}
            for one in exported.earlier_contents
        ],
        "edits": [
            {"at_ms": one.at_ms, "who": one.who, "why": one.why, "diff": one.diff, **_content_as_json(one.content)}
            for one in exported.edits
        ],
        "life": [{"version": version, **asdict(entry)} for version, entry in exported.lifecycle],
        "group_title": exported.group_title,
    }
    return msgspec.json.encode(line) + b"\n"


def read_line(line: bytes) -> ExportedLetter:
    """The dead letter of a line. Raises ValueError with the reason in a sentence."""
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        fields = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no JSON ({shorten(str(error), 100)})") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if "format" not in fields:
        raise ValueError(f"it does not say its format, {FORMAT}, as every line that export wrote does")
    if fields["format"] != FORMAT:
        raise ValueError(f"its format is {shorten(repr(fields['format']), 60)}, not {FORMAT!r}")
    try:
        return ExportedLetter(
            letter=msgspec.convert(fields.get("letter"), DeadLetter),
            content=_content_from_json(fields),
            history=msgspec.convert(fields.get("history"), tuple[Attempt, ...]),
            earlier_contents=tuple(_earlier_content(one) for one in _objects(fields, "past")),
            edits=tuple(_edit(one) for one in _objects(fields, "edits")),
            lifecycle=tuple(_lifecycle_entry(one) for one in _objects(fields, "life")),
            group_title=msgspec.convert(fields.get("group_title"), str),
        )
    except (msgspec.ValidationError, EncodingError) as error:
        raise ValueError(f"it is no dead letter ({shorten(str(error), 200)})") from None


def _content_as_json(content: MessageContent) -> dict[str, Any]:
    try:
        body = {"text": content.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(content.body).decode()}
    return {"properties": properties_as_json(content.properties), "body": body}


def _content_from_json(fields: dict[str, Any]) -> MessageContent:
    properties = msgspec.convert(fields.get("properties"), dict[str, Any])
    body = msgspec.convert(fields.get("body"), dict[str, str])
    if set(body) == {"text"}:
        raw = body["text"].encode()
    elif set(body) == {"base64"}:
        try:
            raw = base64.b64decode(body["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("it is no dead letter (its body is no base64)") from None
    else:
        raise ValueError("it is no dead letter (its body is neither `text` nor `base64`)")
    return MessageContent(properties=properties_from_json(properties), body=raw)


def _objects(fields: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return msgspec.convert(fields.get(name), list[dict[str, Any]])


def _earlier_content(fields: dict[str, Any]) -> EarlierContent:
    numbers = msgspec.convert({name: fields.get(name) for name in ("at_ms", "redrives")}, dict[str, int])
    return EarlierContent(content=_content_from_json(fields), **numbers)


def _edit(fields: dict[str, Any]) -> ExportedEdit:
    texts = msgspec.convert({name: fields.get(name) for name in ("who", "why", "diff")}, dict[str, str])
    return ExportedEdit(at_ms=msgspec.convert(fields.get("at_ms"), int), content=_content_from_json(fields), **texts)


def _lifecycle_entry(fields: dict[str, Any]) -> tuple[int, LifecycleEntry]:
    version = msgspec.convert(fields.get("version"), int)
    return version, msgspec.convert(fields, LifecycleEntry)
