"""`/metrics`, `/healthz` and `/readyz` over HTTP, in the event loop that consumes.

That it answers at all says that the loop turns, so `/healthz` needs to look at nothing. The server is small on purpose:
GET and HEAD, one answer a connection, everything bounded.
"""

import asyncio
import errno
import os
from http import HTTPStatus

from redrive.core import RedriveError
from redrive.telemetry.accounts import CONTENT_TYPE
from redrive.telemetry.telemetry import Telemetry

HEAD_BYTES_MAX = 16 * 1024
EXCHANGE_S_MAX = 10.0
CONNECTIONS_MAX = 64

_TEXT = "text/plain; charset=utf-8"


class EndpointFailed(RedriveError):
    """The metrics port can't be had."""

    def __init__(self, *, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"can't serve metrics on {host}:{port}: {reason}; choose another with --metrics-port")


class Endpoint:
    """Serves a telemetry's numbers while it is entered: `async with Endpoint(telemetry, port=9102): …`.

    Port 0 takes any free one; `url` says which. Raises `EndpointFailed`.
    """

    def __init__(self, telemetry: Telemetry, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._telemetry = telemetry
        self.host = host
        self.port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def __aenter__(self) -> "Endpoint":
        try:
            self._server = await asyncio.start_server(self._serve, self.host, self.port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise EndpointFailed(host=self.host, port=self.port, reason=_reason(error)) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._telemetry.note("telemetry.serving", address=self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()  # whoever is silent must not keep us from ending
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if len(self._writers) <= CONNECTIONS_MAX:
                async with asyncio.timeout(EXCHANGE_S_MAX):
                    writer.write(self._answer_to(await reader.readuntil(b"\r\n\r\n")))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so badly gets no answer
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer_to(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, "this is HTTP/1.1\n")
        if words[0] not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "GET it\n")
        without_body = words[0] == b"HEAD"
        match words[1].split(b"?", 1)[0]:
            case b"/metrics":
                text = self._telemetry.accounts.exposition()
                return _response(HTTPStatus.OK, text, content_type=CONTENT_TYPE, without_body=without_body)
            case b"/healthz":
                return _response(HTTPStatus.OK, "ok\n", without_body=without_body)
            case b"/readyz":
                reasons = self._telemetry.unready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                return _response(status, "".join(f"{one}\n" for one in reasons or ["ok"]), without_body=without_body)
            case _:
                known = "/metrics, /healthz, /readyz\n"
                return _response(HTTPStatus.NOT_FOUND, known, without_body=without_body)


def _reason(error: OSError) -> str:
    """Why a port can't be had. asyncio's own texts name the address once more."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken"
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # a host that has no address, for one


def _response(status: HTTPStatus, text: str, *, content_type: str = _TEXT, without_body: bool = False) -> bytes:
    body = text.encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\ncache-control: no-store\r\n\r\n"
    ).encode()
    return head if without_body else head + body
