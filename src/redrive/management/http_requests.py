"""HTTP requests to a management API: GET, JSON back, bounded in time and size.

It is `http.client` in a thread of its own: the standard library has no asyncio client, and a dozen requests are not
worth a dependency. One connection is kept open; if the server closed it meanwhile, the request is sent once more. Proxy
settings of the environment are ignored: a broker is in the local network.
"""

import asyncio
import base64
import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

from redrive.management.endpoints import ManagementEndpoint
from redrive.management.errors import ManagementDenied, ManagementFailed, ManagementUnreachable

JSON = Any  # foreign JSON; `api` and `queues` read from it what they know

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A page of 500 queues is below 1 MiB; a server that sends this much is no management API."""
TIMEOUT_S = 30.0
_DETAIL_MAX = 300
# What a request on a kept connection fails with if the server closed it meanwhile.
_SERVER_CLOSED = (
    http.client.RemoteDisconnected,
    http.client.CannotSendRequest,
    BrokenPipeError,
    ConnectionResetError,
)


class HttpRequests:
    """Sends requests to one endpoint, one at a time. Close it when done."""

    def __init__(
        self, endpoint: ManagementEndpoint, *, tls: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.endpoint = endpoint
        self._tls = tls
        self._timeout_s = timeout_s
        self._authorization = "Basic " + base64.b64encode(f"{endpoint.user}:{endpoint.password}".encode()).decode()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-management")

    async def get(self, path: Sequence[str], query: Mapping[str, str] | None = None) -> JSON | None:
        """The JSON of the response; None if there is no such thing (404). Raises `ManagementError`.

        `path` are segments after /api, quoted here. A response that takes longer than twice the timeout counts as
        unreachable. If the caller is cancelled, the thread ends by the same timeout.
        """
        target = self.endpoint.prefix + "/api/" + "/".join(quote(segment, safe="") for segment in path)
        if query:
            target += "?" + urlencode(query)
        loop = asyncio.get_running_loop()
        try:
            # The socket's timeout is for each read; a response that comes byte by byte must end too.
            async with asyncio.timeout(self._timeout_s * 2):
                return await loop.run_in_executor(self._thread, self._request, target)
        except TimeoutError:
            raise self._unreachable(f"no answer in {self._timeout_s * 2:.0f} s") from None

    async def close(self) -> None:
        """Closes the connection. A request under way is not waited for."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._disconnect()

    def _request(self, target: str) -> JSON | None:
        is_kept = self._connection is not None
        try:
            try:
                status, body = self._exchange(target)
            except _SERVER_CLOSED:
                if not is_kept:
                    raise
                self._disconnect()
                status, body = self._exchange(target)
        except TimeoutError:
            self._disconnect()
            raise self._unreachable(f"no answer in {self._timeout_s:.0f} s") from None
        except ssl.SSLError as error:
            self._disconnect()
            raise self._unreachable(f"TLS failed ({error.reason or error})") from None
        except OSError as error:
            self._disconnect()
            raise self._unreachable((error.strerror or str(error)).lower()) from None
        except http.client.HTTPException as error:
            self._disconnect()
            raise self._unreachable(f"what answers there speaks no HTTP ({error!r:.80})") from None
        return self._read(target, status, body)

    def _unreachable(self, reason: str) -> ManagementUnreachable:
        return ManagementUnreachable(self.endpoint.address, reason, source=self.endpoint.source)

    def _exchange(self, target: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", target, headers={"Authorization": self._authorization})
        with self._connection.getresponse() as answer:
            body = answer.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX or answer.will_close:
                self._disconnect()
            return answer.status, body

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self.endpoint.host, self.endpoint.port
        if not self.endpoint.is_tls:
            return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        context = ssl.create_default_context() if self._tls is None else self._tls
        return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)

    def _read(self, target: str, status: int, body: bytes) -> JSON | None:
        address, path = self.endpoint.address, target.partition("?")[0]
        if status == 404:
            return None
        if status in (401, 403):
            raise ManagementDenied(address, user=self.endpoint.user, status=status, path=path)
        if status != 200:
            raise ManagementFailed(address, path=path, status=status, detail=_detail(body))
        if len(body) > ANSWER_BYTES_MAX:
            raise ManagementFailed(address, path=path, status=status, detail="more than 64 MiB, which is not read")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ManagementFailed(address, path=path, status=status, detail="what came is no JSON") from None

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _detail(body: bytes) -> str:
    """The reason in an error's JSON, or the beginning of the body."""
    try:
        content = json.loads(body)
        text = str(content.get("reason") or content.get("error") or "") if isinstance(content, dict) else str(content)
    except (ValueError, RecursionError):
        text = body[:_DETAIL_MAX].decode(errors="replace")
    return " ".join(text.split())[:_DETAIL_MAX]
