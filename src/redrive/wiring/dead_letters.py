"""The store of dead letters, opened for `redrive dlq`, `redrive collect` and the admin API; messages as JSON."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redrive.core import SILENT, Observer, shorten
from redrive.deadletters import DeadLetterService, InvalidEdit
from redrive.records import MessageContent
from redrive.stores import Store, open_store, unwrap_envelope
from redrive.wire import Properties, ProtocolError, properties_as_json, properties_from_json
from redrive.wiring.connection_settings import ConnectionSettings


@asynccontextmanager
async def opened_store(
    connections: ConnectionSettings, *, observer: Observer = SILENT, creates: bool = True
) -> AsyncIterator[Store]:
    """The store, brought up to date if need be, and made if it is not there and `creates`.

    Raises `InvalidDatabaseUrl`, `StoreUnavailable`, `StoreTooNew`.
    """
    store = await open_store(connections.database.value, observer=observer, creates=creates)
    try:
        yield store
    finally:
        await store.close()


def dead_letter_service(store: Store) -> DeadLetterService:
    """Where people decide about dead letters."""
    return DeadLetterService(store, clock_ms=store.clock_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A content as JSON has it. `headers` are typed: see the docstring of `redrive.wire.typed_json`; a body that is no
    UTF-8 is base64."""

    properties: dict[str, Any]
    headers: Any
    body: str
    body_encoding: str


def describe(content: MessageContent) -> Described:
    """Everything of a message, lossless, whatever its bytes are; out of its envelope, if it was parked in one."""
    content = unwrap_envelope(content)
    properties = properties_as_json(content.properties)
    headers = properties.pop("headers", {})
    try:
        body, encoding = content.body.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(content.body).decode(), "base64"
    return Described(properties=properties, headers=headers, body=body, body_encoding=encoding)


def headers_from_json(written: Mapping[str, Any]) -> dict[str, Any]:
    """Headers of which `describe` made this, to be given to an `LetterEdit`. Raises `InvalidEdit`."""
    if not written:
        return {}
    try:
        return dict(Properties(properties_from_json({"headers": written})).headers or {})
    except (ProtocolError, ValueError, OverflowError) as error:
        raise InvalidEdit(f"these headers can't be written: {shorten(str(error), 300)}") from None
