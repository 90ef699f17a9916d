"""A connection in memory: what one end writes the other reads in a later turn of the same event loop. No sockets.

To asyncio's protocols it behaves like TCP: bytes arrive in order, a paused reader pauses the writer, and the other end
learns of a close or abort once it has read what was written before. Nothing depends on the operating system, so the
same program sends the same things in the same order every time.
"""

import asyncio
from typing import Any

_BUFFER_BYTES_MAX = 64 * 1024
"""Unread bytes above which a writer is paused, unless it says otherwise."""


def connect(
    loop: asyncio.AbstractEventLoop,
    client: asyncio.Protocol,
    server: asyncio.Protocol,
    *,
    client_name: tuple[str, int],
    server_name: tuple[str, int],
) -> None:
    """Connects two protocols by a pipe; the names are the addresses that each sees of itself and of the other."""
    near = PipeEnd(loop, client, {"sockname": client_name, "peername": server_name})
    far = PipeEnd(loop, server, {"sockname": server_name, "peername": client_name})
    near.other, far.other = far, near
    server.connection_made(far)
    client.connection_made(near)


class PipeEnd(asyncio.Transport):
    """One end, as its protocol sees it. What was written waits at the other end, so closing and aborting are the same:
    both lose what this end has not read, and nothing that it has written."""

    other: "PipeEnd"

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._loop = loop
        self._protocol = protocol
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._high = _BUFFER_BYTES_MAX
        self._low = _BUFFER_BYTES_MAX // 4
        self._holds_up_protocol = False
        self._is_reading = True
        self._will_read = False
        self._is_closing = False
        self._is_over = False

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Leaves bytes at the other end."""
        if self._is_closing or not data:
            return
        other = self.other
        if other._is_closing:
            return  # the other end is gone; connection_lost comes in a moment
        other._unread.append(bytes(data))
        other._unread_bytes += len(data)
        other._read_soon()
        if other._unread_bytes > self._high and not self._holds_up_protocol:
            self._holds_up_protocol = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """A pipe can't be half closed."""
        return False

    def get_write_buffer_size(self) -> int:
        """What the other end has not read."""
        return self.other._unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Above `high` the protocol is paused, at `low` (a quarter of it) it goes on."""
        self._high = _BUFFER_BYTES_MAX if high is None else high
        self._low = self._high // 4 if low is None else low

    # Reading

    def pause_reading(self) -> None:
        """No more data for now; the end of the other side is not noticed either, as with a socket."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Data again."""
        self._is_reading = True
        self._read_soon()

    def is_reading(self) -> bool:
        """Whether data is taken."""
        return self._is_reading and not self._is_closing

    def _read_soon(self) -> None:
        if not self._will_read:
            self._will_read = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._will_read = False
        if self._is_closing or not self._is_reading:
            return
        if not self._unread:
            if self.other._is_over:
                self._protocol.eof_received()
                self.close()
            return
        data = self._unread[0] if len(self._unread) == 1 else b"".join(self._unread)
        self._unread.clear()
        self._unread_bytes = 0
        self.other._has_room()
        taken = False
        try:
            self._protocol.data_received(data)
            taken = True
        finally:
            if not taken:
                self.abort()  # as with a socket: a protocol that fails is cut off; the loop reports the exception
        if self.other._is_over:
            self._read_soon()

    def _has_room(self) -> None:
        if self._holds_up_protocol and self.other._unread_bytes <= self._low:
            self._holds_up_protocol = False
            if not self._is_closing:
                self._protocol.resume_writing()

    # The end

    def close(self) -> None:
        """No more; what was written is still read by the other end."""
        if not self._is_closing:
            self._is_closing = True
            self._unread.clear()
            self._unread_bytes = 0
            self._loop.call_soon(self._end)

    def abort(self) -> None:
        """The same."""
        self.close()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._is_closing

    def _end(self) -> None:
        self._is_over = True
        self._protocol.connection_lost(None)
        self.other._read_soon()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another protocol takes over."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Whose end it is."""
        return self._protocol
