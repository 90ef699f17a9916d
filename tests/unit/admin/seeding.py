"""A store with one of everything, for tests of the whole API; and a client that sends what httpx would not."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
from fastapi import FastAPI

from redrive.admin import Services
from redrive.records import (
    NewOperation,
    Operation,
    OperationKind,
    Redaction,
    RetryRule,
    Role,
    Selection,
    Status,
)
from tests.unit.admin.conftest import PutLetter, make_token

OTHER_QUEUE, OTHER_DLQ = "payments", "payments.parked"
STATUSES = (Status.PENDING, Status.FAILED, Status.IN_DOUBT, Status.RESOLVED, Status.RETRYING)


@dataclass(slots=True)
class Seeded:
    """Ids of what is in the store: all of the queue `orders` but for `others`."""

    letters: list[str] = field(default_factory=list)
    """One of each of `STATUSES`."""
    others: list[str] = field(default_factory=list)
    """Dead letters of another queue."""
    groups: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    """A waiting one and a paused one."""
    tokens: list[str] = field(default_factory=list)
    redactions: list[str] = field(default_factory=list)


async def seed(services: Services, put_letter: PutLetter) -> Seeded:
    """Puts one of everything into the store."""
    seeded, store, now_ms = Seeded(), services.store, services.clock_ms()
    for status in STATUSES:
        letter = await put_letter(status=status, body={"order": 17, "card": "4711"}, headers={"x-tenant": "acme"})
        seeded.letters.append(letter.id)
    for _ in range(2):
        other = await put_letter(queue=OTHER_QUEUE, dlq=OTHER_DLQ, group_id="cards", body={"card": "0815"})
        seeded.others.append(other.id)
    seeded.groups += ["timeouts"]
    waiting = await operate(services, ((await put_letter()).id,))
    paused = await operate(services, ((await put_letter()).id,))
    await services.redrives.pause(paused.id, who="seed")
    seeded.operations += [waiting.id, paused.id]
    await store.rules.set(RetryRule(scope="queue:orders", attempts=3), now_ms=now_ms, who="seed")
    redaction = Redaction(id=services.new_id(), kind="body", path="card", hidden_from=Role.OPERATOR)
    seeded.redactions.append((await store.redactions.set(redaction, who="seed", now_ms=now_ms)).id)
    text = await make_token(store, f"somebody {services.new_id()}", Role.VIEWER, now_ms=now_ms)
    seeded.tokens.append(text.split("_")[1])
    return seeded


async def operate(services: Services, ids: tuple[str, ...]) -> Operation:
    """An operation that waits for its redriver, which never comes here."""
    new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=ids), who="seed")
    return await services.redrives.start(new)


async def ask(
    app: FastAPI,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str] | list[tuple[bytes, bytes]] | None = None,
    body: bytes = b"",
    address: str = "127.0.0.1",
) -> httpx.Response:
    """Asks for a target as it is, as a server would hand it on. Goes away after the first event of a stream."""
    path, _, query = target.partition("?")
    pairs = headers if isinstance(headers, list) else _encoded(headers or {})
    if body and not any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in pairs):
        pairs = [*pairs, (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "query_string": query.encode("latin-1"),
        "headers": [(b"host", b"127.0.0.1:8080"), *((name.lower(), value) for name, value in pairs)],
        "client": (address, 50_000),
        "server": ("127.0.0.1", 8080),
    }
    answer = _Answer(body)
    await app(scope, answer.receive, answer.send)
    request = httpx.Request(method, "http://127.0.0.1:8080/", headers=pairs)
    response = httpx.Response(answer.status, headers=answer.headers, content=b"".join(answer.chunks), request=request)
    response.elapsed = timedelta(0)
    return response


class _Answer:
    """Takes an answer; says that the client is gone where it begins as a stream of events."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.chunks: list[bytes] = []

    async def receive(self) -> dict[str, Any]:
        """The body, and then the client's end."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """One message of the answer."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            return
        self.chunks.append(message.get("body", b""))
        if b"event:" in self.chunks[-1] or not message.get("more_body", False):
            self._gone.set()


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
