"""A TCP proxy on loopback that cuts connections at random bytes, from a seed: the test's way to pull the plug."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CuttingProxy:
    """Forwards to one broker. The first `cuts` connections are each reset after a random number of bytes."""

    def __init__(self, host: str, port: int, *, cuts: int, bytes_max: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._cuts_left = cuts
        self._bytes_max = bytes_max
        self._random = random.Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts_made = 0
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection until an end closes it or it is cut."""
        self.connections += 1
        budget = None
        if self._cuts_left:
            self._cuts_left -= 1
            # Half of them early, among the handshake and the first confirms, half anywhere.
            budget = [self._random.randint(1, self._random.choice((4_000, self._bytes_max)))]
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer, budget)),
            asyncio.create_task(self._pump(far_reader, writer, budget)),
        ]
        self._tasks.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if budget is not None and budget[0] < 0:
            self.cuts_made += 1
        elif budget is not None:
            self._cuts_left += 1  # it ended by itself; the cut is still owed
        for each in (writer, far_writer):
            each.transport.abort()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._tasks.difference_update(pumps)

    def close(self) -> None:
        """Stops forwarding on every connection."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: list[int] | None) -> None:
        while data := await reader.read(65_536):
            if budget is not None:
                if len(data) > budget[0]:
                    writer.write(data[: max(0, budget[0])])
                    budget[0] = -1
                    return
                budget[0] -= len(data)
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def cutting_proxy(host: str, port: int, *, cuts: int, bytes_max: int, seed: int) -> AsyncIterator[CuttingProxy]:
    """A running proxy; `port` is where it listens."""
    proxy = CuttingProxy(host, port, cuts=cuts, bytes_max=bytes_max, seed=seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.close()
