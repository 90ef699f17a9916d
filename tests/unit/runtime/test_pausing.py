"""A dependency that is down pauses its queue: no message pays for it, one at a time looks whether it is back."""

import asyncio

import pytest

from redrive import App, Message
from redrive.runtime import subscription
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import compiled, stage, until


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


def test_a_probe_is_one_message_however_many_may_be_in_hand_otherwise() -> None:
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


def test_an_app_stops_while_its_queue_is_paused_and_nothing_is_left_in_hand() -> None:
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


def test_a_queue_that_never_pauses_spends_its_attempts() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", pause_after=None)
            async def place(body: bytes) -> None:
                await asyncio.sleep(0)
                raise ConnectionError

            async with on.running(app):
                names = [await on.publish("orders", b"%d" % number) for number in range(25)]
                await until(lambda: on.decisions()["park"] == 25)
            assert on.places(*names) == ["ready in orders.parked"] * 25

    run_scenario(scenario())
