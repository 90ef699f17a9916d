"""Frames: the constants, and the splitter that finds them in a stream of bytes.

The splitter parses out of one immutable `bytes` at a time. That was measured against a `bytearray` with a `memoryview`:
a slice of `bytes` costs 65 ns, a view turned into `bytes` 185 ns, and a socket hands over `bytes` anyway. What is left
of a chunk waits in a `bytearray` until the frame it begins is complete, so that a large frame in small chunks is copied
a constant number of times, not once per chunk.
"""

import struct
from typing import NamedTuple

from redrive.wire import rabbitmq_errors as rabbitmq_errors
from redrive.wire.errors import FramingLost

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
FRAME_MIN = 4096
"""The smallest frame-max that a peer may ask for."""
FRAME_OVERHEAD = 8
"""Seven octets before the payload, one after."""
HEADER_GROWTH_MAX = 65_536
"""So much more than frame-max a broker may need for the header frame of a message it has added headers to."""
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
BASIC_CLASS = 60

_HEAD = struct.Struct(">BHI")
_TYPES = frozenset({METHOD, HEADER, BODY, HEARTBEAT})


class Frame(NamedTuple):
    """One frame; the end octet has been checked."""

    type: int
    channel: int
    payload: bytes


def encode_frame(frame_type: int, channel: int, payload: bytes) -> bytes:
    """The frame as bytes; its length against frame-max is the caller's concern."""
    return _HEAD.pack(frame_type, channel, len(payload)) + payload + b"\xce"


class FrameSplitter:
    """Bytes in, frames out, with at most one incomplete frame kept in between.

    `data` and `position` are public for `MessageScanner`, which parses whole messages in place and calls `next_frame`
    for everything else. `of_client`: the frames are a client's, and the errors those of RabbitMQ (`rabbitmq_errors`).
    """

    __slots__ = ("_of_client", "_tail", "_wanted", "data", "header_max", "payload_max", "position")

    def __init__(self, frame_max: int, *, of_client: bool = False) -> None:
        self.data = b""
        self.position = 0
        self.payload_max = self.header_max = frame_max - FRAME_OVERHEAD
        self._of_client = of_client
        self._tail = bytearray()
        self._wanted = 0

    def limit(self, payload_max: int, header_max: int | None = None) -> None:
        """Refuse frames with a longer payload; header frames may have a limit of their own."""
        self.payload_max = payload_max
        self.header_max = payload_max if header_max is None else header_max

    def feed(self, data: bytes) -> None:
        """Take in what the transport received."""
        if self.position < len(self.data):
            self._tail += memoryview(self.data)[self.position :]
            self.data, self.position = b"", 0
        if not self._tail:
            self.data, self.position = bytes(data), 0
            return
        self._tail += data
        if len(self._tail) >= self._wanted:
            self.data, self.position = bytes(self._tail), 0
            self._tail = bytearray()
            self._wanted = 0

    def peek(self) -> bytes:
        """What has come in and is not consumed, for the protocol header, which is no frame."""
        return self.data[self.position : self.position + 8]

    def wait_for(self, size: int) -> None:
        """Say how many octets are needed next, so that `feed` does not look at fewer."""
        self._wanted = size

    def next_frame(self) -> Frame | None:
        """The next whole frame, or None until more is fed. Raises RemoteProtocolError (501)."""
        data, position = self.data, self.position
        available = len(data) - position
        if available < 7:
            self._wanted = 7
            return None
        frame_type, channel, length = _HEAD.unpack_from(data, position)
        of_client = self._of_client
        if frame_type not in _TYPES and not of_client:
            raise FramingLost(f"there is no frame type {frame_type}")
        if length > self.payload_max and (frame_type != HEADER or length > self.header_max):
            if of_client:
                raise rabbitmq_errors.frame_too_large(frame_type, length, self.payload_max)
            raise FramingLost(f"a frame of {length + FRAME_OVERHEAD} octets, frame-max is {self.payload_max + 8}")
        if available < length + FRAME_OVERHEAD:
            self._wanted = length + FRAME_OVERHEAD
            return None
        end = position + 7 + length
        if data[end] != FRAME_END:
            if of_client:
                raise rabbitmq_errors.wrong_frame_end(frame_type, data[position + 7 : end], data[end])
            raise FramingLost(f"a frame ends with {data[end]:#04x} instead of 0xce")
        self.position = end + 1
        return Frame(frame_type, channel, data[position + 7 : end])

    def discard(self) -> None:
        """Drop everything: nobody reads it any more."""
        self.data, self.position, self._tail, self._wanted = b"", 0, bytearray(), 0
