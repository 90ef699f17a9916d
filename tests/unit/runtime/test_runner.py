"""Starting and stopping: nothing begins before its queues are there, nothing is lost when it ends."""

import asyncio

import pytest

from redrive import App
from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions, InvalidApp, TopologyMissing, UnsupportedBroker
from redrive.wiring import declare_missing, running
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import compiled, stage, until

PER_QUEUE = "queues: {q.work: {retry: {shape: per-queue, delays: [1s]}}}"
NATIVE = "queues: {orders: {retry: {shape: native, min: 1s, max: 2s}}}"


def app_of(text: str, handled: list[bytes]) -> App:
    app = App(compiled(text) if text else compiled())

    @app.consumer("orders")
    async def place(body: bytes) -> None:
        handled.append(body)

    return app


def test_an_app_waits_for_its_topology_and_says_what_is_missing() -> None:
    handled: list[bytes] = []

    async def scenario() -> None:
        async with EmbeddedBroker() as broker:
            notes = Notes()
            with pytest.raises(TopologyMissing) as refused:
                async with running(app_of("", []), url=broker.url, options=AppRunOptions(wait_for_topology=False)):
                    pass
            assert refused.value.missing == (
                "queue orders",
                "queue orders.wait.30s",
                "queue orders.wait.5m",
                "queue orders.parked",
            )
            starting = asyncio.create_task(run_until_handled(broker, notes))
            await until(lambda: notes.count("runtime.waiting_for_topology"))
            waiting = notes.last("runtime.waiting_for_topology")
            assert waiting["missing"] == list(refused.value.missing)
            assert waiting["declare_with"] == "redrive apply FILE", "its declaration is from no file"
            await declare_missing(compiled(), lambda _: Client(broker.url))
            await starting

    async def run_until_handled(broker: EmbeddedBroker, notes: Notes) -> None:
        async with running(app_of("", handled), url=broker.url, observer=notes):
            async with Client(broker.url) as client:
                await (await client.publisher()).publish("", "orders", b"x")
            await until(lambda: handled == [b"x"])

    run_scenario(scenario())


def test_an_app_declares_its_topology_if_told_to_and_refuses_one_that_differs() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            async with running(app_of("", []), url=broker.url, declare=True) as runner:
                assert runner.subscriptions[0].unready is None
            channel = await client.channel()
            await channel.delete_queue("orders.parked")
            await channel.declare_queue("orders.parked")
            with pytest.raises(InvalidApp, match=r"queue orders\.parked is there with other settings"):
                async with running(app_of("", []), url=broker.url, declare=True):
                    pass

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.0"])
def test_native_is_refused_below_4_3_1(profile: str) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker(profile) as broker:
            with pytest.raises(UnsupportedBroker, match=r"queue orders has shape native, which needs RabbitMQ 4\.3\.1"):
                async with running(app_of(NATIVE, []), url=broker.url):
                    pass

    run_scenario(scenario())


def test_stopping_lets_handlers_end_and_requeues_those_that_take_too_long() -> None:
    done: list[bytes] = []

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            begun = asyncio.Event()

            @app.consumer("orders", prefetch=3, concurrency=2)
            async def place(body: bytes) -> None:
                begun.set()
                await asyncio.sleep(30 if body == b"long" else 0.02)
                done.append(body)

            names = [await on.publish("orders", body) for body in (b"long", b"short", b"next", b"later")]
            async with on.running(app, grace_s=0.3) as runner:
                await begun.wait()
                assert runner.unsettled("orders") == 3
            assert on.places(*names) == ["ready in orders", "ready in orders"]
            assert sorted(got.body for got in await on.take("orders")) == [b"later", b"long"]
            assert on.notes.last("runtime.stopping")["in_hand"] == 3
            assert on.notes.last("runtime.stopped")["given_back"] == 1

    run_scenario(scenario())
    assert done == [b"short", b"next"]


def test_a_local_pause_is_cut_short_when_the_app_stops() -> None:
    from redrive import Requeue

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            begun = asyncio.Event()

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                begun.set()
                raise Requeue("50s")

            await on.publish("orders", b"x", message_id="a")
            async with on.running(app):
                await begun.wait()
            assert on.places("a") == ["ready in orders"]
            assert on.decisions() == {"requeue": 1}

    run_scenario(scenario())


def test_a_broker_that_goes_and_comes_back_finds_the_app_at_work() -> None:
    handled: list[bytes] = []

    async def scenario() -> None:
        async with stage(time="manual") as on, on.running(app_of("", handled)):
            await on.publish("orders", b"before")
            await until(lambda: handled == [b"before"])
            await on.broker.restart()
            await on.client.connection()
            await on.publish("orders", b"after")
            await until(lambda: handled == [b"before", b"after"])
            assert on.notes.count("client.connection_lost") == 2

    run_scenario(scenario())


def test_a_queue_that_is_deleted_and_declared_again_is_consumed_again() -> None:
    handled: list[bytes] = []

    async def scenario() -> None:
        async with stage(time="manual") as on, on.running(app_of("", handled)):
            channel = await on.client.channel()
            await channel.delete_queue("orders")
            await until(lambda: on.notes.count("consumer.cancelled") == 1)
            await declare_missing(compiled(), lambda _: Client(on.broker.url))
            await on.publish("orders", b"again")
            await until(lambda: handled == [b"again"])

    run_scenario(scenario())


@pytest.mark.parametrize("concurrency", [None, 1])
def test_orderly_stops_are_no_deaths_however_many(concurrency: int | None) -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            begun: list[bytes] = []
            rests = True

            @app.consumer("orders", prefetch=10, concurrency=concurrency)
            async def place(body: bytes) -> None:
                begun.append(body)
                if rests:
                    await asyncio.sleep(30)

            names = [await on.publish("orders", b"%d" % number) for number in range(4)]
            for _ in range(5):
                begun.clear()
                async with on.running(app, grace_s=0.02):
                    await until(lambda: begun)
                assert sorted(on.places(*names)) == ["ready in orders"] * 4
            rests = False
            async with on.running(app):
                await until(lambda: on.places(*names) == [])
            assert on.decisions().keys() <= {"ack", "requeue"}

    run_scenario(scenario())


def test_a_line_that_breaks_before_every_ack_multiplies_nothing() -> None:
    async def scenario() -> None:
        async with stage(PER_QUEUE, time="manual") as on:
            app = App(compiled(PER_QUEUE))
            begun: list[bytes] = []
            gate = asyncio.Event()

            @app.consumer("q.work", prefetch=10)
            async def work(body: bytes) -> None:
                begun.append(body)
                await gate.wait()

            names = [await on.publish("q.work", b"%d" % number) for number in range(10)]
            async with on.running(app) as runner:
                for _ in range(6):
                    await until(lambda: len(begun) == 10)
                    begun.clear()
                    line = (await runner._consuming.connection())._transport
                    assert line is not None
                    line.abort()
                    gate.set()  # every handler ends well, and every ack is too late
                    gate = asyncio.Event()
                await until(lambda: len(begun) == 10)
                assert len(on.places(*names)) == 10
                gate.set()
                await until(lambda: on.places(*names) == [])
            assert on.decisions() == {"ack": 10}

    run_scenario(scenario())
