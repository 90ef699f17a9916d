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


class ClosingService:
    """A service that keeps its connections and then closes them at a bad moment: the second request on each meets it.

    on the head      closed when the head has come, the body unread
    on the body      closed when all of it has come: the work may be done
    half a status    closed within the answer's first line
    no word          closed in order, without an answer
    silent reset     reset, without an answer
    idle             closed after the first answer, before anybody asks again
    """

    def __init__(self, moment: str, *, status: int = 204) -> None:
        self._moment = moment
        self._status = status
        self.posts: list[int] = []
        """For each request its number on its connection."""
        self.keys: list[str | None] = []
        self._closed_idle = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> "ClosingService":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def wait_closed_idle(self) -> None:
        """Until the connection is closed and the client's loop has heard of it."""
        await self._closed_idle.wait()
        self._closed_idle.clear()
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            for number in (1, 2):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                self.posts.append(number)
                self.keys.append(fields.get("idempotency-key"))
                if number == 2 and self._moment == "on the head":
                    return
                await reader.readexactly(int(fields["content-length"]))
                if number == 1:
                    writer.write(b"HTTP/1.1 %d So\r\ncontent-length: 0\r\n\r\n" % self._status)
                    await writer.drain()
                    if self._moment == "idle":
                        return
                elif self._moment == "half a status":
                    writer.write(b"HTTP/1.1 20")
                    await writer.drain()
                elif self._moment == "silent reset":
                    writer.transport.abort()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)
            self._closed_idle.set()
