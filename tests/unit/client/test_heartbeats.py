"""A broker that falls silent is noticed by heartbeats, and by TCP keepalive where they are off."""

import asyncio
import socket
from collections.abc import Callable

from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.testing import run_in_virtual_time
from tests.unit.client.scenario import Notes, ended, run_scenario
from tests.unit.client.scripted import ScriptedBroker


class Line(asyncio.Protocol):
    """Between a client and its transport: once it is cut nothing arrives any more, without an error."""

    def __init__(self, client: asyncio.Protocol) -> None:
        self._client = client
        self.is_cut = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self.is_cut:
            self._client.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.connection_lost(error)


def test_a_broker_that_is_silent_for_two_intervals_is_given_up_and_an_idle_one_is_not() -> None:
    notes = Notes()
    lines: list[Line] = []

    async def scenario() -> None:
        async def dial(protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
            lines.append(Line(protocol()))
            await broker.dial(lambda: lines[-1], host, port)

        async with (
            EmbeddedBroker(listen=False) as broker,
            Client(f"{broker.url}?heartbeat=2", dial=dial, observer=notes) as client,
        ):
            channel = await client.channel()
            await asyncio.sleep(60)
            assert notes.count("client.connection_lost") == 0
            lines[0].is_cut = True
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            (error,) = await ended(channel.declare_queue("q"), timeout_s=600)
            assert "silent for 4 s (no heartbeat)" in str(error)
            assert 4.0 <= loop.time() - began_s <= 5.0

    run_in_virtual_time(scenario())


def test_a_connection_without_heartbeats_is_kept_alive_by_tcp() -> None:
    """Or nobody ever notices that the broker's machine is gone."""
    transports: list[asyncio.BaseTransport] = []

    async def dial(protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(protocol, host, port)
        transports.append(transport)

    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url, dial=dial):
            (transport,) = transports
            used = transport.get_extra_info("socket")
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0

    run_scenario(scenario())
