"""The limits of each side of a connection, and their negotiation in tune and tune-ok."""

from dataclasses import dataclass

from redrive.wire.errors import RemoteProtocolError, ReplyCode
from redrive.wire.frames import FRAME_MIN, PROTOCOL_HEADER
from redrive.wire.methods import ConnectionTune, ConnectionTuneOk

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one side. The first three are negotiated; the rest is each side's own.

    `frame_max` counts the whole frame, as RabbitMQ does. `heartbeat_s` 0 asks for none. `body_size_max` is the largest
    message accepted (RabbitMQ's own default until 4.0), `unfinished_bytes_max` what all half-received messages of a
    connection may hold together, so that 2,047 channels can't each begin a large one.

    A server's: `frame_min` is what a client may lower frame_max to, and all that it may send before they agreed (8,192
    since RabbitMQ 4.1). `other_protocol` is the header offered to a client with a wrong one (AMQP 1.0's by 4.x).
    """

    channel_max: int = 2047
    frame_max: int = 131_072
    heartbeat_s: int = 60
    body_size_max: int = 128 * MEBIBYTE
    unfinished_bytes_max: int = 256 * MEBIBYTE
    frame_min: int = FRAME_MIN
    other_protocol: bytes = PROTOCOL_HEADER

    def __post_init__(self) -> None:
        if not 1 <= self.channel_max <= 65_535:
            raise ValueError(f"channel_max is {self.channel_max}; use 1 to 65535")
        if not FRAME_MIN <= self.frame_max <= 0x7FFFFFFF:
            raise ValueError(f"frame_max is {self.frame_max}; use {FRAME_MIN} to {0x7FFFFFFF}")
        if not 0 <= self.heartbeat_s <= 65_535:
            raise ValueError(f"heartbeat_s is {self.heartbeat_s}; use 0 (none) to 65535")

    def propose(self) -> ConnectionTune:
        """The server's offer."""
        return ConnectionTune(channel_max=self.channel_max, frame_max=self.frame_max, heartbeat_s=self.heartbeat_s)

    def answer(self, tune: ConnectionTune) -> ConnectionTuneOk:
        """A client's answer to the server's offer: the smaller of each, where 0 from the server is no limit.

        With `heartbeat_s` 0 there are no heartbeats; otherwise the more frequent ones of the two.
        """
        if tune.frame_max and tune.frame_max < FRAME_MIN:
            raise _not_allowed(f"frame_max {tune.frame_max} is below {FRAME_MIN}", tune)
        return ConnectionTuneOk(
            channel_max=_smaller(self.channel_max, tune.channel_max),
            frame_max=_smaller(self.frame_max, tune.frame_max),
            heartbeat_s=0 if self.heartbeat_s == 0 else _smaller(self.heartbeat_s, tune.heartbeat_s),
        )


def check_answer(tune_ok: ConnectionTuneOk, tune: ConnectionTune, frame_min: int = FRAME_MIN) -> None:
    """Refuse (530) what RabbitMQ refuses: a client may lower the offer, not raise it, and 0 would be no limit."""
    if tune_ok.frame_max and tune_ok.frame_max < frame_min:
        raise _not_allowed(f"negotiated frame_max = {tune_ok.frame_max} is lower than the minimum {frame_min}", tune_ok)
    for name in ("channel_max", "frame_max"):
        offered, taken = getattr(tune, name), getattr(tune_ok, name)
        if offered and (taken == 0 or taken > offered):
            raise _not_allowed(
                f"negotiated {name} = {taken} is higher than the maximum allowed value {offered}", tune_ok
            )


def _smaller(ours: int, theirs: int) -> int:
    return ours if theirs == 0 else min(ours, theirs)


def _not_allowed(text: str, method: ConnectionTune | ConnectionTuneOk) -> RemoteProtocolError:
    return RemoteProtocolError(ReplyCode.NOT_ALLOWED, text, method=method.INDEX)
