"""The line between a client and its broker, in the test's hands: cut at an exact moment, deaf one way, mended later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit


class Line:
    """A TCP proxy on loopback to one broker. `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._broker = urlsplit(url)
        self._pairs: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._is_mute = False
        self.port = 0

    @property
    def url(self) -> str:
        """The broker's URL through this line."""
        login = self._broker.netloc.rpartition("@")[0]
        return urlunsplit(self._broker._replace(netloc=f"{login}@127.0.0.1:{self.port}"))

    def cut(self) -> None:
        """Resets every connection at once, whatever was under way, and refuses new ones until `mend`."""
        self._is_cut = True
        for near, far in self._pairs.items():
            near.transport.abort()
            far.transport.abort()

    def mute(self) -> None:
        """From now on the broker hears, and nobody hears the broker; until `mend`, which cuts such connections."""
        self._is_mute = True

    def mend(self) -> None:
        """New connections are taken again."""
        if self._is_mute:
            self.cut()
        self._is_cut = self._is_mute = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both ways, until either end goes."""
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(self._broker.hostname, self._broker.port)
        except OSError:
            writer.transport.abort()
            return
        self._pairs[writer] = far_writer
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, is_broker=False)),
            asyncio.create_task(self._pump(far_reader, writer, is_broker=True)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, far_writer):
            each.transport.abort()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._tasks.difference_update(pumps)
        del self._pairs[writer]

    def end(self) -> None:
        """Hangs up on everybody."""
        self.cut()
        for task in self._tasks:
            task.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_broker: bool) -> None:
        while data := await reader.read(65_536):
            if is_broker and self._is_mute:
                continue
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def open_line(url: str) -> AsyncIterator[Line]:
    """A line to the broker at `url`."""
    line = Line(url)
    server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        server.close()
        line.end()
        await asyncio.sleep(0)
