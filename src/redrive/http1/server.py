"""The listener: accepts a bounded number of connections and runs one exchange after another on each."""

import asyncio
from collections.abc import Awaitable, Callable

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Reads one request and writes its answer. Returns whether another request may follow on the connection."""


class Http1Server:
    """Listens from `start` to `stop`. Port 0 takes any free port; `port` says which after `start`."""

    def __init__(self, exchange: Exchange, *, host: str, port: int, connections_max: int, head_bytes_max: int) -> None:
        self.host = host
        self.port = port
        self._exchange = exchange
        self._connections_max = connections_max
        self._head_bytes_max = head_bytes_max
        self._listener: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        """Listens. Raises OSError."""
        self._listener = await asyncio.start_server(self._serve, self.host, self.port, limit=self._head_bytes_max)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and drops every connection: a silent client must not keep the server from ending."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        for task, writer in self._connections.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await listener.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._connections_max:
            writer.transport.abort()
            return
        self._connections[task] = writer
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, TimeoutError):
            pass
        except asyncio.CancelledError:
            pass  # the server stops; nobody awaits this task for its result
        finally:
            del self._connections[task]
            writer.close()
