"""Idle connections to a service, kept for the next message as long as nothing arrives on them.

HTTP/1.1 answers have no id: what arrives first on a connection is taken for the answer to the next request. A service,
or a proxy before it, may send something unasked while a connection is idle: one more answer, or the rest of one. Read
as the answer to the next message, it would ack a message that nobody has handled. So a connection on which anything
arrives while it is idle is closed, and never used again.

aiohttp's own pool does not check that (3.14). What is used of aiohttp here is documented: a connector's `connect`, and
its connections' `transport`, `protocol` and `add_callback`; the rest is asyncio's.
"""

import asyncio
import select
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import aiohttp


def make_connector(**options: Any) -> "aiohttp.TCPConnector":
    """An aiohttp connector that reuses only connections on which nothing arrived unasked. Needs aiohttp."""
    import aiohttp

    class KeptConnector(aiohttp.TCPConnector):
        async def connect(self, *args: Any, **named: Any) -> Any:
            while True:
                connection = await super().connect(*args, **named)
                if _may_be_used(connection):
                    return connection
                connection.close()

    return KeptConnector(**options)


def _may_be_used(connection: Any) -> bool:
    """Whether nothing has arrived unasked on a connection that was just taken."""
    transport: asyncio.Transport | None = connection.transport
    if transport is None:
        return True  # aiohttp handles that
    watch = transport.get_protocol()
    if isinstance(watch, _Watch):
        # What has arrived and was not read yet would be read as the answer. The end of the stream looks the same.
        if transport.is_closing() or _is_readable(transport):
            return False
        watch.is_idle = False
    else:
        watch = _Watch(cast(asyncio.Protocol, watch), transport)
        transport.set_protocol(watch)
    connection.add_callback(watch.set_idle)
    return True


class _Watch(asyncio.Protocol):
    """Wraps aiohttp's protocol and lets nothing through while the connection is idle."""

    def __init__(self, inner: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._inner = inner
        self._transport = transport
        self.is_idle = False

    def set_idle(self) -> None:
        """The connection is idle from now on."""
        self.is_idle = True

    def data_received(self, data: bytes) -> None:
        if self.is_idle:
            self._transport.abort()
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that the event loop has not read yet."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([socket.fileno()], [], [], 0)[0])
