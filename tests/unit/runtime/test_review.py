"""Windows a hard reviewer found: what is left in hand for ever, what holds everybody else up, what multiplies."""

import asyncio
import sys
import threading

import pytest

from redrive import App
from redrive.runtime import delivery_handler, subscription
from redrive.runtime.handler_errors import read_error
from redrive.runtime.settlement import abandoned, command_executor
from redrive.runtime.worker_processes import COULD_NOT, WorkerProcesses
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import Stage, compiled, stage, until

TWO = "queues: {orders: {retry: [30s]}, others: {retry: [30s]}}"
TWO_WITHOUT_WAITS = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: [orders]}, retry: {shape: requeue}}
  others: {from: {shop: [others]}, retry: {shape: requeue}}
"""
LAST_CHANCE = {"x-redrive-deliveries": 2}


class Panic(BaseException):
    """As libraries written in Rust raise it: no Exception."""


async def delete(on: Stage, queue: str) -> None:
    channel = await on.client.channel()
    await channel.delete_queue(queue)
    await channel.close()


def failures(on: Stage, event: str = "runtime.publish_failed") -> int:
    return sum(name == event for name, _ in on.notes.heard)


@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_raises_what_is_no_exception_is_retried_and_parked_like_any_other(plain: bool) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", concurrency=None if plain else 1)
            async def place(body: bytes) -> None:
                raise Panic("a library gave up")

            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 2, "park": 1})
            assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


@pytest.mark.parametrize("kind", ["plain", "limited", "thread"])
def test_a_generator_exit_of_a_handlers_own_is_an_error_like_any_other(kind: str) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            def fail(_body: bytes) -> None:
                raise GeneratorExit

            async def place(body: bytes) -> None:
                fail(body)

            app.consumer("orders", concurrency=1 if kind == "limited" else None)(fail if kind == "thread" else place)
            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 2, "park": 1})
            assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_a_run_that_is_closed_from_outside_is_no_error_of_its_handler() -> None:
    async def handler() -> None:
        await asyncio.Event().wait()

    async def boundary() -> None:
        try:
            await handler()
        except BaseException as error:  # noqa: BLE001 - as the runtime's own
            read_error(error, now_ms=0, timeout_ms=None)

    async def scenario() -> None:
        run = boundary()
        run.send(None)
        run.close()  # raises RuntimeError if GeneratorExit does not come through

    run_scenario(scenario())


@pytest.mark.parametrize("limited", [True, False])
def test_a_handler_that_cancels_its_own_task_does_not_keep_its_message_in_hand_for_ever(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "_REQUEUE_S", 0.01)

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            runs = 0

            @app.consumer("orders", concurrency=1 if limited else None)
            async def place(body: bytes) -> None:
                nonlocal runs
                runs += 1
                if runs == 1:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(0)

            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"ack": 1})
                await until(lambda: not on.places("a"))
            assert runs == 2

    run_scenario(scenario())


def test_what_has_run_alone_and_finds_no_wait_queue_does_not_hold_up_the_other_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery_handler, "_SETTLED_EXCLUSIVELY_S", 0.05)

    async def scenario() -> None:
        async with stage(TWO, time="manual") as on:
            app = App(compiled(TWO))

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                raise ValueError

            @app.consumer("others")
            async def other(body: bytes) -> None:
                pass

            async with on.running(app, grace_s=0.1):
                await delete(on, "orders.wait.30s")
                await on.publish_copy("orders", message_id="a", headers=LAST_CHANCE)
                await until(lambda: failures(on))
                await on.publish("others", message_id="b")
                await until(lambda: on.decisions() == {"ack": 1})
                await until(lambda: on.places("a", "b") == ["unacked in orders"])  # an ack is told before it is read
            assert on.places("a") == ["ready in orders"]

    run_scenario(scenario())


def test_what_is_held_for_want_of_its_wait_queue_does_not_keep_another_from_being_alone() -> None:
    async def scenario() -> None:
        async with stage(TWO, time="manual") as on:
            app = App(compiled(TWO))

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                raise ValueError

            @app.consumer("others")
            async def other(body: bytes) -> None:
                pass

            async with on.running(app, grace_s=0.1):
                await delete(on, "orders.wait.30s")
                await on.publish("orders", message_id="a")
                await until(lambda: failures(on))
                await on.publish_copy("others", message_id="b", headers=LAST_CHANCE)
                await until(lambda: on.decisions() == {"ack": 1})
                await until(lambda: on.places("a", "b") == ["unacked in orders"])  # an ack is told before it is read
            assert on.places("a") == ["ready in orders"]

    run_scenario(scenario())


@pytest.mark.slow
def test_a_queue_that_is_gone_does_not_keep_the_others_from_running_alone_and_after() -> None:
    async def scenario() -> None:
        async with stage(TWO_WITHOUT_WAITS, time="manual") as on:
            app = App(compiled(TWO_WITHOUT_WAITS))

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                if body == b"delete":
                    await delete(on, "others")

            @app.consumer("others")
            async def other(body: bytes) -> None:
                pass

            async with on.running(app, grace_s=0.1) as runner:
                await on.publish_copy("orders", b"delete", message_id="a", headers=LAST_CHANCE)
                await until(lambda: failures(on, "consumer.failed"))
                await on.publish_copy("orders", message_id="b", headers=LAST_CHANCE)
                await until(lambda: on.decisions() == {"ack": 2})
                await on.publish("orders", message_id="c")
                await until(lambda: on.decisions() == {"ack": 3})
                await until(lambda: not runner.in_hand("orders"))
                assert on.places("a", "b", "c") == []

    run_scenario(scenario())


@pytest.mark.slow
def test_a_message_that_no_thread_was_free_for_has_not_been_tried() -> None:
    go = threading.Event()
    runs: list[bytes] = []

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders", concurrency=1, timeout="100ms")
            def place(body: bytes) -> None:
                runs.append(body)
                if body == b"hangs":
                    go.wait()

            await on.publish("orders", b"hangs", message_id="a")
            await on.publish("orders", b"fine", message_id="b")
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 1, "requeue": 1})
                assert (runs, on.places("a")) == ([b"hangs"], ["ready in orders.wait.30s"])
                go.set()
                await until(lambda: on.decisions()["ack"] == 1)
                await until(lambda: not on.places("b"))

    try:
        run_scenario(scenario())
    finally:
        go.set()
    assert runs == [b"hangs", b"fine"]


def test_a_broker_that_is_slow_to_confirm_is_not_sent_the_same_copy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "PUBLISH_S_MAX", 0.02)
    monkeypatch.setattr(command_executor, "_FIRST_S", 0.01)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                raise ValueError

            await on.publish("orders", message_id="a")
            on.broker.faults.delay_confirm(10)
            async with on.running(app):
                await until(lambda: failures(on) >= 4)
                assert sorted(on.places("a")) == ["ready in orders.wait.30s", "unacked in orders"]
                await on.broker.advance(11)
                await until(lambda: on.decisions() == {"retry": 1})
                await until(lambda: on.places("a") == ["ready in orders.wait.30s"])

    run_scenario(scenario())


def test_what_cannot_be_read_says_nothing_about_a_dependency_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.slow
def test_a_worker_that_finds_no_broker_after_it_had_begun_does_not_end_the_others() -> None:
    async def scenario() -> None:
        notes = Notes()
        codes = iter((1, COULD_NOT, COULD_NOT))

        def command(number: int) -> list[str]:
            code = next(codes, None)
            script = "import time; time.sleep(60)" if code is None else f"raise SystemExit({code})"
            return [sys.executable, "-c", script]

        fleet = WorkerProcesses(command, 1, grace_s=1, observer=notes)
        running = asyncio.create_task(fleet.run())
        await until(lambda: sum(name == "runtime.worker_started" for name, _ in notes.heard) == 4)
        fleet.stop()
        assert await running == 0

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
