"""A client that speaks AMQP by hand and may speak it wrongly: frames out, and what a broker says to them."""

import socket
import struct
import time
from typing import Any
from urllib.parse import unquote, urlsplit

from redrive import wire
from redrive.wire import methods

QUIET, ENDED = "silence", "hung up"
_CLOSES = (methods.ConnectionClose, methods.ChannelClose)


class RawClient:
    """One socket. `heard` is everything a broker said, as tuples that can be compared; a reset is an end like any."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=5)
        self._vhost = unquote(parts.path[1:])
        self._splitter = wire.FrameSplitter(1 << 20)
        self._is_greeted = False
        self.heard: list[Any] = []

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            pass  # the broker has hung up; what it said before that is what matters

    def call(self, data: bytes, answer: str) -> None:
        """Say something and wait until the broker answers with that method."""
        self.say(data)
        self.listen(5, until=answer)

    def greet(self) -> None:
        self.call(wire.PROTOCOL_HEADER, "connection.start")

    def open(self, *, frame_max: int = 131_072) -> None:
        self.greet()
        self.call(start_ok(), "connection.tune")
        tune_ok = methods.ConnectionTuneOk(channel_max=2047, frame_max=frame_max, heartbeat_s=0)
        self.say(method(0, tune_ok))
        self.call(method(0, methods.ConnectionOpen(virtual_host=self._vhost)), "connection.open-ok")
        self.call(method(1, methods.ChannelOpen()), "channel.open-ok")

    def end(self, seconds: float) -> list[Any]:
        """Listen for so long; answer a close, and wait for the end that follows it."""
        if self.listen(seconds, until="connection.close"):
            self.say(method(0, methods.ConnectionCloseOk()))
            self.listen(5)
        return self.heard

    def listen(self, seconds: float, *, until: str = "") -> bool:
        """Hear what comes; whether it was `until`. Ends with that, with the connection, or after so long."""
        deadline = time.monotonic() + seconds
        while True:
            while (frame := self._next()) is not None:
                self.heard.append(frame)
                if frame[0] == until:
                    return True
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                data = self._socket.recv(65_536)
            except TimeoutError:
                self.heard.append(QUIET)
                return False
            except OSError:
                data = b""
            if not data:
                self.heard.append(ENDED)
                return False
            if not self._is_greeted and data.startswith(b"AMQP"):
                self.heard.append(("protocol", data[:8]))
                continue
            self._is_greeted = True
            self._splitter.feed(data)

    def _next(self) -> tuple[Any, ...] | None:
        frame = self._splitter.next_frame()
        if frame is None:
            return None
        if frame.type != 1:
            return (f"frame of type {frame.type}", frame.channel)
        spoken = methods.decode_method(frame.payload)
        if isinstance(spoken, _CLOSES):
            about = (spoken.class_id, spoken.method_id)
            return (spoken.NAME, frame.channel, spoken.reply_code, spoken.reply_text, about)
        return (spoken.NAME, frame.channel)


def method(channel: int, spoken: methods.Method) -> bytes:
    return wire.encode_frame(1, channel, methods.encode_method(spoken))


def start_ok(*, size: int | None = None, mechanism: str = "PLAIN", password: str = "guest") -> bytes:
    """connection.start-ok, its frame of that size."""

    def made(pad: str) -> bytes:
        properties = {"capabilities": {"authentication_failure_close": True}, "pad": pad}
        response = b"\0guest\0" + password.encode()
        return method(
            0, methods.ConnectionStartOk(client_properties=properties, mechanism=mechanism, response=response)
        )

    return made("" if size is None else "x" * (size - len(made(""))))


def publish(*, channel: int = 1) -> bytes:
    """The method frame of basic.publish to nowhere."""
    return wire.encode_frame(1, channel, b"\x00\x3c\x00\x28\x00\x00\x00\x07nowhere\x00")


def header(size: int, *, class_id: int = 60, weight: int = 0, channel: int = 1) -> bytes:
    return wire.encode_frame(2, channel, struct.pack(">HHQ", class_id, weight, size) + b"\0\0")
