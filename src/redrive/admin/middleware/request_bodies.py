"""Request bodies: read whole, up to a size and in time, before anything works on the request.

So a slow or endless body occupies nothing but its own connection.
"""

import asyncio
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.admin.middleware.quotas import QUOTA, RequestQuota, TokenQuotas
from redrive.admin.problems import HttpProblem, unavailable
from redrive.admin.settings import ApiSettings

_WITHOUT_BODY = ("GET", "HEAD", "OPTIONS")
_CLOSING = {"Connection": "close"}


class RequestBodies:
    """Reads a request's body and passes it on whole."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._held = 0
        """Bytes of all bodies in memory."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpProblem` 408, 413, 429 and 503."""
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        limit = self._settings.edit_bytes_max if scope["method"] == "PATCH" else self._settings.body_bytes_max
        declared = Headers(scope=scope).get("content-length", "")
        if declared and (not declared.isdigit() or len(declared) > 15 or int(declared) > limit):
            raise _too_large(limit)
        quota = scope.get(QUOTA)
        if not isinstance(quota, RequestQuota):
            quota = RequestQuota(TokenQuotas(self._settings), "")
        held = _HeldBytes()
        try:
            try:
                async with quota.receiving(), asyncio.timeout(self._settings.body_s_max):
                    body = await self._receive(receive, held, quota, limit)
            except TimeoutError:
                raise _too_slow(self._settings) from None
            if body is not None:
                await quota.begin()
                await self._app(scope, replaying(body, receive), send)
        finally:
            self._held -= held.count

    async def _receive(self, receive: Receive, held: "_HeldBytes", quota: RequestQuota, limit: int) -> bytes | None:
        """The whole body; None if the client disconnected."""
        chunks: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            self._held += len(chunk)
            held.count += len(chunk)
            quota.hold(len(chunk))
            if held.count > limit:
                raise _too_large(limit)
            if self._held > self._settings.buffered_bytes_max:
                raise unavailable("busy", "Too much at once", "too many large requests at once; ask again")
            if chunk:
                chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


@dataclass(slots=True)
class _HeldBytes:
    """Bytes of one body that are in memory."""

    count: int = 0


def replaying(body: bytes, receive: Receive) -> Receive:
    """A `receive` that first returns this body, and then what the connection sends."""
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


def _too_slow(settings: ApiSettings) -> HttpProblem:
    detail = f"the request's body did not arrive within {settings.body_s_max:g} s; send it faster, or less of it"
    return HttpProblem(
        status=408, name="body-too-slow", title="The body came too slowly", detail=detail, headers=_CLOSING
    )


def _too_large(limit: int) -> HttpProblem:
    detail = f"the request's body is larger than {limit:,} bytes; send less at once"
    # The connection stays: closed while the client still sends, it would be reset before the answer was read.
    return HttpProblem(status=413, name="body-too-large", title="The body is too large", detail=detail)
