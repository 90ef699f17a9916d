"""A service over a raw socket: it answers what a test scripts, byte for byte, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it came; header names in lower case. `connection` counts the connections from 1."""

    line: str
    headers: dict[str, str]
    body: bytes
    connection: int


class Wire:
    """The service's end of one connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def answer(self, status: int, *, body: bytes = b"", **headers: str) -> None:
        """A whole answer; `retry_after` becomes `retry-after`."""
        lines = [f"HTTP/1.1 {status} Status {status}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def drop(self) -> None:
        """The connection ends with a reset."""
        self.writer.transport.abort()


Behaviour = Callable[[Request, Wire], Awaitable[None]]


class Service:
    """`async with Service(behaviour) as service`: listens on loopback, on a free port unless one is given."""

    def __init__(self, behaviour: Behaviour, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._behaviour = behaviour
        self._tls = tls
        self.port = port
        self.requests: list[Request] = []
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.url = ""

    async def __aenter__(self) -> "Service":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line, *rest = head[:-4].split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(line=line, headers=headers, body=body, connection=number)
                self.requests.append(request)
                await self._behaviour(request, Wire(writer))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def always(status: int, *, body: bytes = b"", **headers: str) -> Behaviour:
    """The same answer to everything."""

    async def behave(_request: Request, wire: Wire) -> None:
        await wire.answer(status, body=body, **headers)

    return behave
