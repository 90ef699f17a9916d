"""Messages whose consumers may have crashed: counted by copies, the last run exclusive, handlers' errors not counted.

The crashes themselves are in test_run_command.py; here a message comes as if it had happened.
"""

import asyncio
from typing import Any

import pytest

from redrive import App, Message, Requeue
from redrive.client import Delivery
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import Stage, compiled, stage, until


async def leave_in_hand(on: Stage, count: int) -> None:
    """A consumer takes messages and goes without a word: they come again, flagged as redelivered."""
    channel = await on.client.channel()
    for _ in range(count):
        assert await channel.get_message("orders") is not None
    await channel.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("shape", ["per-queue", "requeue"])
def test_a_redelivered_message_is_replaced_by_a_counted_copy_and_then_handled(kind: str, shape: str) -> None:
    queue = f"{{type: {kind}, from: {{shop: ['#']}}, retry: {{shape: {shape}}}}}"
    text = f"exchanges: {{shop: topic}}\nqueues: {{orders: {queue}}}"
    seen: list[tuple[Any, ...]] = []

    async def scenario() -> None:
        async with stage(text, time="manual") as on:
            app = App(compiled(text))

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                seen.append(
                    (message.header("x-redrive-deliveries"), message.attempt, message.exchange, message.routing_key)
                )
                assert message.redelivered

            await on.publish("a.key", b"x", exchange="shop", message_id="a")
            await leave_in_hand(on, 1)
            async with on.running(app):
                await until(lambda: on.decisions() == {"ack": 1})
                await until(lambda: not on.places("a"))

    run_scenario(scenario())
    assert seen == [(1, 1, "shop", "a.key")]


def test_a_message_with_its_last_chance_runs_exclusively() -> None:
    text = "queues: {orders: {retry: [30s]}, others: {retry: [30s]}}"
    at_work = 0
    most: dict[bytes, int] = {}

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            async def work(body: bytes) -> None:
                nonlocal at_work
                at_work += 1
                for _ in range(5):
                    most[body] = max(most.get(body, 0), at_work)
                    await asyncio.sleep(0.005)
                at_work -= 1

            app.consumer("orders")(work)
            app.consumer("others")(work)
            names = []
            for number in range(4):
                names.append(await on.publish("orders", b"plain%d" % number))
                names.append(await on.publish("others", b"other%d" % number))
                suspect = {"x-redrive-deliveries": 2}
                name = f"suspect{number}"
                names.append(await on.publish_copy("orders", name.encode(), message_id=name, headers=suspect))
            async with on.running(app):
                await until(lambda: on.decisions() == {"ack": 12})
                await until(lambda: not on.places(*names))
            assert not await on.take("orders.parked")

    run_scenario(scenario())
    assert {body: count for body, count in most.items() if body.startswith(b"suspect")} == {
        b"suspect%d" % number: 1 for number in range(4)
    }
    assert max(most.values()) > 1


def test_a_requeued_message_starts_afresh_and_is_never_taken_for_one_that_crashes() -> None:
    runs: list[Any] = []

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                runs.append(message.header("x-redrive-deliveries"))
                if len(runs) < 6:
                    raise Requeue(0)

            await on.publish_copy("orders", b"x", message_id="a", headers={"x-redrive-deliveries": 1})
            async with on.running(app):
                await until(lambda: len(runs) == 6 and not on.places("a"))

    run_scenario(scenario())
    assert runs == [1, None, None, None, None, None]


def test_a_run_that_ends_clears_the_count_also_when_it_fails() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            seen: list[Any] = []

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                seen.append(message.header("x-redrive-deliveries"))
                raise ValueError

            await on.publish_copy("orders", b"x", message_id="a", headers={"x-redrive-deliveries": 2})
            async with on.running(app):
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            assert seen == [2, None, None]
            (parked,) = await on.take("orders.parked")
            assert "x-redrive-deliveries" not in parked.properties.headers

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("crashes_max", "deliveries", "alone", "parked"),
    [(3, 2, 5, True), (3, 2, 4, False), (5, 3, 5, False), (5, 4, 5, True), (None, 99, 99, False)],
)
def test_the_cap_is_the_consumers_to_choose(crashes_max: int | None, deliveries: int, alone: int, parked: bool) -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders", crashes_max=crashes_max)
            async def place(body: bytes) -> None: ...

            counted = {"x-redrive-deliveries": deliveries, "x-redrive-deaths-alone": alone}
            await on.publish_copy("orders", b"x", message_id="a", headers=counted)
            await leave_in_hand(on, 1)
            async with on.running(app):
                await until(lambda: on.decisions())
            assert on.decisions() == ({"park": 1} if parked else {"ack": 1})
            assert on.places("a") == (["ready in orders.parked"] if parked else [])

    run_scenario(scenario())


def test_native_parks_what_the_broker_has_counted_up_to_the_last_run() -> None:
    text = "queues: {orders: {retry: {shape: native, min: 1s, max: 1s, attempts: 2}}}"

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                raise AssertionError("must not run")

            await on.publish("orders", b"x", message_id="a")
            for _ in range(2):
                await until(lambda: on.places("a") == ["ready in orders"])
                await leave_in_hand(on, 1)
            async with on.running(app):
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.headers["x-redrive-reason"] == "crashes"

    run_scenario(scenario())


def test_without_the_right_to_publish_a_copy_a_redelivered_message_is_handled_as_it_is() -> None:
    handled: list[bytes] = []

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                handled.append(body)

            await on.publish("orders", b"x", message_id="a")
            await leave_in_hand(on, 1)
            on.broker.faults.nack_confirm()
            async with on.running(app):
                await until(lambda: on.decisions()["ack"] >= 1)
            assert on.notes.count("runtime.publish_failed") == 1

    run_scenario(scenario())
    assert handled[0] == b"x"


def test_after_a_flush_the_broker_knows_of_every_ack_also_of_those_out_of_order() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            names = [await on.publish("orders", b"%d" % number) for number in range(5)]
            taken: list[Delivery] = []
            consumer = await on.client.consume("orders", taken.append)
            await until(lambda: len(taken) == 5)
            for delivery in taken[1:]:
                delivery.ack()
            await consumer.flush()
            assert on.places(*names) == ["unacked in orders"]
            await consumer.close()
            await consumer.flush()
            assert on.places(*names) == ["ready in orders"]

    run_scenario(scenario())


@pytest.mark.parametrize("deliveries", [3, 99])
def test_a_message_that_was_never_seen_to_crash_runs_exclusively_whatever_its_headers_say(deliveries: int) -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes) -> None: ...

            counted = {"x-redrive-deliveries": deliveries, "x-redrive-deaths-alone": deliveries}
            await on.publish_copy("orders", b"x", message_id="a", headers=counted)
            async with on.running(app):
                await until(lambda: on.decisions() == {"ack": 1})
            assert not on.places("a")

    run_scenario(scenario())
