"""What every request passes before the app: it is counted and logged, and streams end when the server stops.

A log line has the method, the path, the names of query parameters, the status, the time and who asked. Never a value of
the query, a header, a body or a token: filters quote payloads.
"""

import asyncio
import logging
import re
import time
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin import CALLER
from redrive.core import Observer
from redrive.serving.worker_throttle import OpenRequests

_PATH_MAX = 300
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z_-]{0,29}")
_PROBES = ("/healthz", "/readyz", "/metrics")
_STREAM = b"text/event-stream"


class RequestMonitor:
    """An ASGI app around another."""

    def __init__(
        self, app: ASGIApp, *, observer: Observer, stopping: asyncio.Event, open_requests: OpenRequests | None = None
    ) -> None:
        self._app = app
        self._observer = observer
        self._stopping = stopping
        self._open_requests = OpenRequests() if open_requests is None else open_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s = time.perf_counter()
        answer = _Answer()
        open_requests = self._open_requests

        async def sent(message: Message) -> None:
            answer.see(message)
            if answer.is_stream and not answer.is_uncounted:
                # It lasts for hours, and nobody waits for its end.
                answer.is_uncounted = True
                open_requests.count -= 1
            await send(message)

        async def received() -> Message:
            return await self._receive(receive, answer)

        open_requests.count += 1
        try:
            await self._app(scope, received, sent)
            if answer.is_stream and not answer.is_complete:
                await send({"type": "http.response.body", "body": b""})
        finally:
            if not answer.is_uncounted:
                open_requests.count -= 1
            self._note(scope, answer, time.perf_counter() - began_s)

    async def _receive(self, receive: Receive, answer: "_Answer") -> Message:
        """What the client sends. When the server stops, a stream hears that its client is gone: it would never end by
        itself."""
        if not answer.is_received:
            message = await receive()
            answer.is_received = message["type"] != "http.request" or not message.get("more_body", False)
            return message
        # The request is complete: what comes now is the client's end, or ours.
        if answer.is_stream and self._stopping.is_set():
            return {"type": "http.disconnect"}
        receiving = asyncio.ensure_future(receive())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done() and answer.is_stream:
                return {"type": "http.disconnect"}
            return await receiving
        finally:
            receiving.cancel()
            stopping.cancel()

    def _note(self, scope: Scope, answer: "_Answer", took_s: float) -> None:
        path = str(scope.get("path", ""))
        client = scope.get("client")
        caller = scope.get(CALLER)
        self._observer.note(
            "admin.probed" if path in _PROBES else "admin.answered",
            method=str(scope.get("method", "")),
            path=path[:_PATH_MAX],
            query=_names(scope.get("query_string", b"")),
            status=answer.status,
            size_bytes=answer.size,
            took_ms=round(took_s * 1000, 1),
            who=getattr(caller, "who", None),
            address=client[0] if client else None,
        )


class _Answer:
    """What the log says of an answer."""

    def __init__(self) -> None:
        self.status = 0
        """0: nothing was answered, because the client went or the server stopped."""
        self.size = 0
        self.is_stream = False
        self.is_complete = False
        self.is_received = False
        """The whole request is here."""
        self.is_uncounted = False
        """It is a stream, and no longer counted as open."""

    def see(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_stream = any(
                name.lower() == b"content-type" and value.startswith(_STREAM)
                for name, value in message.get("headers", ())
            )
        elif message["type"] == "http.response.body":
            self.size += len(message.get("body", b""))
            self.is_complete = not message.get("more_body", False)


class ServerLog(logging.Handler):
    """The web server's own log as events. Of an exception only its type: its text may quote a payload."""

    def __init__(self, observer: Observer) -> None:
        super().__init__(level=logging.WARNING)
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        """One event."""
        error: Any = record.exc_info[0] if record.exc_info else None
        said = record.getMessage() if error is None else "an answer failed"
        self._observer.note("admin.server", reason=said[:_PATH_MAX], error=None if error is None else error.__name__)


def _names(query: bytes) -> str | None:
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    # What is no parameter's name may be a token that somebody put there.
    names = dict.fromkeys(name if _PARAMETER.fullmatch(name) else "?" for name, _ in pairs[:20])
    return ",".join(names) or None
