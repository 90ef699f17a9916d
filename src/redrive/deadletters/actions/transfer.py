"""Export and import of dead letters as JSON lines, lossless, however many there are.

One line is one dead letter with all that is known of it: its row, properties as typed JSON, body (`text` where it is
UTF-8, else `base64`), earlier contents, edits, life. Lines are written and read a few at a time. An import keeps ids,
except those of groups, which are made anew; a dead letter whose id is there already is left as it is. A line that can't
be read ends the import: what came before it is in the store, and the error says so.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Iterable
from dataclasses import asdict, replace
from typing import Any

import msgspec

from redrive.core import Attempt, RedriveError, shorten
from redrive.records import DeadLetter, Filter, LifecycleEntry, MessageContent, group_of
from redrive.stores import ExportedEdit, ExportedLetter, ImportResult, PastContent, Store
from redrive.wire import EncodingError, properties_as_json, properties_from_json

FORMAT = "redrive-dead-letter/1"
PIECE = 100
PIECE_BYTES = 16 << 20
"""An import stores so many, or so much, at a time."""
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
    """A line, with its end, for each dead letter that the filter holds for, the longest dead first."""
    async for exported in store.letters.stream(filter, now_ms=now_ms):
        yield write_line(exported)


async def import_lines(store: Store, lines: Iterable[bytes], *, who: str, now_ms: int) -> ImportResult:
    """Stores what the lines tell; empty ones are passed over. Raises BadLine, StoreUnavailable."""
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
    """In the group that it would be in if it had been collected here: ids of groups are those of one database, and a
    group stands for its letters, so a line must not choose it."""
    kind = group_of(exported.letter, group_key=group_key)
    return replace(exported, letter=replace(exported.letter, group_id=kind.id), group_title=kind.title)


def write_line(exported: ExportedLetter) -> bytes:
    """One dead letter as a line of JSON."""
    told = {
        "format": FORMAT,
        "letter": asdict(exported.letter),
        **_content_as_json(exported.content),
        "history": [asdict(one) for one in exported.history],
        "past": [
            {"at_ms": one.at_ms, "redrives": one.redrives, **_content_as_json(one.content)} for one in exported.past
        ],
        "edits": [
            {"at_ms": one.at_ms, "who": one.who, "why": one.why, "diff": one.diff, **_content_as_json(one.content)}
            for one in exported.edits
        ],
        "life": [{"version": version, **asdict(happening)} for version, happening in exported.life],
        "group_title": exported.group_title,
    }
    return msgspec.json.encode(told) + b"\n"


def read_line(line: bytes) -> ExportedLetter:
    """The dead letter of a line. Raises ValueError with the reason in a sentence."""
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"it is longer than {LINE_BYTES_MAX:,} bytes")
    try:
        told = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no JSON ({shorten(str(error), 100)})") from None
    if not isinstance(told, dict):
        raise ValueError("it is no JSON object")
    if "format" not in told:
        raise ValueError(f"it does not say its format, {FORMAT}, as every line that export wrote does")
    if told["format"] != FORMAT:
        raise ValueError(f"its format is {shorten(repr(told['format']), 60)}, not {FORMAT!r}")
    try:
        return ExportedLetter(
            letter=msgspec.convert(told.get("letter"), DeadLetter),
            content=_content_from_json(told),
            history=msgspec.convert(told.get("history"), tuple[Attempt, ...]),
            past=tuple(_past(one) for one in _objects(told, "past")),
            edits=tuple(_edit(one) for one in _objects(told, "edits")),
            life=tuple(_happening(one) for one in _objects(told, "life")),
            group_title=msgspec.convert(told.get("group_title"), str),
        )
    except (msgspec.ValidationError, EncodingError) as error:
        raise ValueError(f"it is no dead letter ({shorten(str(error), 200)})") from None


def _content_as_json(content: MessageContent) -> dict[str, Any]:
    try:
        body = {"text": content.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(content.body).decode()}
    return {"properties": properties_as_json(content.properties), "body": body}


def _content_from_json(told: dict[str, Any]) -> MessageContent:
    properties = msgspec.convert(told.get("properties"), dict[str, Any])
    body = msgspec.convert(told.get("body"), dict[str, str])
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


def _objects(told: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return msgspec.convert(told.get(name), list[dict[str, Any]])


def _past(told: dict[str, Any]) -> PastContent:
    numbers = msgspec.convert({name: told.get(name) for name in ("at_ms", "redrives")}, dict[str, int])
    return PastContent(content=_content_from_json(told), **numbers)


def _edit(told: dict[str, Any]) -> ExportedEdit:
    texts = msgspec.convert({name: told.get(name) for name in ("who", "why", "diff")}, dict[str, str])
    return ExportedEdit(at_ms=msgspec.convert(told.get("at_ms"), int), content=_content_from_json(told), **texts)


def _happening(told: dict[str, Any]) -> tuple[int, LifecycleEntry]:
    version = msgspec.convert(told.get("version"), int)
    return version, msgspec.convert(told, LifecycleEntry)
