"""One client's socket: bytes in and out of its session, heartbeats in real time, back-pressure.

A client that does not read gets nothing more from the queues until it does; one that says nothing for two heartbeats is
taken for dead, as RabbitMQ takes it.
"""

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from redrive.embedded.client_session import ClientSession

if TYPE_CHECKING:
    from redrive.embedded.server import Server

HANDSHAKE_S_MAX = 10.0
CLOSE_S_MAX = 5.0
GOODBYE_S_MAX = 30.0
SILENCE_S = 3.0
"""How long RabbitMQ keeps the socket of a client that it has nothing more to say to; then it resets it (measured)."""
_NO_LINGER = struct.pack("ii", 1, 0)
_BUFFER_BYTES_MAX = 1024 * 1024


class ClientTransport(asyncio.Protocol):
    """asyncio's side of a session."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.session = ClientSession(server)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = False
        self._silent_for = 0
        self._sent = False
        self._is_paused = False
        self._is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_BUFFER_BYTES_MAX)
        self._timer = self._server.loop.call_later(HANDSHAKE_S_MAX, self._give_up_handshake)
        if not self._server.admit(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        if self.session.client_closed:
            return
        self._heard = True
        self._server.receive(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is lost."""
        self._cancel_timer()
        self.session.wire.receive_eof()
        self._server.lost(self)

    @property
    def addresses(self) -> tuple[tuple[str, int] | None, tuple[str, int] | None]:
        """The client's address and the broker's own, None where the socket is gone."""
        if self._transport is None:
            return None, None
        return self._transport.get_extra_info("peername"), self._transport.get_extra_info("sockname")

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self.session.connection is not None:
            self.session.connection.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.session.connection is not None:
            self.session.connection.resume()
            self._server.finish_turn()

    def flush(self) -> None:
        """Send what the session has queued, and close the socket once the session is over."""
        session, transport = self.session, self._transport
        if transport is None:
            return
        session.flush_confirms()
        data = session.wire.data_to_send()
        if data and not transport.is_closing():
            self._sent = True
            transport.write(data)
        if session.is_over and not self._is_closing:
            self._is_closing = True
            self._cancel_timer()
            if session.wire.state.name == "SERVER_CLOSING":
                # Our close is not answered yet; the client has a moment to do so.
                self._timer = self._server.loop.call_later(CLOSE_S_MAX, self.abort)
            elif session.is_mute:
                # What the client sends meanwhile is read and dropped: a reset because of unread bytes would overtake
                # the connection.close that the client is to read.
                self._timer = self._server.loop.call_later(SILENCE_S, self.abort)
            elif session.client_closed:
                # RabbitMQ leaves closing the socket to the client for so long (seen on 3.10 and 4.3).
                heartbeat_s = session.wire.heartbeat_s
                goodbye_s = heartbeat_s if 0 < heartbeat_s < GOODBYE_S_MAX else GOODBYE_S_MAX
                self._timer = self._server.loop.call_later(goodbye_s, self.abort)
            else:
                transport.close()
        elif (
            self._is_closing and not (session.client_closed or session.is_mute) and session.wire.state.name == "CLOSED"
        ):
            transport.close()

    def begin_heartbeats(self) -> None:
        """The handshake is done: start heartbeats in both directions."""
        self._cancel_timer()
        heartbeat_s = self.session.wire.heartbeat_s
        if heartbeat_s:
            self._timer = self._server.loop.call_later(heartbeat_s / 2, self._beat)

    def stop_reading(self) -> None:
        """Stop reading from the client for now."""
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def start_reading(self) -> None:
        """Read from the client again."""
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection with a TCP reset, as RabbitMQ does it."""
        self._cancel_timer()
        if self._transport is not None:
            connected = self._transport.get_extra_info("socket")
            if connected is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def _beat(self) -> None:
        self._silent_for = 0 if self._heard or self._is_paused else self._silent_for + 1
        self._heard = False
        if self._silent_for >= 4:  # two whole heartbeats, looked at every half
            self.abort()
            return
        if not self._sent:
            self.session.wire.send_heartbeat()
            self.flush()
        self._sent = False
        self._timer = self._server.loop.call_later(self.session.wire.heartbeat_s / 2, self._beat)

    def _give_up_handshake(self) -> None:
        if self.session.is_opening:
            self.abort()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
