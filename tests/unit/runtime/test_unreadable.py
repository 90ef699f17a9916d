"""Messages that we can't read: they run, are retried and end in the parking like any other, and stop no queue.

Brokers take headers nested deeper than anybody reads them. And whatever of ours fails over one message, it must not
come again for ever: after a few tries it is parked unread, whole.
"""

from collections import Counter

import pytest

from redrive import App, Message, wire
from redrive.client import Delivery
from redrive.runtime.settlement import settler
from redrive.runtime.settlement.internal_failures import TRIES_MAX
from redrive.runtime.settlement.retry_state import RetryState, RetryStates
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.odd_messages import unreadable
from tests.unit.runtime.shape_declarations import SHAPES
from tests.unit.runtime.stage import compiled, stage, until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("way", ["exchange", "name"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_header_nested_too_deep_counts_for_nothing(shape: str, way: str) -> None:
    text, queue, exchange, key, runs_max = SHAPES[shape]
    plan = compiled(text).queue(queue)
    parking = "d" if plan.routes is None else plan.routes.parking.queue
    sent = unreadable()
    runs: Counter[str] = Counter()

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer(queue, prefetch=5)
            async def handle(body: bytes, message: Message) -> None:
                name = body.decode()
                assert message.headers["mine"] == "kept"
                runs[name] += 1
                if name.startswith("fail"):
                    raise ValueError("no")

            publisher = await on.client.publisher()
            for name, properties in sent.items():
                for end in ("fail", "fine"):
                    route = (exchange, key) if way == "exchange" else ("", queue)
                    await publisher.publish(*route, f"{end} {name}".encode(), properties)
            async with on.running(app):
                await until(lambda: on.broker.depths().get(parking) == len(sent), timeout_s=20)
                await until(lambda: sum(name.startswith("fine") for name in runs) == len(sent))
            assert on.notes.count("runtime.failed") == 0
            assert on.notes.count("runtime.oversized") == 0
            assert {name: count for name, count in on.broker.depths().items() if count} == {parking: len(sent)}
            found = await on.take(parking)
            assert {got.body.decode() for got in found} == {f"fail {name}" for name in sent}
            assert all(got.properties.header("mine") == "kept" for got in found)

    run_scenario(scenario(), timeout_s=60)
    expected = {f"fail {name}": runs_max for name in sent} | {f"fine {name}": 1 for name in sent}
    assert runs == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_that_we_fail_over_again_and_again_is_parked_unread(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, queue, exchange, key, _ = SHAPES[shape]
    plan = compiled(text).queue(queue)
    parking = "d" if plan.routes is None else plan.routes.parking.queue
    runs: Counter[bytes] = Counter()
    read = RetryStates.of

    def failing(states: RetryStates, delivery: Delivery) -> RetryState:
        if delivery.body.startswith(b"bad"):
            raise RecursionError("too much of it")
        return read(states, delivery)

    monkeypatch.setattr(RetryStates, "of", failing)
    monkeypatch.setattr(settler, "_INTERNAL_FAILURE_S", 0.01)

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer(queue, prefetch=5)
            async def handle(body: bytes) -> None:
                runs[body] += 1
                if body.startswith(b"bad"):
                    raise ValueError("no")

            for number in range(6):
                await on.publish(key, b"bad%d" % number, exchange=exchange, headers={"mine": number})
            await on.publish(key, b"good", exchange=exchange)
            async with on.running(app):
                await until(lambda: on.broker.depths().get(parking) == 6, timeout_s=30)
                await until(lambda: runs[b"good"] == 1)
            assert {name: count for name, count in on.broker.depths().items() if count} == {parking: 6}
            assert on.decisions()["park"] == 6
            hows = Counter(str(fields["how"]) for name, fields in on.notes.heard if name == "runtime.failed")
            assert hows == {"requeued": 6 * (TRIES_MAX - 1), "parked unread": 6}
            bodies = set()
            for got in await on.take(parking):
                if shape == "none":
                    bodies.add(got.body)
                    continue
                assert got.properties.header("x-redrive-reason") == "undecodable"
                assert got.properties.header("x-final-error") == "RecursionError: too much of it"
                assert got.properties.header("x-original-queue") == queue
                opened = wire.open_envelope(got.header, got.body)
                assert opened is not None
                assert opened[0].message_id is not None
                assert opened[0].header("mine") == int(opened[1].removeprefix(b"bad"))
                bodies.add(opened[1])
            assert bodies == {b"bad%d" % number for number in range(6)}

    run_scenario(scenario(), timeout_s=60)
    assert max(runs.values()) <= TRIES_MAX
