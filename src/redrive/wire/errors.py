"""The errors of this room, split by who broke the protocol.

    RedriveError
    └── ProtocolError             carries AMQP's reply code, reply text and, where known, channel and method
        ├── LocalProtocolError    our own side asked for something AMQP forbids now; nothing was sent, nothing changed
        │   └── EncodingError     a value has no AMQP form (too long, too deep, of an unknown type)
        └── RemoteProtocolError   the peer broke the protocol; connection.close is already queued where it may be sent
            └── FramingLost       … so that nobody knows where its next frame begins

The codes are AMQP 0-9-1's own. Nothing else leaves this room on hostile input: no IndexError, struct.error,
UnicodeDecodeError or RecursionError.
"""

from enum import IntEnum

from redrive.core import RedriveError


class ReplyCode(IntEnum):
    """AMQP 0-9-1's reply codes; below 500 and above 310 most close a channel, the others the connection."""

    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541


class ProtocolError(RedriveError):
    """AMQP was broken; `method` is the index (class id << 16 | method id) it was about, 0 when none is known."""

    def __init__(self, reply_code: ReplyCode, reply_text: str, *, channel: int = 0, method: int = 0) -> None:
        self.reply_code = reply_code
        self.reply_text = reply_text
        self.channel = channel
        self.method = method
        super().__init__(f"{reply_code.value} {reply_code.name}: {reply_text}")

    @property
    def class_id(self) -> int:
        return self.method >> 16

    @property
    def method_id(self) -> int:
        return self.method & 0xFFFF


class LocalProtocolError(ProtocolError):
    """Our own side asked for something AMQP does not allow in this state; nothing was sent and no state changed."""


class EncodingError(LocalProtocolError):
    """A value can't be written as AMQP."""

    def __init__(self, reply_text: str) -> None:
        super().__init__(ReplyCode.SYNTAX_ERROR, reply_text)


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol.

    Raised out of `Connection.receive_data`, the connection has stopped and `data_to_send` holds what AMQP says to
    answer: send that, then hang up. Raised while reading properties or a table, the message's sender wrote nonsense;
    the connection is unharmed.
    """


class FramingLost(RemoteProtocolError):
    """The peer's frames can't be told apart any more (501): nothing that follows can be read."""

    def __init__(self, reply_text: str) -> None:
        super().__init__(ReplyCode.FRAME_ERROR, reply_text)


def syntax_error(reply_text: str) -> RemoteProtocolError:
    """The peer's bytes don't follow the grammar (502)."""
    return RemoteProtocolError(ReplyCode.SYNTAX_ERROR, reply_text)
