"""The server side's errors: RabbitMQ's own codes and texts for a client that breaks the protocol.

Observed on 3.10.8, 4.0.5 and 4.3.6, which agree. `Lifecycle` adds the code's name in front of each text. Octets are
written as Erlang prints a binary.
"""

from redrive.wire.errors import FramingLost, RemoteProtocolError, ReplyCode

_SHOWN_OCTETS = 16
_LINE = 79
"""Erlang breaks a term that would reach the end of a line of 80."""


def frame_too_large(frame_type: int, length: int, frame_max: int) -> FramingLost:
    """501: a frame longer than frame-max, which RabbitMQ gives without the frame's own eight octets."""
    return FramingLost(f"{_shown(frame_type, b'')}: {{frame_too_large,{length},{frame_max - 8}}}")


def wrong_frame_end(frame_type: int, payload: bytes, end: int) -> FramingLost:
    """501: no end octet where the frame's length says it ends."""
    shown = f"{_shown(frame_type, payload)}: "
    marker = "{invalid_frame_end_marker,"
    if len(shown) + len(f"{marker}{end}}}") >= _LINE:
        marker += "\n" + " " * (len(shown) + 1)
    return FramingLost(f"{shown}{marker}{end}}}")


def unknown_frame(frame_type: int, payload: bytes) -> RemoteProtocolError:
    """501: a frame of none of the four types."""
    return RemoteProtocolError(ReplyCode.FRAME_ERROR, f"{_shown(frame_type, payload)}: unknown_frame")


def misplaced_frame(frame_type: int, payload: bytes) -> RemoteProtocolError:
    """505: a frame that may not be on this channel, or not yet."""
    return RemoteProtocolError(ReplyCode.UNEXPECTED_FRAME, _shown(frame_type, payload))


def expected_method(channel: int) -> RemoteProtocolError:
    """505: a content header or body without the method that carries it."""
    return RemoteProtocolError(
        ReplyCode.UNEXPECTED_FRAME, "expected method frame, got non method frame instead", channel=channel
    )


def expected_content_header(channel: int, method: int, class_id: int | None = None) -> RemoteProtocolError:
    """505: a content header must come now; `class_id` is that of the one that came."""
    came = "got non content header frame" if class_id is None else f"got one for class {class_id}"
    return RemoteProtocolError(
        ReplyCode.UNEXPECTED_FRAME,
        f"expected content header for class {method >> 16}, {came} instead",
        channel=channel,
        method=method,
    )


def expected_content_body(channel: int, method: int) -> RemoteProtocolError:
    """505: a body frame must come now."""
    text = "expected content body, got non content body frame instead"
    return RemoteProtocolError(ReplyCode.UNEXPECTED_FRAME, text, channel=channel, method=method)


def undecodable_method(channel: int, method: int, arguments: bytes) -> RemoteProtocolError:
    """501: the method's arguments don't follow the grammar."""
    text = f"cannot decode {_binary(arguments)}"
    return RemoteProtocolError(ReplyCode.FRAME_ERROR, text, channel=channel, method=method)


def channel_not_opened(channel: int, method: int) -> RemoteProtocolError:
    """504: a channel begins with channel.open."""
    return RemoteProtocolError(ReplyCode.CHANNEL_ERROR, "expected 'channel.open'", channel=channel, method=method)


def channel_opened_twice(channel: int, method: int) -> RemoteProtocolError:
    """504: channel.open on an open channel."""
    return RemoteProtocolError(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", channel=channel, method=method)


def unexpected_connection_method(method: int) -> RemoteProtocolError:
    """504: a method on channel 0 that an open connection does not allow."""
    text = "unexpected method in connection state running"
    return RemoteProtocolError(ReplyCode.CHANNEL_ERROR, text, method=method)


def server_only_method(channel: int, method: int) -> RemoteProtocolError:
    """503: a method that only a server sends."""
    return RemoteProtocolError(ReplyCode.COMMAND_INVALID, "unimplemented method", channel=channel, method=method)


def _shown(frame_type: int, payload: bytes) -> str:
    which = "all" if len(payload) <= _SHOWN_OCTETS else f"first {_SHOWN_OCTETS}"
    return f"type {frame_type}, {which} octets = {_binary(payload[:_SHOWN_OCTETS])}"


def _binary(octets: bytes) -> str:
    if not octets:
        return "<<>>"
    if all(32 <= octet < 127 and octet not in b'"\\' for octet in octets):
        return f'<<"{octets.decode("ascii")}">>'
    return f"<<{','.join(str(octet) for octet in octets)}>>"
