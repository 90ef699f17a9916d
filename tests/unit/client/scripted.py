"""A broker on loopback that opens connections and channels by itself and otherwise does only what a test says.

It is `wire` in the server's role, so that a test can say at a given moment what a real broker says rarely: a return, a
nack, a blocked, a close in the middle of deliveries, or nothing at all.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from redrive import wire
from redrive.wire import methods

PERSISTENT = wire.Properties.of(delivery_mode=2).raw


class Peer(asyncio.Protocol):
    """One client's connection, seen from the broker."""

    def __init__(self, broker: "ScriptedBroker") -> None:
        self._broker = broker
        self.wire = wire.Connection(wire.Side.SERVER, wire.Limits(heartbeat_s=0, channel_max=broker.channel_max))
        self.events: list[wire.Event] = []
        self.silent_on: set[type[methods.Method]] = set()
        """Methods that get no answer."""
        self.transport: asyncio.Transport
        self.gone = False
        self.consumers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._broker.peers.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.gone = True

    def data_received(self, data: bytes) -> None:
        for event in self.wire.receive_data(data):
            self.events.append(event)
            self._answer(event)
        self.flush()

    def flush(self) -> None:
        self.transport.write(self.wire.data_to_send())

    def say(self, channel: int, *said: methods.Method) -> None:
        """All in one write."""
        for method in said:
            self.wire.send(channel, method)
        self.flush()

    def deliver(self, channel: int, *tags: int, body: bytes = b"body") -> None:
        for tag in tags:
            self.wire.deliver(channel, "ctag", tag, False, "", "q", PERSISTENT, body)
        self.flush()

    def confirm(self, channel: int, tag: int, *, multiple: bool = False) -> None:
        self.wire.ack(channel, tag, multiple)
        self.flush()

    def refuse(self, channel: int, tag: int, *, multiple: bool = False) -> None:
        self.wire.nack(channel, tag, multiple, False)
        self.flush()

    def give_back(self, channel: int, routing_key: str, body: bytes, header: bytes = PERSISTENT) -> None:
        self.wire.return_message(channel, 312, "NO_ROUTE", "", routing_key, header, body)
        self.flush()

    def hang_up(self) -> None:
        self.transport.abort()

    def heard(self, kind: type) -> list[wire.Event]:
        """Events of a kind, or commands with a method of it, in order."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) or (isinstance(event, wire.Command) and isinstance(event.method, kind))
        ]

    def _answer(self, event: wire.Event) -> None:
        if isinstance(event, wire.Greeted):
            self.wire.send(0, methods.ConnectionStart(server_properties={"version": "0"}, mechanisms="PLAIN"))
        if not isinstance(event, wire.Command) or type(event.method) in self.silent_on:
            return
        answer = self._answer_to(event.method)
        if answer is not None:
            self.wire.send(event.channel, answer)

    def _answer_to(self, method: methods.Method) -> methods.Method | None:
        match method:
            case methods.ConnectionStartOk():
                return self._broker.refusal or self.wire.limits.propose()
            case methods.ConnectionOpen():
                return methods.ConnectionOpenOk()
            case methods.ChannelOpen():
                return methods.ChannelOpenOk()
            case methods.ConfirmSelect():
                return methods.ConfirmSelectOk()
            case methods.BasicQos():
                return methods.BasicQosOk()
            case methods.BasicConsume():
                self.consumers += 1
                return methods.BasicConsumeOk(consumer_tag="ctag")
            case methods.BasicCancel():
                self.consumers -= 1
                return methods.BasicCancelOk(consumer_tag="ctag")
            case methods.QueueDeclare(queue=queue):
                return methods.QueueDeclareOk(queue=queue)
            case _:
                return None


class ScriptedBroker:
    """`async with ScriptedBroker() as broker`, then `Client(broker.url)`; every connection is one of `peers`."""

    def __init__(self, *, channel_max: int = 2047) -> None:
        self.peers: list[Peer] = []
        self.channel_max = channel_max
        self.refusal: methods.ConnectionClose | None = None
        """Sent instead of tune: refuses every connection."""
        self._server: asyncio.Server

    async def __aenter__(self) -> "ScriptedBroker":
        self._server = await asyncio.get_running_loop().create_server(lambda: Peer(self), "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for peer in self.peers:
            if not peer.gone:
                peer.hang_up()
        await self._server.wait_closed()

    def stop_listening(self) -> None:
        """Refuses new connections from now on."""
        self._server.close()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/?heartbeat=0"

    @property
    def peer(self) -> Peer:
        """The newest connection."""
        return self.peers[-1]


def published(peer: Peer) -> Callable[[], int]:
    """How many publishes have arrived, for `wait_until`."""
    return lambda: len(peer.heard(wire.Published))
