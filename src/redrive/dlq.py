"""Wiring, for dead letters in the store: where it is, and what people do at it. `redriving` adds the broker.

Chosen here, for `redrive dlq` and for the admin API. What speaks to a broker or reads a file is imported only where it
is asked for: a list of dead letters should be there at once.
"""

import base64
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redrive.config import Setting, broker_url, database_url, names_vhost
from redrive.config import management_url as management_setting
from redrive.core import SILENT, Observer, shorten
from redrive.deadletters import (
    ActionRefused,
    DeadLetterService,
    EditedContent,
    InvalidEdit,
    LetterEdit,
    RecordNotFound,
    edit_content,
    export_lines,
    import_lines,
)
from redrive.records import LUCK_BITS, SECRET_BYTES, Content, make_id
from redrive.stores import (
    CLOCK_OFF_MS,
    Answer,
    Bucket,
    Changed,
    FilterTooDear,
    IdempotencyConflict,
    Imported,
    InFlight,
    InvalidCursor,
    InvalidScope,
    KeyReused,
    LeaseLost,
    LetterBusy,
    PastContent,
    Reservation,
    Stats,
    Store,
    StoreError,
    StoreUnavailable,
    TokenNameTaken,
    UnknownGroup,
    UnknownLetter,
    UnknownOperation,
    UnknownRedaction,
    UnknownToken,
    VersionConflict,
    WholeLetter,
    WiderRule,
    acting_as,
    body_as_seen,
    exposed_mode,
    open_store,
    opened,
)
from redrive.wire import Properties, ProtocolError, properties_as_json, properties_from_json

if TYPE_CHECKING:
    from redrive.client import Backoff, Client, Target
    from redrive.files import LoadedFile
    from redrive.management import Management

__all__ = [
    "CLOCK_OFF_MS",
    "ActionRefused",
    "Answer",
    "Bucket",
    "Changed",
    "DeadLetterService",
    "Described",
    "EditedContent",
    "FilterTooDear",
    "IdempotencyConflict",
    "Imported",
    "InFlight",
    "InvalidCursor",
    "InvalidEdit",
    "InvalidScope",
    "KeyReused",
    "LeaseLost",
    "LetterBusy",
    "LetterEdit",
    "PastContent",
    "Place",
    "RecordNotFound",
    "Reservation",
    "Stats",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "TokenNameTaken",
    "UnknownGroup",
    "UnknownLetter",
    "UnknownOperation",
    "UnknownRedaction",
    "UnknownToken",
    "VersionConflict",
    "WholeLetter",
    "WiderRule",
    "acting_as",
    "body_as_seen",
    "describe",
    "desk_on",
    "edit_content",
    "export_lines",
    "exposed_mode",
    "find_place",
    "headers_from_json",
    "import_lines",
    "new_id",
    "new_luck",
    "new_secret",
    "now_ms",
    "opened_store",
    "owner_name",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the dead letters and their broker are, and who said so. Nothing is opened or even read yet."""

    url: Setting
    management_url: Setting | None
    database: Setting
    loaded: "LoadedFile | None" = None

    @property
    def target(self) -> "Target":
        """The broker and vhost. The URL's vhost wins over the file's. Raises `InvalidUrl`."""
        from redrive.client import parse_url

        target = parse_url(self.url.value)
        if self.loaded is not None and not names_vhost(self.url.value) and self.loaded.topology.vhosts:
            return replace(target, vhost=self.loaded.topology.vhosts[0].name)
        return target

    def client(
        self, name: str, *, observer: Observer = SILENT, backoff: "Callable[[], Backoff] | None" = None
    ) -> "AbstractAsyncContextManager[Client]":
        """A connection to the broker, for a block. What the broker refuses is told with what to change.

        Raises `InvalidUrl`; and in the block `ConnectionFailed`, `NotLetIn`, `AccessMissing`.
        """
        from redrive.client import Backoff
        from redrive.connecting import connected

        backoff = Backoff if backoff is None else backoff
        return connected(self.target, self.url, name=name, observer=observer, backoff=backoff)

    def management(self) -> "Management":
        """A client of the management API, where it was said to be or where it usually is; nothing is asked yet.

        Raises `InvalidUrl`, `InvalidManagementUrl`.
        """
        from redrive.connecting import management_of

        return management_of(self.target, self.management_url)


def find_place(
    *,
    url: str | None = None,
    management_url: str | None = None,
    database: str | None = None,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Place:
    """A flag wins, then the environment, then the file. Raises what reading a file may."""
    known = os.environ if environment is None else environment
    loaded = None
    if file is not None:
        from redrive.files import load

        loaded = load(file)
    return Place(
        url=broker_url(flag=url, environment=known, file=None if loaded is None else loaded.broker),
        management_url=management_setting(flag=management_url, environment=known),
        database=database_url(flag=database, environment=known, file=None if loaded is None else loaded.database),
        loaded=loaded,
    )


@asynccontextmanager
async def opened_store(place: Place, *, observer: Observer = SILENT, creates: bool = True) -> AsyncIterator[Store]:
    """The store, brought up to date if need be, and made if it is not there and `creates`.

    Raises `InvalidDatabaseUrl`, `StoreUnavailable`, `StoreTooNew`.
    """
    store = await open_store(place.database.value, observer=observer, creates=creates)
    try:
        yield store
    finally:
        await store.close()


def desk_on(store: Store) -> DeadLetterService:
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


def describe(content: Content) -> Described:
    """Everything of a message, lossless, whatever its bytes are; out of its envelope, if it was parked in one."""
    content = opened(content)
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


def now_ms() -> int:
    """This machine's clock, in milliseconds since 1970. What is kept in a store goes by `Store.clock_ms`."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A new id, of now."""
    return make_id(now_ms(), new_luck())


def new_secret() -> bytes:
    """Random bytes for a token."""
    return secrets.token_bytes(SECRET_BYTES)


def owner_name() -> str:
    """This process among all that share a database."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def new_luck() -> int:
    """Random bits for an id."""
    return secrets.randbits(LUCK_BITS)
