"""What a request may cost: time, and bytes of its body. Pure ASGI, outside of the framework.

`Boundary` is where every error ends: what has a meaning for a client is answered so, anything else is 500 and noted by
its type only, since its text may be somebody's payload. `Bodies` reads bodies before anybody works on them, so that a
slow or endless one holds nothing but its own connection.
"""

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin.problems import Problem, internal, problem_of, unavailable
from redrive.admin.services import Services
from redrive.admin.settings import Settings
from redrive.admin.shares import SHARE, Share, Shares

_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_CLOSING = {"Connection": "close"}


class Boundary:
    """Ends every request in time, and with an answer."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; what is no HTTP goes on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        settings = self._services.settings
        loop = asyncio.get_running_loop()
        is_begun = False
        problem: Problem | None = None

        async def watched(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                limit.reschedule(None if _is_stream(message) else loop.time() + settings.sending_s_max)
            await send(message)

        try:
            async with asyncio.timeout(settings.request_s_max) as limit:
                await self._app(scope, receive, watched)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever went wrong, a client is answered
            problem = _timed_out(settings) if limit.expired() else self._problem(error, scope)
        if problem is not None and not is_begun:
            await problem.response(scope["path"])(scope, receive, send)

    def _problem(self, error: Exception, scope: Scope) -> Problem:
        problem = problem_of(error)
        if problem is None:
            problem = internal()
            self._services.observer.note(
                "admin.failed", error=type(error).__name__, at=_place_of(error), method=scope["method"]
            )
        return problem


class Bodies:
    """Reads a request's body up to its limit, in time, and hands it on whole."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises `Problem` 408, 413, 429 and 503."""
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        limit = self._settings.edit_bytes_max if scope["method"] == "PATCH" else self._settings.body_bytes_max
        declared = Headers(scope=scope).get("content-length", "")
        if declared and (not declared.isdigit() or len(declared) > 15 or int(declared) > limit):
            raise _too_large(limit)
        share = scope.get(SHARE)
        if not isinstance(share, Share):
            share = Share(Shares(), "", self._settings)
        taken = _Taken()
        try:
            try:
                async with share.receiving(), asyncio.timeout(self._settings.body_s_max):
                    body = await self._receive(receive, taken, share, limit)
            except TimeoutError:
                raise _too_slow(self._settings) from None
            if body is not None:
                await share.begin()
                await self._app(scope, replaying(body, receive), send)
        finally:
            self._held -= taken.count

    async def _receive(self, receive: Receive, taken: "_Taken", share: Share, limit: int) -> bytes | None:
        """All of it; None where the client is gone."""
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            self._held += len(chunk)
            taken.count += len(chunk)
            share.hold(len(chunk))
            if taken.count > limit:
                raise _too_large(limit)
            if self._held > self._settings.buffered_bytes_max:
                raise unavailable("busy", "Too much at once", "too many large requests at once; ask again")
            if chunk:
                chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


@dataclass(slots=True)
class _Taken:
    """Bytes of one body that are in hand."""

    count: int = 0


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body first, and then what the connection says."""
    is_given = False

    async def replayed() -> MutableMapping[str, Any]:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


def _timed_out(settings: Settings) -> Problem:
    detail = f"the request took longer than {settings.request_s_max:g} s and was given up; ask for less, or again later"
    return unavailable("timed-out", "It took too long", detail)


def _too_slow(settings: Settings) -> Problem:
    detail = f"the request's body was not here after {settings.body_s_max:g} s; send it faster, or less of it"
    return Problem(status=408, name="body-too-slow", title="The body came too slowly", detail=detail, headers=_CLOSING)


def _too_large(limit: int) -> Problem:
    detail = f"the request's body is larger than {limit:,} bytes; send less at once"
    # The connection stays: closed while the client still sends, it would be reset before the answer was read.
    return Problem(status=413, name="body-too-large", title="The body is too large", detail=detail)


def _place_of(error: BaseException) -> str:
    """The module and line where it was raised: enough to find it, and nothing of what it was about."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
