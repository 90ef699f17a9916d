"""Idempotency: a POST with an Idempotency-Key is done once, and its response is repeated for a day.

A refused request changed nothing, so a refusal releases the key, and the client may send the request again, corrected
or not. A response is stored before it is sent: a client that never received it repeats the request and gets it.
"""

import hashlib
from dataclasses import replace

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin.access.authorization import CALLER
from redrive.admin.access.caller import Caller
from redrive.admin.middleware.request_bodies import replaying
from redrive.admin.problems import HttpProblem, conflict, invalid
from redrive.admin.services import Services
from redrive.stores import KeyReservation, KeyReused, RequestInProgress, StoredResponse, StoreUnavailable

HEADER = "Idempotency-Key"
REPLAYED = (b"idempotency-replayed", b"true")
KEY_CHARACTERS_MAX = 200
_INSTEAD = "redrive.kept_instead"
_NOT_KEPT = frozenset({"content-length", "date", "server"})


def store_body_instead(request: Request, body: bytes) -> None:
    """Stores this body for repeated requests, because the response itself holds a secret."""
    instead = request.scope.get(_INSTEAD)
    if instead is not None:
        instead.append(body)


class Idempotency:
    """Does a POST with a key once per token."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpProblem` 409 and 422, and `StoreUnavailable`."""
        caller = scope.get(CALLER)
        key = _key_of(scope)
        if key is None or not isinstance(caller, Caller):
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            return
        answers = self._services.store.answers
        reserved = await answers.reserve(caller.token_id, key, _hash(scope, body), now_ms=self._services.clock_ms())
        match reserved:
            case StoredResponse():
                await _send(reserved, send, REPLAYED)
            case RequestInProgress():
                raise conflict("in-flight", "a request with this Idempotency-Key is being worked on; ask again later")
            case KeyReused():
                title = "The Idempotency-Key belongs to another request"
                detail = "this Idempotency-Key came before with another request; use a new key for a new request"
                raise HttpProblem(status=422, name="idempotency-key-reused", title=title, detail=detail)
            case KeyReservation():
                await self._work(reserved, scope, replaying(body, receive), send)

    async def _work(self, reservation: KeyReservation, scope: Scope, receive: Receive, send: Send) -> None:
        captured = _CapturedResponse()
        instead: list[bytes] = []
        try:
            await self._app({**scope, _INSTEAD: instead}, receive, captured.capture)
        except Exception:
            await self._release(reservation)
            raise
        answer = captured.answer()
        if answer.status >= 400:
            await self._release(reservation)
        else:
            try:
                kept = replace(answer, body=instead[-1]) if instead else answer
                await self._services.store.answers.keep(reservation, kept)
            except StoreUnavailable:
                # The request is done and the client must learn that; a response that can't be repeated is the lesser
                # evil.
                self._services.observer.note("admin.answer_not_kept", status=answer.status)
        await _send(answer, send)

    async def _release(self, reservation: KeyReservation) -> None:
        try:
            await self._services.store.answers.release(reservation)
        except StoreUnavailable:
            pass  # another request may take the key over after a minute


class _CapturedResponse:
    """Captures a response instead of sending it."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: tuple[tuple[str, str], ...] = ()
        self._body: list[bytes] = []

    async def capture(self, message: Message) -> None:
        """Captures one ASGI message of the response."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self._headers = tuple((name, value) for name, value in pairs if name.lower() not in _NOT_KEPT)
        elif message["type"] == "http.response.body":
            self._body.append(message.get("body", b""))

    def answer(self) -> StoredResponse:
        """The whole response."""
        return StoredResponse(status=self._status, headers=self._headers, body=b"".join(self._body))


def _key_of(scope: Scope) -> str | None:
    """The key of a POST. Raises `HttpProblem` 422 where it can't be one."""
    if scope["type"] != "http" or scope["method"] != "POST":
        return None
    found = Headers(scope=scope).getlist(HEADER)
    if not found:
        return None
    key = found[0].strip()
    if len(found) > 1 or not key or len(key) > KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        raise invalid(f"an Idempotency-Key is 1 to {KEY_CHARACTERS_MAX} visible ASCII characters, such as a UUID")
    return key


def _hash(scope: Scope, body: bytes) -> bytes:
    digest = hashlib.sha256()
    for part in (scope["path"].encode("utf-8", "replace"), scope.get("query_string", b""), body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


async def _read(receive: Receive) -> bytes | None:
    """The body, which `RequestBodies` has read already; None if the client disconnected."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


async def _send(answer: StoredResponse, send: Send, *more: tuple[bytes, bytes]) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    length = (b"content-length", str(len(answer.body)).encode())
    await send({"type": "http.response.start", "status": answer.status, "headers": [*headers, length, *more]})
    await send({"type": "http.response.body", "body": answer.body})
