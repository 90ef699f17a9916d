"""A client and the broker's session with it, without sockets."""

from collections.abc import Callable, Collection, Mapping

from redrive import wire
from redrive.embedded import PROFILES, Faults
from redrive.embedded.client_session import ClientSession
from redrive.embedded.engine import Connection, Engine
from redrive.wire import methods
from tests.unit.embedded.engine_rig import START_MS


class Conversation:
    """A client and the broker's session with it, without sockets: `ask` says a method and hears everything that comes
    back for it, in its order."""

    def __init__(self, profile: str, *, channel_max: int = 2047) -> None:
        self.engine = Engine(PROFILES[profile], START_MS)
        self.users: Mapping[str, str] = {"guest": "guest"}
        self.tags: Mapping[str, Collection[str]] = {}
        self.limits = wire.Limits()
        self.faults = Faults()
        self.session = ClientSession(self)
        self.client = wire.Connection(wire.Side.CLIENT)
        self.client.send_protocol_header()
        self._carry()
        properties = {"capabilities": {"consumer_cancel_notify": True, "authentication_failure_close": True}}
        response = wire.plain_response("guest", "guest")
        self.ask(0, methods.ConnectionStartOk(client_properties=properties, response=response))
        self.ask(0, methods.ConnectionTuneOk(channel_max=channel_max, frame_max=131_072, heartbeat_s=0))
        # A client that gives its channels any number it likes, as aiormq's may.
        self.client.allow_channel_numbers(65_535)
        self.ask(0, methods.ConnectionOpen())

    def ask(self, channel: int, method: methods.Method) -> list[methods.Method]:
        self.client.send(channel, method)
        return self._carry()

    def open(self, channel: int) -> list[methods.Method]:
        return self.ask(channel, methods.ChannelOpen())

    def attach(self, connection: Connection, session: ClientSession) -> None:
        """There is one session only."""

    def dispatch_effects(self) -> None:
        for effect in self.engine.take_effects():
            self.session.send_effect(effect)

    def cut(self, session: ClientSession) -> None:
        session.end()

    def call_after(self, delay_ms: int, session: ClientSession | None, action: Callable[[], None]) -> None:
        raise AssertionError("there are no faults here")

    def block_for(self, delay_ms: int) -> None:
        raise AssertionError("there are no faults here")

    def restart(self) -> None:
        raise AssertionError("there are no faults here")

    def _carry(self) -> list[methods.Method]:
        self.session.receive(self.client.data_to_send())
        self.dispatch_effects()
        self.session.flush_confirms()
        events = list(self.client.receive_data(self.session.wire.data_to_send()))
        return [event.method for event in events if isinstance(event, wire.Command)]
