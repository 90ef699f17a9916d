"""A dependency that is down pauses its queue, where its author asked for that: no message pays for it, one at a time
looks whether it is back."""

import asyncio
from typing import Any

import pytest

from redrive import App, Message
from redrive.core import Answered
from redrive.runtime import subscription
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import compiled, failures, stage, until


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "PROBE_FIRST_S", 0.03)
    monkeypatch.setattr(subscription, "PROBE_LONGEST_S", 0.06)


def test_a_queue_pauses_probes_and_resumes_and_its_messages_keep_their_attempts() -> None:
    attempts: dict[str, list[int]] = {}

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            is_up = False

            @app.consumer("orders", pause_after=3, prefetch=4, concurrency=1)
            async def place(body: bytes, message: Message) -> None:
                attempts.setdefault(message.id or "", []).append(message.attempt)
                if not is_up:
                    raise ConnectionRefusedError("the database is down")

            names = [await on.publish("orders", b"%d" % number) for number in range(10)]
            async with on.running(app) as runner:
                await until(lambda: on.notes.count("runtime.probing") >= 3)
                # The first two failures were retries like any other; from the third on nobody pays.
                assert on.decisions()["retry"] == 2
                assert on.decisions()["park"] == 0
                assert on.notes.last("runtime.paused")["why"] == "ConnectionRefusedError: the database is down"
                assert runner.subscriptions[0].unready == "paused"
                is_up = True
                await until(lambda: on.notes.count("runtime.resumed") == 1)
                assert runner.subscriptions[0].unready is None
                await until(lambda: on.decisions()["ack"] == 8)
                await on.broker.advance(31)
                await until(lambda: on.decisions()["ack"] == 10)
                await until(lambda: not on.places(*names))
            assert on.decisions()["park"] == 0
            # The two that were retried paid one attempt each; all the others are as new, however often they were tried.
            assert {name: max(numbers) for name, numbers in attempts.items()} == {
                name: 2 if name in names[:2] else 1 for name in names
            }

    run_scenario(scenario())


def test_a_probe_is_one_message_whatever_the_prefetch() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            is_up = False
            in_hand: set[bytes] = set()
            most_in_hand = 0

            @app.consumer("orders", pause_after=3, prefetch=6, concurrency=4)
            async def place(body: bytes) -> None:
                nonlocal most_in_hand
                in_hand.add(body)
                most_in_hand = max(most_in_hand, len(in_hand))
                on.notes.note("test.run")
                await asyncio.sleep(0.005)  # long enough for everything that was delivered to begin
                in_hand.discard(body)
                if not is_up:
                    raise ConnectionRefusedError("the database is down")

            names = [await on.publish("orders", b"%d" % number) for number in range(20)]
            async with on.running(app):
                await until(lambda: on.notes.count("runtime.probing") >= 5)
                assert most_in_hand == 4
                probes = runs_by_probe(on.notes)
                assert probes[:-1] == [1] * (len(probes) - 1)  # the last has perhaps not run yet
                is_up = True
                await until(lambda: on.notes.count("runtime.resumed") == 1)
                await on.broker.advance(31)
                await until(lambda: on.decisions()["ack"] == 20)
                await until(lambda: not on.places(*names))

    run_scenario(scenario())


def runs_by_probe(notes: Notes) -> list[int]:
    """How many runs began between one probe and the next."""
    counts: list[int] = []
    for name, _ in notes.heard:
        if name == "runtime.probing":
            counts.append(0)
        elif name == "test.run" and counts:
            counts[-1] += 1
    return counts


def test_other_errors_neither_pause_nor_end_a_row_of_failures_a_success_does() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            script = iter(["down", "other", "down", "fine", "down", "down"])

            @app.consumer("orders", pause_after=3, concurrency=1)
            async def place(body: bytes) -> None:
                match next(script):
                    case "down":
                        raise ConnectionError
                    case "other":
                        raise ValueError

            async with on.running(app):
                for number in range(6):
                    await on.publish("orders", b"%d" % number)
                await until(lambda: on.decisions() == {"retry": 5, "ack": 1})
                assert on.notes.count("runtime.paused") == 0

    run_scenario(scenario())


def test_an_app_stops_while_its_queue_is_paused_and_nothing_is_left_unsettled() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders", pause_after=1, prefetch=3, concurrency=1)
            async def place(body: bytes) -> None:
                raise ConnectionError

            names = [await on.publish("orders", b"%d" % number) for number in range(5)]
            async with on.running(app):
                await until(lambda: on.notes.count("runtime.probing") == 1)
            assert on.places(*names) == ["ready in orders"] * 5

    run_scenario(scenario())


