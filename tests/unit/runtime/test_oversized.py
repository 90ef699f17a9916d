"""Messages of which no copy can ever be sent: parked in another way, at once, whole; the queue goes on without them."""

from dataclasses import replace

import pytest

from redrive import App, wire
from redrive.client import Confirmed
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.shape_declarations import SHAPES
from tests.unit.runtime.stage import Stage, compiled, failures, stage, until

FRAME_BYTES_MAX = 131_072 - 8 - 12 - 100
"""What is left of a frame for properties, and a little more than our own headers need."""


def large(name: str) -> wire.Properties:
    """Headers that fill a frame, one small one among them."""
    small = wire.Properties.of(delivery_mode=2, message_id=name, headers={"mine": name, "large": ""})
    return small.edit(headers={"large": "x" * (FRAME_BYTES_MAX - len(small.raw))})


async def send(on: Stage, exchange: str, key: str, body: bytes, properties: wire.Properties) -> None:
    publisher = await on.client.publisher()
    assert await publisher.publish(exchange, key, body, properties) == Confirmed()
    await publisher.close()


@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "none"])
def test_twenty_five_of_them_stop_no_queue_and_are_parked_whole(shape: str) -> None:
    text, queue, exchange, key, _ = SHAPES[shape]
    routes = compiled(text).queue(queue).routes
    assert routes is not None

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))
            handled: list[bytes] = []

            @app.consumer(queue, prefetch=20)
            async def handle(body: bytes) -> None:
                if body.startswith(b"bad"):
                    raise ValueError("no")
                handled.append(body)

            bad = {f"bad{number}": large(f"bad{number}") for number in range(25)}
            for name, properties in bad.items():
                await send(on, exchange, key, name.encode(), properties)
            for number in range(10):
                await on.publish(key, b"good%d" % number, exchange=exchange)
            async with on.running(app) as runner:
                await until(lambda: len(handled) == 10)
                await until(lambda: on.decisions()["park"] == 25)
                assert runner.subscriptions[0].handler.held == 0
            assert {name: count for name, count in on.broker.depths().items() if count} == {routes.parking.queue: 25}
            assert on.notes.count("runtime.publish_failed") == 0
            assert on.notes.count("runtime.oversized") == 25
            for got in await on.take(routes.parking.queue):
                found = got.properties.headers
                name = found["mine"]
                assert found["x-redrive-envelope"] == 1
                assert found["x-final-error"] == "ValueError: no"
                assert found["x-redrive-reason"] in ("oversized", "attempts")
                assert found["x-original-queue"] == queue
                assert got.properties.message_id == name
                inner = wire.unwrap_envelope(got.body)
                assert inner is not None
                assert inner[1] == name.encode()
                kept = dict(inner[0].headers)
                assert kept["large"] == bad[name].headers["large"]

    run_scenario(scenario(), timeout_s=60)


def test_ten_thousands_of_headers_are_looked_through_once() -> None:
    """Looking each of them up would hold up the consumer for most of a minute, and its heartbeats with it."""
    text, queue, exchange, key, _ = SHAPES["ladder"]

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer(queue)
            async def handle(body: bytes) -> None:
                raise ValueError("no")

            small = wire.Properties.of(delivery_mode=2, headers={f"{n:x}": True for n in range(19_000)}, message_id="m")
            many = small.edit(headers={"rest": "x" * (FRAME_BYTES_MAX - len(small.raw) - 10)})
            assert len(many.raw) == FRAME_BYTES_MAX
            await send(on, exchange, key, b"bad", many)
            async with on.running(app):
                await until(lambda: on.decisions()["park"] == 1)
            (got,) = await on.take(f"{queue}.parked")
            opened = wire.open_envelope(got.header, got.body)
            assert opened is not None
            assert opened[0].headers.keys() >= many.headers.keys()

    run_scenario(scenario(), timeout_s=20)


def test_a_message_that_can_not_be_parked_anywhere_is_requeued_and_the_others_go_on() -> None:
    text = "queues: {q: {retry: false}}"

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))
            handled: list[bytes] = []

            @app.consumer("q", prefetch=5)
            async def handle(body: bytes) -> None:
                if body == b"bad":
                    raise ValueError("no")
                handled.append(body)

            await send(on, "", "q", b"bad", large("bad"))
            for number in range(10):
                await on.publish("q", b"good%d" % number)
            async with on.running(app, grace_s=0):
                await until(lambda: len(handled) == 10)
                await until(lambda: on.notes.count("runtime.oversized"))
            assert on.places("bad") == ["ready in q"]

    run_scenario(scenario())


