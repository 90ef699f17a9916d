"""The state of one end of a connection: which methods are allowed now, which channels are open, what waits to be sent.

`Lifecycle` keeps the current row of the tables in `protocol_states` and obeys them. It does not know how frames are
parsed or how messages are packed.
"""

from dataclasses import dataclass
from typing import Any

from redrive.wire.errors import FramingLost, LocalProtocolError, RemoteProtocolError, ReplyCode
from redrive.wire.events import Delivery
from redrive.wire.frames import (
    FRAME_OVERHEAD,
    HEADER_GROWTH_MAX,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    FrameSplitter,
    encode_frame,
)
from redrive.wire.message_methods import Opening
from redrive.wire.methods import (
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
    Side,
    encode_method,
)
from redrive.wire.negotiation import Limits, check_answer
from redrive.wire.protocol_states import (
    CHANNEL,
    CHANNEL_LIFE,
    CONNECTION,
    CONNECTION_CLOSING,
    ChannelState,
    ConnectionState,
    ProtocolHeader,
)

_NOT_TUNED = frozenset(
    {
        ConnectionState.IDLE,
        ConnectionState.GREETED,
        ConnectionState.STARTING,
        ConnectionState.CHALLENGED,
        ConnectionState.AUTHENTICATING,
        ConnectionState.TUNING,
    }
)


@dataclass(slots=True)
class Unfinished:
    """A message of which not all frames have arrived: its method, then its header, then more and more of its body."""

    opening: Opening
    method: int
    header: bytes | None = None
    body_size: int = 0
    body: bytearray | None = None

    @property
    def held_bytes(self) -> int:
        return (0 if self.header is None else len(self.header)) + (0 if self.body is None else len(self.body))


@dataclass(slots=True)
class OpenedChannel:
    """A channel that is not CLOSED."""

    state: ChannelState
    unfinished: Unfinished | None = None


