"""What seeds have found, each as the smallest story that still shows it."""

import asyncio

from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.running import declare_missing
from redrive.runtime import App, Runner, RunOptions
from redrive.runtime.turns import Turns
from redrive.testing import run_in_virtual_time
from redrive.topology import compile_declaration, declare
from tests.simulation.tally import play_seed

DECLARED = compile_declaration(declare(exchanges={"shop": "topic"}, queues={"orders": {"retry": ["30s"]}}))


def test_an_app_that_was_about_to_consume_again_stops_in_time_although_its_broker_is_gone() -> None:
    """It held what `stop` waits for, for as long as there was no connection."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        app = App(DECLARED)

        @app.consumer("orders")
        async def take(order: bytes) -> None: ...

        async with EmbeddedBroker(listen=False) as broker:
            await declare_missing(DECLARED, lambda _: Client(broker.url, dial=broker.dial))
            options = RunOptions(grace_s=1)
            runner = Runner(app.consumptions(DECLARED), lambda _: Client(broker.url, dial=broker.dial), options=options)
            await runner.start()
            (subscription,) = runner.subscriptions
            await subscription.stop_consuming()
            await broker.stop()
            await asyncio.sleep(1)
            again = asyncio.create_task(subscription.start_consuming())
            await asyncio.sleep(1)
            began_s = loop.time()
            async with asyncio.timeout(600):
                await runner.stop()
            await again
            return loop.time() - began_s

    assert run_in_virtual_time(main()) < 30


def test_a_turn_that_nobody_may_use_now_does_not_go_round_among_those_who_wait() -> None:
    """It did, in one turn of the event loop after the other, and nothing else got the processor's time."""

    async def main() -> list[str]:
        turns, heard = Turns(1), []
        assert turns.try_take()

        async def wait(name: str) -> None:
            heard.append(f"{name}: {'a turn' if await turns.wait() else 'look again'}")

        first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
        await asyncio.sleep(0)
        turns.pass_on()
        await first
        turns.put_back()
        await asyncio.sleep(1)
        assert not second.done()
        turns.wake()
        await second
        assert turns.try_take()
        return heard

    assert run_in_virtual_time(main()) == ["first: a turn", "second: look again"]


def test_a_broker_that_was_down_gives_out_what_came_due_meanwhile_and_afterwards() -> None:
    """The server that was stopped went on ringing for the engine's deadlines, and told nobody what they brought."""

    async def main() -> list[bytes]:
        async with EmbeddedBroker(listen=False) as broker, Client(broker.url, dial=broker.dial) as client:
            channel = await client.channel()
            await channel.declare_queue("orders")
            back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
            for name, ttl_ms in (("short", 5_000), ("long", 60_000)):
                await channel.declare_queue(name, durable=True, arguments={"x-message-ttl": ttl_ms, **back})
            publisher = await client.publisher()
            for name in ("short", "long"):
                await publisher.publish("", name, name.encode())
            deliveries = await client.deliveries("orders")
            await broker.stop()
            await asyncio.sleep(10)
            await broker.start()
            found = []
            for _ in range(2):
                async with asyncio.timeout(600):
                    delivery = await anext(deliveries)
                delivery.ack()
                found.append(delivery.body)
            await deliveries.close()
            return found

    assert run_in_virtual_time(main()) == [b"short", b"long"]


def test_a_frame_held_back_until_its_connection_was_closed_is_not_answered() -> None:
    """The embedded broker told a connection that was gone that it is blocked, and its event loop raised."""
    assert play_seed(12797).account.faults_found == []
