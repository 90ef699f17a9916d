"""`redrive dlq show`: everything about a dead letter."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click
import msgspec

from redrive.cli.console import say
from redrive.cli.dlq.output import STATUS_COLOURS, print_json, print_line, print_table
from redrive.cli.dlq.selection import UnknownId, letter_id, on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format
from redrive.cli.text_tables import TableColumn, counted, moment_text, printable, size_text
from redrive.core import Attempt, RedriveError
from redrive.records import (
    DeadLetter,
    LifecycleEntry,
    MessageContent,
    Redaction,
    Role,
    View,
    attempt_json,
    letter_json,
    lifecycle_json,
    moment_json,
    trial_redaction,
)
from redrive.stores import EarlierContent, Store
from redrive.wiring import ContentJson, describe_content

_TEXT_MAX = 64_000
_HEX_MAX = 1024
_HEX_ROW = 16
_STACK_LINES = 30


_One = TypeVar("_One")


class HiddenBody(RedriveError):
    """A body that a role does not see at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    letter: DeadLetter
    content: MessageContent
    history: tuple[Attempt, ...]
    life: tuple[LifecycleEntry, ...]
    past: tuple[EarlierContent, ...]
    redactions: tuple[Redaction, ...]


@click.command("show")
@click.argument("letter", metavar="ID")
@click.option("--body", "body_only", is_flag=True, help="The body alone, byte for byte, to stdout.")
@click.option("--original", is_flag=True, help="The content as it was collected, before edits.")
@click.option("--as-role", type=click.Choice([str(one) for one in Role]), help="As the admin API shows it to a role.")
@click.option("--payloads", is_flag=True, help="With --as-role viewer: one that is granted payloads.")
@click.option("--hide-body", multiple=True, metavar="PATH", help="With --as-role: try to hide customer.card too.")
@click.option("--hide-header", multiple=True, metavar="NAME", help="With --as-role: try to hide a header too.")
@with_format
@with_connection
def show_command(
    connection: ConnectionOptions,
    letter: str,
    body_only: bool,
    original: bool,
    as_role: str | None,
    payloads: bool,
    hide_body: tuple[str, ...],
    hide_header: tuple[str, ...],
    form: str,
) -> None:
    """Show a dead letter: what went wrong, its attempts, its life, headers with their types, body.

    --as-role is a preview of what the admin API shows to a token with that role, by the redactions as they are; with
    --hide-body and --hide-header also by some that are only tried.

    \b
    Examples:
      redrive dlq show 1hv7
      redrive dlq show 1hv7 --body > body.json
      redrive dlq show 1hv7 --format json
      redrive dlq show 1hv7 --as-role operator --hide-body customer.card
    """
    if as_role is None and (payloads or hide_body or hide_header):
        raise click.UsageError("--payloads, --hide-body and --hide-header are about a role: say --as-role too")
    tried = [
        *(trial_redaction("body", one, Role(as_role or Role.VIEWER)) for one in hide_body),
        *(trial_redaction("header", one, Role(as_role or Role.VIEWER)) for one in hide_header),
    ]

    async def work(store: Store) -> _Whole:
        found_id = await letter_id(store, letter)
        found = await store.letters.get(found_id)
        content = await store.letters.content(found_id, edited=not original)
        if found is None or content is None:
            raise UnknownId(f"dead letter {found_id} was deleted meanwhile; look for others with: redrive dlq list")
        return _Whole(
            letter=found,
            content=content,
            history=tuple(await store.letters.history(found_id)),
            life=tuple(await store.letters.lifecycle(found_id)),
            past=tuple(await store.letters.earlier_contents(found_id)),
            redactions=() if as_role is None else await store.redactions.all(),
        )

    whole = on_store(connection, work)
    if as_role is not None:
        role = Role(as_role)
        sees_payloads = payloads or role.includes(Role.OPERATOR)
        view = View.of_role(role, sees_payloads=sees_payloads, redactions=[*whole.redactions, *tried])
        _show_as(view, whole, body_only=body_only, form=form)
        return
    if body_only:
        sys.stdout.buffer.write(whole.content.body)
        sys.stdout.buffer.flush()
        return
    described = describe_content(whole.content)
    if form == "json":
        print_json(_as_json(whole, described))
    else:
        _print(whole, described)


