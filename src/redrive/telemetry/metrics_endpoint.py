"""`/metrics`, `/healthz` and `/readyz` over HTTP, in the event loop that consumes.

An answer at all shows that the event loop runs, so `/healthz` checks nothing else. It takes GET and HEAD, and answers
once per connection.
"""

import asyncio
import errno
import os
from http import HTTPStatus

from redrive.core import RedriveError
from redrive.http1 import Http1Server, HttpError, RequestLine, read_request_line, response_bytes
from redrive.telemetry.registry import CONTENT_TYPE
from redrive.telemetry.telemetry import Telemetry

HEAD_BYTES_MAX = 16 * 1024
EXCHANGE_S_MAX = 10.0
CONNECTIONS_MAX = 64

_TEXT = "text/plain; charset=utf-8"


class EndpointFailed(RedriveError):
    """Nothing can listen on the metrics port."""

    def __init__(self, *, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(f"can't serve metrics on {host}:{port}: {reason}; choose another with --metrics-port")


class MetricsEndpoint:
    """Serves metrics and health while it is entered: `async with MetricsEndpoint(telemetry, port=9102): …`.

    Port 0 takes any free one; `url` says which. Raises `EndpointFailed`.
    """

    def __init__(self, telemetry: Telemetry, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._telemetry = telemetry
        self._server = Http1Server(
            self._exchange, host=host, port=port, connections_max=CONNECTIONS_MAX, head_bytes_max=HEAD_BYTES_MAX
        )

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._server.host

    @property
    def port(self) -> int:
        """The port it listens on; while it is entered never 0."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where it is, without a path."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    async def __aenter__(self) -> "MetricsEndpoint":
        try:
            await self._server.start()
        except OSError as error:
            raise EndpointFailed(host=self.host, port=self.port, reason=_reason(error)) from error
        self._telemetry.note("telemetry.serving", address=self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            async with asyncio.timeout(EXCHANGE_S_MAX):
                try:
                    answer = self._answer_to(await read_request_line(reader))
                except HttpError as error:
                    answer = _response(error.status, f"{error.reason}\n")
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a request that does not end gets no answer
        return False

    def _answer_to(self, request: RequestLine) -> bytes:
        if request.method not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "GET it\n")
        without_body = request.method == "HEAD"
        match request.target.split("?", 1)[0]:
            case "/metrics":
                text = self._telemetry.metrics.exposition()
                return _response(HTTPStatus.OK, text, content_type=CONTENT_TYPE, without_body=without_body)
            case "/healthz":
                return _response(HTTPStatus.OK, "ok\n", without_body=without_body)
            case "/readyz":
                reasons = self._telemetry.unready()
                status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
                return _response(status, "".join(f"{one}\n" for one in reasons or ["ok"]), without_body=without_body)
            case _:
                known = "/metrics, /healthz, /readyz\n"
                return _response(HTTPStatus.NOT_FOUND, known, without_body=without_body)


def _reason(error: OSError) -> str:
    """Why the port can't be used. asyncio's own texts repeat the address."""
    if error.errno == errno.EADDRINUSE:
        return "the port is taken"
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # a host that has no address, for one


def _response(status: HTTPStatus, text: str, *, content_type: str = _TEXT, without_body: bool = False) -> bytes:
    headers = {"content-type": content_type, "cache-control": "no-store"}
    body = text.encode("utf-8", "replace")
    return response_bytes(status, body, headers, keep_alive=False, without_body=without_body)
