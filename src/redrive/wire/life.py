"""A connection's state: which steps are allowed, which channels are open, and what is waiting to be sent.

Owns the tables' present row and obeys them; knows nothing of how frames are parsed or messages packed.
"""

from dataclasses import dataclass

from redrive.wire.errors import FramingLost, LocalProtocolError, RemoteProtocolError, ReplyCode
from redrive.wire.frames import (
    FRAME_OVERHEAD,
    HEADER_GROWTH_MAX,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    FrameSplitter,
    encode_frame,
)
from redrive.wire.hot import Opening
from redrive.wire.methods import (
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
    encode_method,
)
from redrive.wire.negotiation import Limits, check_answer
from redrive.wire.roles import Role
from redrive.wire.states import (
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
    """A message of which not all frames are here: its method, then its header, then ever more of its body."""

    opening: Opening
    method: int
    header: bytes | None = None
    body_size: int = 0
    body: bytearray | None = None

    @property
    def held_bytes(self) -> int:
        return (0 if self.header is None else len(self.header)) + (0 if self.body is None else len(self.body))


@dataclass(slots=True)
class _Channel:
    state: ChannelState
    unfinished: Unfinished | None = None


class Life:
    """The state of one end of a connection."""

    def __init__(self, role: Role, limits: Limits | None = None) -> None:
        self.role = role
        self.limits = Limits() if limits is None else limits
        self.state = ConnectionState.IDLE
        self.channel_max = self.limits.channel_max
        self.frame_max = self.limits.frame_max
        self.heartbeat_s = 0
        self.blocked: str | None = None
        self._out: list[bytes] = []
        self._channels: dict[int, _Channel] = {}
        # The hot path's whole view of the tables. `_open`: channels on which messages may be sent. `_ready`: those of
        # them on which a new message may begin to arrive, that is, with none unfinished.
        self._open: set[int] = set()
        self._ready: set[int] = set()
        self._unfinished_bytes = 0
        self._proposal: ConnectionTune | None = None
        self._splitter = FrameSplitter(self.frame_max, of_client=role is Role.SERVER)
        self._payload_max = 0
        self._hot_max = 0
        self._adopt_frame_max(self.frame_max)
        if role is Role.SERVER:
            # Until the two agreed on more, a client gets by with the smallest frame, as on RabbitMQ.
            self._splitter.payload_max = self._splitter.header_max = self.limits.frame_min

    def data_to_send(self) -> bytes:
        """Everything queued since the last call, in order, for one write to the transport."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    def channel_state(self, channel: int) -> ChannelState:
        """The state of a channel, CLOSED for one never opened."""
        known = self._channels.get(channel)
        return ChannelState.CLOSED if known is None else known.state

    def free_channel(self) -> int | None:
        """The lowest channel number not in use, None if all are."""
        if len(self._channels) >= self.channel_max:
            return None
        return next((number for number in range(1, self.channel_max + 1) if number not in self._channels), None)

    def send_protocol_header(self) -> None:
        """A client's first words."""
        step = CONNECTION[self.state].get((self.role, ProtocolHeader))
        if step is None or self.role is Role.SERVER:
            raise self._refusal("the protocol header")
        self._out.append(PROTOCOL_HEADER)
        self.state = step

    def send_heartbeat(self) -> None:
        """Allowed once the connection is tuned; the clock is the caller's."""
        if self.state in (ConnectionState.IDLE, ConnectionState.GREETED, ConnectionState.CLOSED):
            raise self._refusal("a heartbeat")
        self._out.append(HEARTBEAT_FRAME)

    def send(self, channel: int, method: Method) -> None:
        """Queue a cold method. Raises LocalProtocolError, with nothing queued or changed, if it is not allowed now."""
        if method.SPEAKER is self.role.peer:
            raise self._refusal(method.NAME, f"it is the {self.role.peer.value}'s to send")
        payload = encode_method(method)
        if len(payload) + FRAME_OVERHEAD > self.frame_max:
            raise LocalProtocolError(
                ReplyCode.FRAME_ERROR,
                f"{method.NAME} takes {len(payload) + FRAME_OVERHEAD} octets, frame_max is {self.frame_max}",
                channel=channel,
                method=method.INDEX,
            )
        if channel == 0:
            step = CONNECTION[self.state].get((self.role, type(method)))
            if step is None:
                raise self._refusal(method.NAME)
            self._out.append(encode_frame(METHOD, 0, payload))
            self._enter(step, method)
        else:
            channel_step = self._channel_step(channel, method)
            self._out.append(encode_frame(METHOD, channel, payload))
            if channel_step is not None:
                self._enter_channel(channel, channel_step)

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
        self._enter(ConnectionState.CLOSED)

    def _channel_step(self, channel: int, method: Method) -> ChannelState | None:
        """The channel state our method leads to, None if it changes none."""
        state = self.channel_state(channel)
        if self.state is not ConnectionState.OPEN:
            raise self._refusal(method.NAME, channel=channel)
        if type(method) in CHANNEL_LIFE:
            step = CHANNEL[state].get((self.role, type(method)))
            if step is None:
                raise self._refusal(method.NAME, f"channel {channel} is {state.name}", channel=channel)
            if not 0 < channel <= self.channel_max:
                raise self._refusal(method.NAME, f"channel numbers go up to {self.channel_max}", channel=channel)
            return step
        if state is not ChannelState.OPEN or method.INDEX >> 16 == 10:
            raise self._refusal(method.NAME, f"channel {channel} is {state.name}", channel=channel)
        return None

    def _enter(self, state: ConnectionState, method: Method | None = None) -> None:
        """Be in a connection state, with what the method that led there means for the rest."""
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
            self._channels.clear()
            self._open.clear()
            self._ready.clear()
            self._unfinished_bytes = 0
        if state is ConnectionState.CLOSED:
            self._splitter.discard()

    def _enter_channel(self, channel: int, state: ChannelState) -> None:
        known = self._channels.get(channel)
        if known is not None and known.unfinished is not None:
            self._unfinished_bytes -= known.unfinished.held_bytes
        if state is ChannelState.OPEN:
            self._open.add(channel)
            self._ready.add(channel)
        else:
            self._open.discard(channel)
            self._ready.discard(channel)
        if state is ChannelState.CLOSED:
            self._channels.pop(channel, None)
        else:
            self._channels[channel] = _Channel(state)

    def _check_tune_ok(self, tune_ok: ConnectionTuneOk) -> None:
        if self._proposal is not None:
            check_answer(tune_ok, self._proposal, self.limits.frame_min)

    def _answer_close(self, channel: int) -> None:
        """Every close gets its close-ok."""
        self.send(channel, ChannelCloseOk() if channel else ConnectionCloseOk())

    def _adopt_frame_max(self, frame_max: int) -> None:
        # Never above our own limit, which bounds the buffer; a peer that was promised more by us does not exist.
        self.frame_max = min(frame_max, self.limits.frame_max)
        self._payload_max = self.frame_max - FRAME_OVERHEAD
        self._splitter.payload_max = self._splitter.header_max = self._payload_max
        if self.role is Role.CLIENT:
            # A broker adds headers (x-death, x-delivery-count) to messages that just fitted, and does not ask whether
            # they still do (observed on 3.10.8 and 4.3.6). To refuse them is to lose the connection at every delivery.
            self._splitter.header_max += HEADER_GROWTH_MAX
        else:
            # RabbitMQ compares the payload alone with frame-max, so that a frame may be eight octets larger.
            self._splitter.payload_max = self._splitter.header_max = self.frame_max
        # A whole message no longer than this can't hold a frame or a body that is too large.
        self._hot_max = min(self._payload_max, self.limits.body_size_max)

    def _give_up(self, error: RemoteProtocolError) -> None:
        """The peer broke the protocol: queue the connection.close that says so, where one may still be sent.

        When framing is lost nothing that follows can be understood, so the connection is CLOSED at once; after any
        other offence it waits for close-ok. As a server it has RabbitMQ's manners: it says nothing to a client that has
        not come as far as tune-ok, nor to one that sends a method nobody knows.
        """
        is_server = self.role is Role.SERVER
        is_mute = is_server and (self.state in _NOT_TUNED or error.reply_code is ReplyCode.NOT_IMPLEMENTED)
        if (self.role, ConnectionClose) in CONNECTION[self.state] and not is_mute:
            text = f"{error.reply_code.name} - {error.reply_text}" if is_server else error.reply_text
            self.close(error.reply_code, text, error.method)
            if not isinstance(error, FramingLost):
                return
        self._enter(ConnectionState.CLOSED)

    def _refusal(self, what: str, why: str | None = None, *, channel: int = 0) -> LocalProtocolError:
        because = f"the connection is {self.state.name}" if why is None else why
        code = ReplyCode.CHANNEL_ERROR if channel else ReplyCode.COMMAND_INVALID
        return LocalProtocolError(code, f"{what} can't be sent: {because}", channel=channel)


def _cut(text: str) -> str:
    """At most 255 octets of UTF-8, as a short string allows, on a character's border."""
    return text.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")
