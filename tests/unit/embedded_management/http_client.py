"""A small HTTP client on asyncio streams, so that server and client share one loop; nothing of the product in it."""

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)


class ApiClient:
    """One kept connection to a management API."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._host, self._port = host, int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self,
        method: str,
        *path: str,
        body: Any = None,
        query: str = "",
        authorization: str | None = GUEST,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """A request; `path` are segments, quoted here, and `body` is JSON unless it is bytes."""
        target = "/api/" + "/".join(quote(one, safe="") for one in path) + query
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {target} HTTP/1.1", "Host: test", f"Content-Length: {len(data)}"]
        lines += [] if authorization is None else [f"Authorization: {authorization}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        return await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data, has_body=method != "HEAD")

    async def send(self, raw: bytes, *, has_body: bool = True) -> Answer:
        """Raw bytes, and the one answer to them."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(raw)
        async with asyncio.timeout(10):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            length = int(headers.get("content-length", 0)) if has_body else 0
            body = await reader.readexactly(length)
        if headers.get("connection") == "close":
            await self.close()
        return Answer(int(status.split()[1]), headers, body)

    async def close(self) -> None:
        """Hang up."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            await streams[1].wait_closed()
