"""The states of a connection and of a channel, as literal tables.

Both ends of a connection see the same methods, so both can follow the same table. It is keyed by who sends:
`(Side.CLIENT, ConnectionOpen)` is sent at one end and received at the other. A method that is not in the row of the
current state is an error: ours (LocalProtocolError) when we send it, the peer's (RemoteProtocolError, 503) when it
does. `Lifecycle` looks states up here and obeys.

    IDLE ─header→ GREETED ─start→ STARTING ─start-ok→ AUTHENTICATING ⇄ CHALLENGED
                                                        └─tune→ TUNING ─tune-ok→ TUNED ─open→ OPENING ─open-ok→ OPEN

Closing is the one place where both may send at once. CLIENT_CLOSING means that the client's close is not answered
yet, SERVER_CLOSING the server's; when the two cross, BOTH_CLOSING, and each close-ok answers one of them. A side that
waits for close-ok discards everything but close and close-ok, as the specification says, for a connection as for a
channel.

Messages (publish, deliver, ack …) are not in the tables. They change no state and need the one state OPEN, so the hot
path asks a set of open channel numbers, which is kept in step with these tables.
"""

from enum import Enum, auto
from typing import TypeAlias

from redrive.wire.methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Side,
)

CLIENT, SERVER = Side.CLIENT, Side.SERVER


class ProtocolHeader:
    """The eight octets before the first frame: not a method, but a step of the table."""


Step: TypeAlias = tuple[Side, type]


class ConnectionState(Enum):
    """How far the handshake, or the closing, has come; the drawing above has the way to OPEN."""

    IDLE = auto()
    GREETED = auto()
    STARTING = auto()
    CHALLENGED = auto()
    AUTHENTICATING = auto()
    TUNING = auto()
    TUNED = auto()
    OPENING = auto()
    OPEN = auto()
    CLIENT_CLOSING = auto()
    SERVER_CLOSING = auto()
    BOTH_CLOSING = auto()
    CLOSED = auto()


class ChannelState(Enum):
    """The same for one channel; a number never used and one free again are both CLOSED."""

    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()
    CLIENT_CLOSING = auto()
    SERVER_CLOSING = auto()
    BOTH_CLOSING = auto()


_C = ConnectionState
_CLOSES: dict[Step, ConnectionState] = {
    (CLIENT, ConnectionClose): _C.CLIENT_CLOSING,
    (SERVER, ConnectionClose): _C.SERVER_CLOSING,
}

CONNECTION: dict[ConnectionState, dict[Step, ConnectionState]] = {
    _C.IDLE: {(CLIENT, ProtocolHeader): _C.GREETED},
    # A server that speaks another version answers with the header it would like, and hangs up.
    _C.GREETED: {
        (SERVER, ConnectionStart): _C.STARTING,
        (SERVER, ProtocolHeader): _C.CLOSED,
    },
    _C.STARTING: {(CLIENT, ConnectionStartOk): _C.AUTHENTICATING, **_CLOSES},
    _C.AUTHENTICATING: {
        (SERVER, ConnectionSecure): _C.CHALLENGED,
        (SERVER, ConnectionTune): _C.TUNING,
        **_CLOSES,
    },
    _C.CHALLENGED: {(CLIENT, ConnectionSecureOk): _C.AUTHENTICATING, **_CLOSES},
    _C.TUNING: {(CLIENT, ConnectionTuneOk): _C.TUNED, **_CLOSES},
    _C.TUNED: {(CLIENT, ConnectionOpen): _C.OPENING, **_CLOSES},
    _C.OPENING: {(SERVER, ConnectionOpenOk): _C.OPEN, **_CLOSES},
    _C.OPEN: {
        (SERVER, ConnectionBlocked): _C.OPEN,
        (SERVER, ConnectionUnblocked): _C.OPEN,
        (CLIENT, ConnectionUpdateSecret): _C.OPEN,
        (SERVER, ConnectionUpdateSecretOk): _C.OPEN,
        **_CLOSES,
    },
    _C.CLIENT_CLOSING: {
        (SERVER, ConnectionCloseOk): _C.CLOSED,
        (SERVER, ConnectionClose): _C.BOTH_CLOSING,
    },
    _C.SERVER_CLOSING: {
        (CLIENT, ConnectionCloseOk): _C.CLOSED,
        (CLIENT, ConnectionClose): _C.BOTH_CLOSING,
    },
    _C.BOTH_CLOSING: {
        (CLIENT, ConnectionCloseOk): _C.CLIENT_CLOSING,
        (SERVER, ConnectionCloseOk): _C.SERVER_CLOSING,
    },
    _C.CLOSED: {},
}

_H = ChannelState

CHANNEL: dict[ChannelState, dict[Step, ChannelState]] = {
    _H.CLOSED: {(CLIENT, ChannelOpen): _H.OPENING},
    _H.OPENING: {
        (SERVER, ChannelOpenOk): _H.OPEN,
        (CLIENT, ChannelClose): _H.CLIENT_CLOSING,
        (SERVER, ChannelClose): _H.SERVER_CLOSING,
    },
    _H.OPEN: {
        (CLIENT, ChannelClose): _H.CLIENT_CLOSING,
        (SERVER, ChannelClose): _H.SERVER_CLOSING,
    },
    _H.CLIENT_CLOSING: {
        (SERVER, ChannelCloseOk): _H.CLOSED,
        (SERVER, ChannelClose): _H.BOTH_CLOSING,
    },
    _H.SERVER_CLOSING: {
        (CLIENT, ChannelCloseOk): _H.CLOSED,
        (CLIENT, ChannelClose): _H.BOTH_CLOSING,
    },
    _H.BOTH_CLOSING: {
        (CLIENT, ChannelCloseOk): _H.CLIENT_CLOSING,
        (SERVER, ChannelCloseOk): _H.SERVER_CLOSING,
    },
}

CONNECTION_CLOSING = frozenset({_C.CLIENT_CLOSING, _C.SERVER_CLOSING, _C.BOTH_CLOSING})
CHANNEL_CLOSING = frozenset({_H.CLIENT_CLOSING, _H.SERVER_CLOSING, _H.BOTH_CLOSING})
CHANNEL_LIFE = frozenset({ChannelOpen, ChannelOpenOk, ChannelClose, ChannelCloseOk})
"""The methods that the channel table speaks of; every other method on a channel needs OPEN."""