def test_a_queue_that_was_not_asked_to_pause_spends_its_attempts() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                await asyncio.sleep(0)
                raise ConnectionError

            async with on.running(app):
                names = [await on.publish("orders", b"%d" % number) for number in range(25)]
                await until(lambda: on.decisions()["park"] == 25)
            assert on.places(*names) == ["ready in orders.parked"] * 25

    run_scenario(scenario())


EVENT_BUS = "services: [wms-cincout]"
QUEUE, DLQ = "wms.queue.wms-cincout", "wms.dlq.wms-cincout"


def test_unless_it_is_asked_for_an_outage_pauses_nothing_and_503s_reach_the_dlq_after_eleven_runs() -> None:
    async def scenario() -> None:
        async with stage(EVENT_BUS) as on:
            app = App(compiled(EVENT_BUS))

            @app.consumer(QUEUE)
            async def handle(body: bytes) -> Answered:
                return Answered(status=503)

            names = [
                await on.publish("stock.changed", b"%d" % number, exchange="wms.main-exchange") for number in range(30)
            ]
            began_s = on.broker.now_s
            async with on.running(app):
                await until(lambda: on.decisions()["park"] == 30)
                took_s = on.broker.now_s - began_s
            assert on.places(*names) == [f"ready in {DLQ}"] * 30
            assert on.decisions() == {"retry": 300, "park": 30}
            assert on.notes.count("runtime.paused") == 0
            assert 50 <= took_s <= 55
            assert {got.properties.header("x-final-retry-count") for got in await on.take(DLQ)} == {10}

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("declared", "said", "pauses"),
    [
        ("pause_after: 3", {}, True),
        ("pause_after: 0", {}, False),
        ("pause_after: 3", {"pause_after": 0}, False),
        ("pause_after: 500", {"pause_after": 3}, True),
        ("pause_after: 3", {"pause_on": [ValueError]}, False),
    ],
)
def test_a_declaration_asks_for_the_pause_and_a_consumer_may_say_otherwise(
    declared: str, said: dict[str, Any], pauses: bool
) -> None:
    text = f"queues: {{orders: {{retry: [30s], {declared}}}}}"

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer("orders", concurrency=1, **said)
            async def place(body: bytes) -> None:
                raise ConnectionRefusedError("the database is down")

            names = [await on.publish("orders", b"%d" % number) for number in range(10)]
            async with on.running(app):
                await until(lambda: on.notes.count("runtime.probing") if pauses else on.decisions()["park"] == 10)
            assert len(on.places(*names)) == 10
            assert bool(on.notes.count("runtime.paused")) is pauses

    run_scenario(scenario())


def test_defaults_ask_for_the_pause_of_every_queue_and_service() -> None:
    text = """
defaults: {pause_after: 7}
queues: {orders: {retry: [30s]}, refunds: {retry: [30s], pause_after: 0}}
services: [wms-cincout]
"""
    found = compiled(text)
    assert {one.name: one.pause_after for one in found.declared} == {"orders": 7, "refunds": 0, QUEUE: 7}


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("whose", ["the consumer's timeout", "an error of the handler's own"])
def test_timeouts_count_towards_the_pause_only_if_they_are_named(whose: str, named: bool) -> None:
    options: dict[str, Any] = {"pause_on": [ConnectionError, TimeoutError]} if named else {}

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", timeout=0.005, pause_after=3, concurrency=1, **options)
            async def place(body: bytes) -> None:
                if whose == "the consumer's timeout":
                    await asyncio.Event().wait()
                raise TimeoutError("no answer within a second")

            names = [await on.publish("orders", b"%d" % number) for number in range(5)]
            async with on.running(app):
                await until(lambda: on.notes.count("runtime.probing") if named else on.decisions()["park"] == 5)
            assert len(on.places(*names)) == 5
            assert bool(on.notes.count("runtime.paused")) is named

    run_scenario(scenario())


def test_an_undecodable_message_says_nothing_about_a_dependency_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "PROBE_FIRST_S", 0.01)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            is_up = False

            @app.consumer("orders", pause_after=1)
            async def place(body: dict[str, int]) -> None:
                if not is_up:
                    raise ConnectionError

            await on.publish("orders", b"{}", message_id="a")
            async with on.running(app):
                await until(lambda: failures(on, "runtime.paused"))
                for _ in range(3):
                    await on.publish("orders", b"no JSON")
                await until(lambda: on.decisions()["park"] == 3)
                await until(lambda: on.decisions()["requeue"] > 3)
                assert not failures(on, "runtime.resumed")
                is_up = True
                await until(lambda: failures(on, "runtime.resumed"))
                await until(lambda: not on.places("a"))
            assert len(await on.take("orders.parked")) == 3

    run_scenario(scenario())