class Lifecycle:
    """The state of one end of a connection, for the parts of `Connection` to share.

    `out` holds the bytes to send. It, `open_channels`, `ready_channels` and `delivery_types` are never replaced, so
    that the hot paths may keep references to them.
    """

    def __init__(self, side: Side, limits: Limits | None = None) -> None:
        self.side = side
        self.limits = Limits() if limits is None else limits
        self.state = ConnectionState.IDLE
        self.channel_max = self.limits.channel_max
        self.frame_max = self.limits.frame_max
        self.heartbeat_s = 0
        self.blocked: str | None = None
        self.out: list[bytes] = []
        self.channels: dict[int, OpenedChannel] = {}
        self.open_channels: set[int] = set()
        """The channels on which messages may be sent: what the hot path sees of the state tables."""
        self.ready_channels: set[int] = set()
        """The open channels on which a message may begin to arrive: those with none unfinished."""
        self.delivery_types: dict[int, tuple[type[Delivery], Any]] = {}
        """The class of the deliveries on each open channel, and their `session`."""
        self.unfinished_bytes = 0
        self._proposal: ConnectionTune | None = None
        self.splitter = FrameSplitter(self.frame_max, of_client=side is Side.SERVER)
        self.payload_max = 0
        self.whole_message_max = 0
        """A whole message no longer than this can't hold a frame or a body that is too large."""
        self._adopt_frame_max(self.frame_max)
        if side is Side.SERVER:
            # Until the two agreed on more, a client gets by with the smallest frame, as on RabbitMQ.
            self.splitter.limit(self.limits.frame_min)

    def channel_state(self, channel: int) -> ChannelState:
        """The state of a channel, CLOSED for one never opened."""
        known = self.channels.get(channel)
        return ChannelState.CLOSED if known is None else known.state

    def free_channel(self) -> int | None:
        """The lowest channel number not in use, None if all are."""
        if len(self.channels) >= self.channel_max:
            return None
        return next((number for number in range(1, self.channel_max + 1) if number not in self.channels), None)

    def send_protocol_header(self) -> None:
        """Queue a client's protocol header."""
        step = CONNECTION[self.state].get((self.side, ProtocolHeader))
        if step is None or self.side is Side.SERVER:
            raise self.refusal("the protocol header")
        self.out.append(PROTOCOL_HEADER)
        self.state = step

    def send_heartbeat(self) -> None:
        """Queue a heartbeat; the clock is the caller's."""
        if self.state in (ConnectionState.IDLE, ConnectionState.GREETED, ConnectionState.CLOSED):
            raise self.refusal("a heartbeat")
        self.out.append(HEARTBEAT_FRAME)

    def send(self, channel: int, method: Method) -> None:
        """Queue a cold method. Raises LocalProtocolError, with nothing queued or changed, if it is not allowed now."""
        if method.SPEAKER is self.side.peer:
            raise self.refusal(method.NAME, f"it is the {self.side.peer.value}'s to send")
        payload = encode_method(method)
        if len(payload) + FRAME_OVERHEAD > self.frame_max:
            raise LocalProtocolError(
                ReplyCode.FRAME_ERROR,
                f"{method.NAME} takes {len(payload) + FRAME_OVERHEAD} octets, frame_max is {self.frame_max}",
                channel=channel,
                method=method.INDEX,
            )
        if channel == 0:
            step = CONNECTION[self.state].get((self.side, type(method)))
            if step is None:
                raise self.refusal(method.NAME)
            self.out.append(encode_frame(METHOD, 0, payload))
            self.enter(step, method)
        else:
            channel_step = self._channel_step(channel, method)
            self.out.append(encode_frame(METHOD, channel, payload))
            if channel_step is not None:
                self.enter_channel(channel, channel_step)

    def close(self, reply_code: int = 200, reply_text: str = "", method: int = 0) -> None:
        """Queue connection.close; everything that arrives before close-ok will be discarded."""
        self.send(
            0,
            ConnectionClose(
                reply_code=reply_code,
                reply_text=_cut(reply_text),
                class_id=method >> 16,
                method_id=method & 0xFFFF,
            ),
        )

    def receive_eof(self) -> None:
        """The transport is gone: nothing more can be sent or received."""
        self.enter(ConnectionState.CLOSED)

    def _channel_step(self, channel: int, method: Method) -> ChannelState | None:
        """The channel state our method leads to, None if it changes none."""
        state = self.channel_state(channel)
        if self.state is not ConnectionState.OPEN:
            raise self.refusal(method.NAME, channel=channel)
        if type(method) in CHANNEL_LIFE:
            step = CHANNEL[state].get((self.side, type(method)))
            if step is None:
                raise self.refusal(method.NAME, f"channel {channel} is {state.name}", channel=channel)
            if not 0 < channel <= self.channel_max:
                raise self.refusal(method.NAME, f"channel numbers go up to {self.channel_max}", channel=channel)
            return step
        if state is not ChannelState.OPEN or method.INDEX >> 16 == 10:
            raise self.refusal(method.NAME, f"channel {channel} is {state.name}", channel=channel)
        return None

    def enter(self, state: ConnectionState, method: Method | None = None) -> None:
        """Enter a connection state, and apply what the method that led there says."""
        self.state = state
        match method:
            case ConnectionTune():
                self._proposal = method
            case ConnectionTuneOk():
                self.channel_max = method.channel_max or 65_535
                self.heartbeat_s = method.heartbeat_s
                self._adopt_frame_max(method.frame_max or self.limits.frame_max)
            case ConnectionBlocked():
                self.blocked = method.reason
            case ConnectionUnblocked():
                self.blocked = None
        if state is ConnectionState.CLOSED or state in CONNECTION_CLOSING:
            self.channels.clear()
            self.open_channels.clear()
            self.ready_channels.clear()
            self.delivery_types.clear()
            self.unfinished_bytes = 0
        if state is ConnectionState.CLOSED:
            self.splitter.discard()

    def enter_channel(self, channel: int, state: ChannelState) -> None:
        """Enter a channel state; an unfinished message of the channel is dropped."""
        known = self.channels.get(channel)
        if known is not None and known.unfinished is not None:
            self.unfinished_bytes -= known.unfinished.held_bytes
        if state is ChannelState.OPEN:
            self.open_channels.add(channel)
            self.ready_channels.add(channel)
            self.delivery_types[channel] = (Delivery, None)
        else:
            self.open_channels.discard(channel)
            self.ready_channels.discard(channel)
            self.delivery_types.pop(channel, None)
        if state is ChannelState.CLOSED:
            self.channels.pop(channel, None)
        else:
            self.channels[channel] = OpenedChannel(state)

    def check_tune_ok(self, tune_ok: ConnectionTuneOk) -> None:
        """Raises RemoteProtocolError (530) for an answer that our proposal does not allow."""
        if self._proposal is not None:
            check_answer(tune_ok, self._proposal, self.limits.frame_min)

    def answer_close(self, channel: int) -> None:
        """Queue the close-ok that every close gets."""
        self.send(channel, ChannelCloseOk() if channel else ConnectionCloseOk())

    def _adopt_frame_max(self, frame_max: int) -> None:
        # Never above our own limit, which bounds the buffer; a peer that was promised more by us does not exist.
        self.frame_max = min(frame_max, self.limits.frame_max)
        self.payload_max = self.frame_max - FRAME_OVERHEAD
        if self.side is Side.CLIENT:
            # A broker adds headers (x-death, x-delivery-count) to messages that just fitted, and does not ask whether
            # they still do (observed on 3.10.8 and 4.3.6). To refuse them is to lose the connection at every delivery.
            self.splitter.limit(self.payload_max, self.payload_max + HEADER_GROWTH_MAX)
        else:
            # RabbitMQ compares the payload alone with frame-max, so that a frame may be eight octets larger.
            self.splitter.limit(self.frame_max)
        self.whole_message_max = min(self.payload_max, self.limits.body_size_max)

    def give_up(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol: queue the connection.close that says so, where one may still be sent.

        When framing is lost nothing that follows can be understood, so the connection is CLOSED at once; after any
        other offence it waits for close-ok. A server does as RabbitMQ does: it says nothing to a client that has not
        come as far as tune-ok, nor to one that sends an unknown method.
        """
        is_server = self.side is Side.SERVER
        is_mute = is_server and (self.state in _NOT_TUNED or error.reply_code is ReplyCode.NOT_IMPLEMENTED)
        if (self.side, ConnectionClose) in CONNECTION[self.state] and not is_mute:
            text = f"{error.reply_code.name} - {error.reply_text}" if is_server else error.reply_text
            self.close(error.reply_code, text, error.method)
            if not isinstance(error, FramingLost):
                return
        self.enter(ConnectionState.CLOSED)

    def refusal(self, what: str, why: str | None = None, *, channel: int = 0) -> LocalProtocolError:
        """The error for something that our own side may not send now."""
        because = f"the connection is {self.state.name}" if why is None else why
        code = ReplyCode.CHANNEL_ERROR if channel else ReplyCode.COMMAND_INVALID
        return LocalProtocolError(code, f"{what} can't be sent: {because}", channel=channel)


def _cut(text: str) -> str:
    """At most 255 octets of UTF-8, as a short string allows, on a character's border."""
    return text.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")