def _show_as(view: View, whole: _Whole, *, body_only: bool, form: str) -> None:
    """Prints what a role sees. What is hidden is left out, and that is said."""
    described = describe_content(whole.content)
    shown = view.content(described)
    body = view.body(whole.content.body)
    if body_only:
        if body is None:
            raise HiddenBody("the body is hidden from this role; look without --body to see the rest")
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    letter = view.letter(_as_json(whole, described))
    hidden = {
        **letter,
        "properties": shown["properties"],
        "headers": shown["headers"],
        "body": None if body is None else {"encoding": shown["body_encoding"], "content": shown["body"]},
        "redacted": letter["redacted"] or shown["redacted"],
    }
    if form == "json":
        print_json(hidden)
        return
    error = hidden["error"] or {"type": None, "message": None}
    seen = replace(
        whole,
        letter=replace(whole.letter, error_type=error["type"], error_message=error["message"], stack=hidden["stack"]),
        history=tuple(
            replace(one, error=seen["error"] or "…") for one, seen in _pairs(whole.history, hidden["history"])
        ),
        life=tuple(replace(one, detail=seen["detail"]) for one, seen in _pairs(whole.life, hidden["life"])),
        content=replace(whole.content, body=b"" if body is None else body),
    )
    headers = hidden["headers"] or {}
    shown_parts = replace(described, properties=hidden["properties"], headers=headers)
    _print(seen, shown_parts, size=len(whole.content.body), is_body_hidden=body is None, hides=view.hides_header)
    if hidden["redacted"]:
        say("Some of it is hidden from this role.")


def _pairs(ours: tuple[_One, ...], seen: list[dict[str, Any]]) -> list[tuple[_One, dict[str, Any]]]:
    return list(zip(ours, seen, strict=True))


def _as_json(whole: _Whole, described: ContentJson) -> dict[str, Any]:
    return {
        **letter_json(whole.letter),
        "stack": whole.letter.stack,
        "history": [attempt_json(one) for one in whole.history],
        "life": [lifecycle_json(one) for one in whole.life],
        "past": [{"at": moment_json(one.at_ms), "redrives": one.redrives} for one in whole.past],
        "properties": described.properties,
        "headers": described.headers,
        "body": {"encoding": described.body_encoding, "content": described.body},
    }


def _print(
    whole: _Whole,
    described: ContentJson,
    *,
    size: int | None = None,
    is_body_hidden: bool = False,
    hides: Callable[[str], bool] = lambda _: False,
) -> None:
    """For people. `size` is the whole body's, where what is shown is another; `hides` says which headers are hidden."""
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
        columns = [TableColumn(title=title, shrinks=title == "detail") for title in ("at", "event", "who", "detail")]
        rows = [(moment_text(one.at_ms), one.event, one.who, one.detail) for one in whole.life]
        print_table(columns, rows)
    _title("properties")
    for name, value in described.properties.items():
        print_line(f"  {name}: {value}")
    if described.headers:
        _title("headers")
        columns = [TableColumn(title="name"), TableColumn(title="type"), TableColumn(title="value", shrinks=True)]
        print_table(columns, header_rows(described.headers, hides=hides))
    shown_size = size_text(len(whole.content.body) if size is None else size)
    if is_body_hidden:
        _title(f"body, {shown_size} (hidden from this role)")
        return
    _title(f"body, {shown_size}")
    for line in body_lines(whole.content.body):
        click.echo(line)


def _facts(letter: DeadLetter) -> list[tuple[str, str]]:
    error = ": ".join(part for part in (letter.error_type, letter.error_message) if part)
    died = f"{letter.reason}, {moment_text(letter.dead_at_ms)}"
    counts = f"{counted(letter.redrives, 'time')}, {letter.returns} came back" if letter.redrives else ""
    marks = ", ".join(word for word, holds in (("poison", letter.is_poison), ("edited", letter.is_edited)) if holds)
    return [
        ("because", letter.status_reason or ""),
        ("marks", marks),
        ("queue", letter.queue),
        ("lay in", f"{letter.dlq} (vhost {letter.vhost}), collected {moment_text(letter.collected_at_ms)}"),
        ("published", f"exchange {letter.exchange or '(default)'}, key {letter.routing_key}"),
        ("died", died),
        ("error", error + (f" (status {letter.status_code})" if letter.status_code is not None else "")),
        ("explained", f"by {letter.told_by}"),
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


def header_rows(headers: Any, *, hides: Callable[[str], bool] = lambda _: False) -> list[tuple[str, str, str]]:
    """Name, AMQP type and value of each header, from their typed JSON; of one that is hidden the name alone."""
    entries = headers.items() if isinstance(headers, dict) else headers
    rows = []
    for name, value in entries:
        if hides(str(name)):
            rows.append((_inline(name), "-", "(hidden)"))
            continue
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
