"""The API without a network: `services` on a real SQLite store and a broker that is nowhere, clients by role.

A store belongs to one event loop, so everything runs in the test's `run`:

    def test_…(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
        async def scenario() -> None:
            letter = await put_letter(queue="orders", body=b"{}")
            client = await client_for(Role.OPERATOR, queues=("orders",))
            answer = await client.get("/api/v1/messages")

        run(scenario())
"""

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest
from fastapi import FastAPI
from starlette.routing import BaseRoute

from redrive.admin import ApiSettings, Services, SharedBroker, WorkerActivity, WorkerState, create_app
from redrive.deadletters import DeadLetterService, RedriveService
from redrive.records import DeadLetter, MessageContent, Role, Token, mint_token
from redrive.stores import Store, open_store
from redrive.wiring import find_connection_settings, new_id, new_random_bits, new_secret
from tests.unit.conftest import Run as Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, put

NOWHERE = "amqp://guest:guest@127.0.0.1:1/"
BASE_URL = "http://127.0.0.1:8080"
_ROUTES: list[BaseRoute] = []
"""Those of the first app, for `app_on`."""


@dataclass(slots=True)
class Clock:
    """The present, moved by hand."""

    now_ms: int = NOW_MS + 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass(slots=True)
class Noted:
    """An observer that remembers."""

    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def note(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [name for name, _ in self.events]


class ClientFor(Protocol):
    """Makes a client with a token of its own; `role` None: without a token."""

    async def __call__(
        self,
        role: Role | None,
        *,
        queues: tuple[str, ...] = (),
        payloads: bool = False,
        expires_at_ms: int | None = None,
        is_revoked: bool = False,
        name: str | None = None,
        address: str = "127.0.0.1",
    ) -> httpx.AsyncClient: ...


class PutLetter(Protocol):
    """Puts a dead letter into the store; `fields` are those of `DeadLetter`."""

    async def __call__(
        self, *, body: Any = None, headers: dict[str, Any] | None = None, title: str = "", **fields: Any
    ) -> DeadLetter: ...


@pytest.fixture
def clock() -> Clock:
    """The API's present."""
    return Clock()


@pytest.fixture
def noted() -> Noted:
    """What the API's observer was told."""
    return Noted()


@pytest.fixture
def woken() -> list[bool]:
    """One entry for each time that the redriver was woken."""
    return []


@pytest.fixture
def settings() -> ApiSettings:
    """The API's settings; a test module may have its own."""
    return ApiSettings()


@pytest.fixture
def store(tmp_path: Path, empty_database: Path, run: Run) -> Iterator[Store]:
    """A new, empty store."""
    shutil.copy(empty_database, tmp_path / "redrive.db")
    opened: Store = run(open_store(f"sqlite:///{tmp_path / 'redrive.db'}"))
    yield opened
    run(opened.close())


@pytest.fixture
def services(
    tmp_path: Path, store: Store, settings: ApiSettings, clock: Clock, noted: Noted, woken: list[bool], run: Run
) -> Iterator[Services]:
    """Services on the store; the broker is nowhere."""
    place = find_connection_settings(url=NOWHERE, database=f"sqlite:///{tmp_path / 'redrive.db'}", environment={})
    broker = SharedBroker(place, store, patience_s=0.5)
    yield Services(
        connections=place,
        store=store,
        dead_letters=DeadLetterService(store, clock_ms=clock),
        redrives=RedriveService(store, clock_ms=clock, random_bits=new_random_bits),
        broker=broker,
        settings=settings,
        workers=lambda: WorkerState(activity=WorkerActivity.OFF),
        observer=noted,
        clock_ms=clock,
        new_id=new_id,
        wake=lambda: woken.append(True),
    )
    run(broker.close())


@pytest.fixture
def app(services: Services) -> FastAPI:
    """The API on the services."""
    return app_on(services)


@pytest.fixture
def client_for(app: FastAPI, store: Store, clock: Clock, run: Run) -> Iterator[ClientFor]:
    """Clients over ASGI, without a network; each with a token of its own."""
    opened: list[httpx.AsyncClient] = []

    async def make(
        role: Role | None,
        *,
        queues: tuple[str, ...] = (),
        payloads: bool = False,
        expires_at_ms: int | None = None,
        is_revoked: bool = False,
        name: str | None = None,
        address: str = "127.0.0.1",
    ) -> httpx.AsyncClient:
        headers = {}
        if role is not None:
            named = name or f"{role} {len(opened)}"
            text = await make_token(
                store,
                named,
                role,
                queues=queues,
                payloads=payloads,
                expires_at_ms=expires_at_ms,
                is_revoked=is_revoked,
                now_ms=clock(),
            )
            headers = {"Authorization": f"Bearer {text}"}
        transport = httpx.ASGITransport(app, client=(address, 50_000))
        client = httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=headers)
        opened.append(client)
        return client

    yield make

    async def close() -> None:
        for client in opened:
            await client.aclose()

    run(close())


@pytest.fixture
def put_letter(store: Store) -> PutLetter:
    """Puts dead letters; each is a millisecond younger than the one before."""
    numbers = itertools.count(1)

    async def make(
        *, body: Any = None, headers: dict[str, Any] | None = None, title: str = "", **fields: Any
    ) -> DeadLetter:
        letter = make_letter(next(numbers), **fields)
        exported = make_exported(letter, body={} if isinstance(body, bytes) else body, headers=headers)
        if title:
            exported = replace(exported, group_title=title)
        if isinstance(body, bytes):
            content = MessageContent(properties=exported.content.properties, body=body)
            exported = replace(exported, content=content)
        await put(store, [exported])
        return letter

    return make


def app_on(services: Services) -> FastAPI:
    """As `create_app`, with the routes of the first app that was made here: they are the same in every app and know no
    services, and to make them ready for their first request takes longer than most tests."""
    app = create_app(services)
    # The first one is the document's, and each app has its own.
    if not _ROUTES:
        _ROUTES.extend(app.router.routes[1:])
    assert len(app.router.routes) == 1 + len(_ROUTES)
    app.router.routes[1:] = _ROUTES
    return app


async def make_token(
    store: Store,
    name: str,
    role: Role,
    *,
    queues: tuple[str, ...] = (),
    payloads: bool = False,
    expires_at_ms: int | None = None,
    is_revoked: bool = False,
    now_ms: int,
) -> str:
    """A new token's text; expired or revoked ones too."""
    token = Token(
        id=new_id(),
        name=name,
        role=role,
        queues=queues,
        sees_payloads=payloads,
        created_at_ms=now_ms,
        created_by="test",
        expires_at_ms=expires_at_ms,
    )
    text, secret_hash = mint_token(token.id, new_secret())
    await store.tokens.create(token, secret_hash=secret_hash, now_ms=now_ms)
    if is_revoked:
        await store.tokens.revoke(token.id, who="test", now_ms=now_ms)
    return text


async def audited(store: Store, action: str) -> list[tuple[str, str, int]]:
    """Who, what and how often, of one kind of entry in the audit; the newest first."""
    entries, _ = await store.audit.page(100, action=action)
    return [(entry.who, entry.subject, entry.count) for entry in entries]


def without_patience(services: Services, run: Run) -> Iterator[Services]:
    """The same, but nobody waits for the broker."""
    broker = SharedBroker(services.connections, services.store, patience_s=0.01)
    yield replace(services, broker=broker)
    run(broker.close())
