"""`redrive dlq edit`: change a dead letter before it is sent back. The original stays, with the difference."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from redrive.cli.console import EXIT_COULD_NOT, keep_result, say
from redrive.cli.dlq.output import is_confirmed, print_json, print_line
from redrive.cli.dlq.selection import UnknownId, letter_id, on_store
from redrive.cli.dlq.shared_options import ConnectionOptions, with_connection, with_format, with_who
from redrive.cli.text_tables import printable
from redrive.core import UnreadableFile
from redrive.deadletters import EditedContent, LetterEdit, edit_content
from redrive.records import DeadLetter, MessageContent, letter_json
from redrive.stores import Store
from redrive.wiring import dead_letter_service

_PROPERTIES = (
    "content_type",
    "content_encoding",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "app_id",
)


@click.command("edit")
@click.argument("letter", metavar="ID")
@click.option("--body", metavar="TEXT", help="The new body.")
@click.option("--body-file", metavar="FILE", help="A file with the new body; - is stdin.")
@click.option("--editor", is_flag=True, help="Change the body in $EDITOR.")
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Set a header; NAME:=JSON for a number …")
@click.option("--drop-header", "dropped", multiple=True, metavar="NAME", help="Take a header away.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Set content_type, type, …")
@click.option("--why", required=True, metavar="TEXT", help="Kept with the difference.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@with_format
@with_who
@with_connection
def edit_command(
    connection: ConnectionOptions,
    letter: str,
    body: str | None,
    body_file: str | None,
    editor: bool,
    headers: tuple[str, ...],
    dropped: tuple[str, ...],
    properties: tuple[str, ...],
    why: str,
    yes: bool,
    form: str,
    who: str,
) -> None:
    """Change the body, headers or properties that a redrive will send. What is not named keeps its bytes.

    The difference is shown, asked about unless --yes, and kept; the original content is kept too.

    \b
    Examples:
      redrive dlq edit 1hv7 --editor --why 'customer id was wrong'
      redrive dlq edit 1hv7 --body-file fixed.json --header x-tenant=acme --header x-version:=2 --why 'new tenant' --yes
    """
    if sum((body is not None, body_file is not None, editor)) > 1:
        raise click.UsageError("Give the body once: --body, --body-file or --editor.")
    new_body = _body_of(body, body_file)
    set_headers = dict(_assignment(one, "--header") for one in headers)
    set_properties = dict(_property(one) for one in properties)

    keep_result()

    async def work(store: Store) -> tuple[DeadLetter, EditedContent] | None:
        found, content = await _found(store, letter)
        edit = LetterEdit(
            body=_edited_by_hand(content) if editor else new_body,
            set_headers=set_headers,
            drop_headers=dropped,
            properties=set_properties,
        )
        edited = edit_content(content, edit)
        if form == "text":
            for line in edited.diff.splitlines():
                print_line(line, fg="red" if line.startswith("-") else "green" if line.startswith("+") else None)
        if not is_confirmed(f"Keep this for {found.id}?", yes=yes):
            return None
        changed = await dead_letter_service(store).edit(found.id, edit, who=who, why=why, if_version=found.version)
        return changed, edited

    result = on_store(connection, work)
    if result is None:
        raise SystemExit(EXIT_COULD_NOT)
    changed, edited = result
    if form == "json":
        print_json({"letter": letter_json(changed), "diff": edited.diff})
    else:
        say(f"Kept. Send it with: redrive dlq retry {changed.id}")


async def _found(store: Store, text: str) -> tuple[DeadLetter, MessageContent]:
    found_id = await letter_id(store, text)
    found, content = await store.letters.get(found_id), await store.letters.content(found_id)
    if found is None or content is None:
        raise UnknownId(f"dead letter {found_id} was deleted meanwhile; look for others with: redrive dlq list")
    return found, content


def _body_of(body: str | None, body_file: str | None) -> bytes | None:
    if body is not None:
        return body.encode("utf-8", "surrogateescape")
    if body_file is None:
        return None
    try:
        return sys.stdin.buffer.read() if body_file == "-" else Path(body_file).read_bytes()
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
        raise UnreadableFile(path=printable(body_file), reason=reason, hint="name a file with the body") from None


def _edited_by_hand(content: MessageContent) -> bytes:
    try:
        text = content.body.decode()
    except UnicodeDecodeError:
        raise click.UsageError("The body is no text; give a new one with --body-file.") from None
    try:
        is_json = isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        is_json = False
    changed = click.edit(text, extension=".json" if is_json else ".txt", require_save=True)
    if changed is None:
        return content.body
    # Editors end the last line; a body that had no such end gets none.
    return (changed if text.endswith("\n") else changed.removesuffix("\n")).encode()


def _assignment(text: str, flag: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.UsageError(f"{flag} is given as NAME=TEXT, or NAME:=JSON for a number, true, a list or a table.")
    if not name.endswith(":"):
        return name, value
    try:
        return name.removesuffix(":"), json.loads(value)
    except (ValueError, RecursionError):
        raise click.UsageError(f"{flag} {name}=: what follows is no JSON; for text write {name[:-1]}=…") from None


def _property(text: str) -> tuple[str, Any]:
    name, value = _assignment(text, "--property")
    name = name.replace("-", "_")
    if name not in _PROPERTIES:
        raise click.UsageError(f"--property knows {', '.join(_PROPERTIES)}.")
    if name == "priority" and isinstance(value, str):
        if not (value.isascii() and value.isdigit()):
            raise click.UsageError("--property priority is a number from 0 to 255.")
        value = int(value)
    return name, value