@pytest.mark.parametrize("shape", ["ladder", "requeue", "native", "tiered"])
def test_a_body_that_the_broker_takes_from_nobody_any_more_is_rejected_to_the_parking(shape: str) -> None:
    """Its limit was lowered, or a newer version has a smaller one: it closes the channel on every copy."""
    text, queue, exchange, key, _ = SHAPES[shape]
    routes = compiled(text).queue(queue).routes
    assert routes is not None

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer(queue, concurrency=1)
            async def handle(body: bytes) -> None:
                raise ValueError("no")

            name = await on.publish(key, bytes(1000), exchange=exchange)
            engine = on.broker.engine
            engine.profile = replace(engine.profile, message_bytes_max=999)
            async with on.running(app):
                await until(lambda: on.decisions()["park"] == 1)
                await until(lambda: on.places(name) == [f"ready in {routes.parking.queue}"])
            assert "dead-letter exchange" in str(on.notes.last("runtime.oversized")["how"])

    run_scenario(scenario())


def test_a_queue_whose_whole_prefetch_is_held_for_copies_is_not_ready() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", prefetch=3)
            async def handle(body: bytes) -> None:
                raise ValueError("no")

            channel = await on.client.channel()
            async with on.running(app, grace_s=0) as runner:
                (subscription,) = runner.subscriptions
                assert subscription.unready is None
                await channel.delete_queue("orders.wait.30s")
                names = [await on.publish("orders") for _ in range(3)]
                await until(lambda: subscription.handler.held == 3)
                assert subscription.unready == "stopped: the broker takes no copies of unsettled messages"
            assert on.places(*names) == ["ready in orders"] * 3

    run_scenario(scenario())


def test_an_envelope_gives_back_what_was_put_in_and_takes_nothing_else_for_one() -> None:
    properties = wire.Properties.of(headers={"a": 1}, message_id="m")
    body = wire.wrap_in_envelope(properties, b"body")
    assert wire.unwrap_envelope(body) == (properties, b"body")
    for other in (b"", b"body", body[:-7], b"redrive envelope 1\n", b"redrive envelope 1\n\xff\xff\xff\xff"):
        assert wire.unwrap_envelope(other) is None


def test_where_parking_is_a_reject_it_is_rejected_as_it_is_and_needs_no_envelope() -> None:
    text = (
        "exchanges: {e: topic}\n"
        "queues: {q: {from: {e: ['a.*']}, retry: {shape: tiered, domain: a, exchange: e, park: reject}}}"
    )
    routes = compiled(text).queue("q").routes
    assert routes is not None

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer("q")
            async def handle(_body: bytes) -> None:
                raise ValueError("no")

            await send(on, "e", "a.b", b"bad", large("bad"))
            async with on.running(app):
                await until(lambda: on.decisions()["park"] == 1)
                await until(lambda: on.places("bad") == [f"ready in {routes.parking.queue}"])
            assert on.notes.last("runtime.oversized")["how"] == "rejected to the queue's dead-letter exchange"
            (got,) = await on.take(routes.parking.queue)
            assert (got.body, wire.unwrap_envelope(got.body)) == (b"bad", None)
            assert got.properties.headers["large"] == large("bad").headers["large"]

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_headers_that_outgrow_a_frame_on_their_way_through_the_broker_cost_neither_a_message_nor_the_connection(
    profile: str,
) -> None:
    async def scenario() -> None:
        async with stage(profile=profile) as on:
            app = App(compiled())
            runs: dict[str, int] = {}

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                runs[body.decode()] = runs.get(body.decode(), 0) + 1
                raise ValueError

            names = [
                await on.publish("orders", b"%d" % size, headers={"large": "x" * size})
                for size in (10, 110_000, 130_500)
            ]
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 6, "park": 3})
            assert on.places(*names) == ["ready in orders.parked"] * 3
            assert runs == {"10": 3, "110000": 3, "130500": 3}
            assert not failures(on, "client.connection_lost")

    run_scenario(scenario())
