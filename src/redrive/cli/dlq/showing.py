"""`redrive dlq show`: everything about a dead letter."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from redrive.cli.console import say
from redrive.cli.dlq.options import PlaceOptions, with_format, with_place
from redrive.cli.dlq.output import STATUS_COLOURS, print_json, print_line, print_table
from redrive.cli.dlq.selecting import UnknownLetter, letter_id, on_store
from redrive.cli.tables import Column, moment_text, printable, size_text
from redrive.core import Attempt
from redrive.dlq import Described, PastContent, Store, describe
from redrive.records import Content, DeadLetter, Happening, attempt_json, happening_json, letter_json, moment_json

_TEXT_MAX = 64_000
_HEX_MAX = 1024
_HEX_ROW = 16
_STACK_LINES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    letter: DeadLetter
    content: Content
    history: tuple[Attempt, ...]
    life: tuple[Happening, ...]
    past: tuple[PastContent, ...]


@click.command("show")
@click.argument("letter", metavar="ID")
@click.option("--body", "body_only", is_flag=True, help="The body alone, byte for byte, to stdout.")
@click.option("--original", is_flag=True, help="The content as it was collected, before edits.")
@with_format
@with_place
def show_command(place: PlaceOptions, letter: str, body_only: bool, original: bool, form: str) -> None:
    """Show a dead letter: what went wrong, its attempts, its life, headers with their types, body.

    \b
    Examples:
      redrive dlq show 1hv7
      redrive dlq show 1hv7 --body > body.json
      redrive dlq show 1hv7 --format json
    """

    async def work(store: Store) -> _Whole:
        found_id = await letter_id(store, letter)
        found = await store.letters.get(found_id)
        content = await store.letters.content(found_id, edited=not original)
        if found is None or content is None:
            raise UnknownLetter(f"dead letter {found_id} was deleted meanwhile; look for others with: redrive dlq list")
        return _Whole(
            letter=found,
            content=content,
            history=tuple(await store.letters.history(found_id)),
            life=tuple(await store.letters.life(found_id)),
            past=tuple(await store.letters.past(found_id)),
        )

    whole = on_store(place, work)
    if body_only:
        sys.stdout.buffer.write(whole.content.body)
        sys.stdout.buffer.flush()
        return
    described = describe(whole.content)
    if form == "json":
        print_json(_as_json(whole, described))
    else:
        _print(whole, described)


def _as_json(whole: _Whole, described: Described) -> dict[str, Any]:
    return {
        **letter_json(whole.letter),
        "stack": whole.letter.stack,
        "history": [attempt_json(one) for one in whole.history],
        "life": [happening_json(one) for one in whole.life],
        "past": [{"at": moment_json(one.at_ms), "redrives": one.redrives} for one in whole.past],
        "properties": described.properties,
        "headers": described.headers,
        "body": {"encoding": described.body_encoding, "content": described.body},
    }


def _print(whole: _Whole, described: Described) -> None:
    letter = whole.letter
    print_line(f"dead letter {letter.id}", bold=True)
    print_line(f"status     {letter.status}", fg=STATUS_COLOURS.get(letter.status))
    for name, value in _facts(letter):
        if value:
            print_line(f"{name:<10} {value}")
    if letter.stack:
        _title("stack")
        lines = printable(letter.stack, keeps_lines=True).splitlines()
        for line in lines[:_STACK_LINES]:
            click.echo(f"  {line}")
        if len(lines) > _STACK_LINES:
            say(f"  … {len(lines) - _STACK_LINES} more lines (--format json)")
    if whole.history:
        _title("attempts")
        for one in whole.history:
            print_line(f"  {one.number}  {moment_text(one.at_ms)}  {one.error}")
    if whole.life:
        _title("life")
        columns = [Column(title=title, shrinks=title == "detail") for title in ("at", "event", "who", "detail")]
        rows = [(moment_text(one.at_ms), one.event, one.who, one.detail) for one in whole.life]
        print_table(columns, rows)
    _title("properties")
    for name, value in described.properties.items():
        print_line(f"  {name}: {value}")
    if described.headers:
        _title("headers")
        columns = [Column(title="name"), Column(title="type"), Column(title="value", shrinks=True)]
        print_table(columns, header_rows(described.headers))
    _title(f"body, {size_text(len(whole.content.body))}")
    for line in body_lines(whole.content.body):
        click.echo(line)


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    error = ": ".join(part for part in (letter.error_type, letter.error_message) if part)
    died = f"{letter.reason}, {moment_text(letter.dead_at_ms)}"
    counts = f"{letter.redrives} redrives, {letter.returns} came back" if letter.redrives else ""
    marks = ", ".join(word for word, holds in (("poison", letter.is_poison), ("edited", letter.is_edited)) if holds)
    return [
        ("because", letter.status_reason or ""),
        ("marks", marks),
        ("queue", letter.queue),
        ("lay in", f"{letter.dlq} (vhost {letter.vhost}), collected {moment_text(letter.collected_at_ms)}"),
        ("published", f"exchange {letter.exchange or '(default)'}, key {letter.routing_key}"),
        ("died", died),
        ("error", error + (f" (status {letter.status_code})" if letter.status_code is not None else "")),
        ("told by", letter.told_by),
        ("attempts", "" if letter.attempts is None else str(letter.attempts)),
        ("redriven", counts),
        ("due", "" if letter.due_at_ms is None else f"{moment_text(letter.due_at_ms)} (auto-retry)"),
        ("silent at", "" if letter.silent_at_ms is None else f"{moment_text(letter.silent_at_ms)}, then resolved"),
        ("message", letter.message_id or ""),
        ("correlated", letter.correlation_id or ""),
        ("type", letter.type or ""),
        ("service", letter.service or ""),
        ("group", letter.group_id),
        ("copy of", letter.copy_of or ""),
        ("resolved", f"by {letter.resolved_by}" if letter.resolved_by else ""),
        ("operation", letter.operation_id or ""),
    ]


def body_lines(body: bytes) -> list[str]:
    """A body as a person reads it: JSON pretty-printed, text as it is, everything else in hex; bounded."""
    if not body:
        return ["  (empty)"]
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _hex_lines(body)
    if len(text) <= _TEXT_MAX:
        try:
            # It only sets spaces and lines: numbers, doubled keys and escapes stay as they were written.
            text = msgspec.json.format(text, indent=2)
        except (msgspec.DecodeError, RecursionError):
            pass
    shown = printable(text[:_TEXT_MAX], keeps_lines=True)
    lines = [f"  {line}" for line in shown.splitlines()]
    if len(text) > _TEXT_MAX:
        lines.append(f"  … {len(text) - _TEXT_MAX:,} more characters; all of it: --body")
    return lines


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for start in range(0, min(len(body), _HEX_MAX), _HEX_ROW):
        row = body[start : start + _HEX_ROW]
        visible = "".join(chr(octet) if 32 <= octet < 127 else "." for octet in row)
        lines.append(f"  {start:08x}  {row.hex(' '):<{_HEX_ROW * 3}} {visible}")
    if len(body) > _HEX_MAX:
        lines.append(f"  … {len(body) - _HEX_MAX:,} more bytes; all of them: --body")
    return lines


def header_rows(headers: Any) -> list[tuple[str, str, str]]:
    """Name, AMQP type and value of each header, from their typed JSON."""
    entries = headers.items() if isinstance(headers, dict) else headers
    rows = []
    for name, value in entries:
        kind, shown = _TYPES.get(type(value), "table"), value
        if isinstance(value, dict) and "type" in value:
            kind = value["type"]
            shown = next(value[key] for key in ("value", "base64", "hex", "entries") if key in value)
        rows.append((_inline(name), kind, _inline(shown)))
    return rows


_TYPES = {str: "text", bool: "bool", int: "int", float: "double", type(None): "null", list: "list", dict: "table"}


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _title(text: str) -> None:
    click.echo()
    print_line(text, bold=True)
