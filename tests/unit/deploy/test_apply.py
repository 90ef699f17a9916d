"""What `apply` says is missing is missing, bindings too; and a broker that is not up yet is waited for."""

import asyncio
import socket

import pytest

from redrive.client import AuthenticationFailed, Client, ConnectionFailed, parse_url
from redrive.deploy import Inspection, apply, inspect
from redrive.embedded import EmbeddedBroker
from redrive.testing.plugin import ThreadedBroker
from redrive.topology import Binding, Queue, Topology, compile_declaration, read_declaration
from redrive.wire import methods
from redrive.wiring import Setting, apply_topology, management_of, wait_connected
from tests.unit.client.scenario import run_scenario, wait_until
from tests.unit.client.scripted import ScriptedBroker
from tests.unit.free_ports import free_port

BINDING = Binding(source="domain.events", destination="orders", routing_key="orders.#")


def topology() -> Topology:
    text = """
exchanges: {domain.events: topic}
queues: {orders: {from: {domain.events: ["orders.#"]}, retry: [30s]}}
"""
    return compile_declaration(read_declaration(text)).topology


def test_what_nobody_can_know_is_not_called_present() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            first = await inspect(client, topology())
            assert first.missing_bindings == (BINDING,), "nothing is bound to a queue that does not exist"
            declared = await apply(client, topology(), first)
            assert declared[-1] == BINDING.address
            again = await inspect(client, topology())
            assert (again.missing, again.missing_bindings) == ((), None)
            assert await apply(client, topology(), again) == ()

    run_scenario(scenario())


def test_bindings_that_are_known_are_told_apart() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            await apply(client, topology(), await inspect(client, topology()))
            here = await inspect(client, topology(), bound=[BINDING])
            assert (here.missing, here.missing_bindings) == ((), ())
            gone = await inspect(client, topology(), bound=[])
            assert gone.missing == (BINDING.address,)
            other = Binding(source="domain.events", destination="orders", routing_key="orders.*")
            assert (await inspect(client, topology(), bound=[other])).missing_bindings == (BINDING,)

    run_scenario(scenario())


def test_nothing_is_declared_that_was_not_confirmed(broker: ThreadedBroker) -> None:
    nowhere = Setting(value="http://127.0.0.1:1", source="--management-url")
    asked: list[tuple[str, ...]] = []

    def confirm(inspection: Inspection, _why: str) -> bool:
        asked.append(inspection.missing)
        return len(asked) > 1

    def declared() -> tuple[str, ...] | None:
        target = parse_url(broker.url)
        management = management_of(target, nowhere)
        return apply_topology(topology(), compiled=None, target=target, management=management, confirm=confirm).declared

    assert declared() is None
    assert (len(asked), broker.depths()) == (1, {}), "asked, and said no"
    assert declared() == asked[1] == asked[0]
    assert "orders" in broker.depths()


def test_a_queue_that_is_another_connection_s_own_is_named() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as other, Client(broker.url) as client:
            await (await other.channel()).declare_queue("orders", exclusive=True)
            inspection = await inspect(client, topology())
            (difference,) = inspection.differences
            assert (difference.address, difference.argument) == ("queue orders", "")
            assert difference.text == "queue orders: is exclusive to another connection"

    run_scenario(scenario())


def test_an_object_that_the_broker_can_not_tell_of_is_named_with_its_words() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Client(broker.url) as client:
            peer = broker.peer
            peer.silent_on.add(methods.QueueDeclare)
            inspecting = asyncio.create_task(inspect(client, Topology(queues=(Queue(name="orders"),))))
            await wait_until(lambda: peer.heard(methods.QueueDeclare))
            (asked,) = peer.heard(methods.QueueDeclare)
            peer.say(asked.channel, methods.ChannelClose(reply_code=541, reply_text="INTERNAL_ERROR - no leader"))
            (difference,) = (await inspecting).differences
            assert (difference.address, difference.argument) == ("queue orders", "")
            assert difference.text.startswith("queue orders: ")
            assert "INTERNAL_ERROR - no leader" in difference.text

    run_scenario(scenario())


@pytest.mark.slow
def test_a_broker_that_comes_up_later_is_waited_for_and_it_is_said_what_for() -> None:
    async def scenario() -> None:
        port = free_port()
        said: list[str] = []
        target = parse_url(f"amqp://guest:guest@127.0.0.1:{port}/")
        waiting = asyncio.create_task(wait_connected(target, name="test", wait_s=20, waiting=said.append))
        await wait_until(lambda: bool(said))
        async with EmbeddedBroker(port=port):
            client = await waiting
            assert client.is_connected
            await client.close()
        assert said == [f"127.0.0.1:{port}: the connection was refused; does a broker run there?"]

    run_scenario(scenario(), timeout_s=30)


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, True])
def test_waiting_for_a_broker_ends(is_silent: bool) -> None:
    """Nobody listens, or somebody who never answers."""

    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            if is_silent:
                taken.listen()
            target = parse_url(f"amqp://guest:guest@127.0.0.1:{taken.getsockname()[1]}/")
            started_s = asyncio.get_running_loop().time()
            with pytest.raises(ConnectionFailed, match=r"waited 0\.7 s for it"):
                await wait_connected(target, name="test", wait_s=0.7)
            assert asyncio.get_running_loop().time() - started_s < 3

    run_scenario(scenario())


def test_who_is_refused_is_not_tried_again() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker:
            target = parse_url(broker.url.replace("guest:guest", "guest:wrong"))
            said: list[str] = []
            with pytest.raises(AuthenticationFailed):
                await wait_connected(target, name="test", wait_s=600, waiting=said.append)
            assert said == []

    run_scenario(scenario())
