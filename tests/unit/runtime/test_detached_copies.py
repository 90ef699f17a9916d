"""Copies that nobody waits for: acked when they are confirmed and not before, and never forgotten."""

import asyncio

import pytest

from redrive.client import Client, Outgoing
from redrive.core import Park
from redrive.runtime import App, AppRunner, AppRunOptions
from redrive.runtime.settlement import command_executor, detached_copies, settler
from redrive.wiring import declare_missing
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import Stage, compiled, stage, until

pytestmark = pytest.mark.slow  # most of them wait for pauses in real time


def parking_app() -> App:
    app = App(compiled())

    @app.consumer("orders")
    async def place(body: bytes) -> None:
        if body == b"park":
            raise Park("as it was told")

    return app


def copies_under_way(on: Stage) -> list[str]:
    return sorted(on.places("a"))


def test_the_next_message_is_handled_while_a_copy_waits_for_its_confirm() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.delay_confirm(10)
            async with on.running(parking_app()) as runner:
                await until(lambda: copies_under_way(on) == ["ready in orders.parked", "unacked in orders"])
                await on.publish("orders", b"fine", message_id="b")
                await until(lambda: on.decisions() == {"ack": 1})
                # Confirmed it is not: so neither acked nor told, and still in hand for everybody who asks.
                assert copies_under_way(on) == ["ready in orders.parked", "unacked in orders"]
                assert runner.unsettled("orders") == 1
                await on.broker.advance(11)
                await until(lambda: on.decisions() == {"ack": 1, "park": 1})
                await until(lambda: not runner.unsettled("orders"))
                assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_a_stop_waits_for_the_confirm() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.delay_confirm(10)
            async with on.running(parking_app()) as runner:
                await until(lambda: len(copies_under_way(on)) == 2)
                stopping = asyncio.create_task(runner.stop())
                await asyncio.sleep(0.05)
                assert not stopping.done()
                await on.broker.advance(11)
                await stopping
            assert on.notes.last("runtime.stopped") == {"given_back": 0}
            assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_a_message_whose_copy_is_not_confirmed_by_the_end_of_the_grace_is_requeued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.client.connection._CLOSE_S_MAX", 0.05)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.lose_confirm()
            async with on.running(parking_app(), grace_s=0.05):
                await until(lambda: len(copies_under_way(on)) == 2)
            assert on.notes.last("runtime.stopped") == {"given_back": 1}
            await until(lambda: copies_under_way(on) == ["ready in orders", "ready in orders.parked"])

    run_scenario(scenario())


def test_a_copy_that_is_refused_is_sent_again_until_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "_FIRST_S", 0.01)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.nack_confirm()
            async with on.running(parking_app()) as runner:
                await until(lambda: on.decisions() == {"park": 1})
                await until(lambda: not runner.unsettled("orders"))
            assert on.notes.last("runtime.publish_failed")["outcome"] == "nacked"
            assert "ready in orders" not in on.places("a")

    run_scenario(scenario())


def test_a_copy_that_finds_no_queue_holds_its_message_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "_FIRST_S", 0.01)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            channel = await on.client.channel()
            async with on.running(parking_app()) as runner:
                await channel.delete_queue("orders.parked")
                await on.publish("orders", b"park", message_id="a")
                await until(lambda: on.notes.count("runtime.publish_failed") >= 2)
                assert on.notes.last("runtime.publish_failed")["outcome"] == "returned"
                assert (on.places("a"), runner.unsettled("orders")) == (["unacked in orders"], 1)
                await declare_missing(compiled(), lambda _: Client(on.broker.url))
                await until(lambda: on.places("a") == ["ready in orders.parked"])
                await until(lambda: not runner.unsettled("orders"))

    run_scenario(scenario())


def test_a_late_confirm_is_waited_for_and_the_copy_is_not_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detached_copies, "PUBLISH_S_MAX", 0.02)
    monkeypatch.setattr(command_executor, "PUBLISH_S_MAX", 0.02)
    monkeypatch.setattr(command_executor, "_FIRST_S", 0.01)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.delay_confirm(10)
            async with on.running(parking_app()):
                await until(lambda: on.notes.count("runtime.publish_failed") >= 3)
                assert copies_under_way(on) == ["ready in orders.parked", "unacked in orders"]
                await on.broker.advance(11)
                await until(lambda: on.decisions() == {"park": 1})
                await until(lambda: on.places("a") == ["ready in orders.parked"])

    run_scenario(scenario())


def test_a_line_that_goes_before_the_confirm_makes_a_duplicate_and_never_a_loss() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            await on.publish("orders", b"park", message_id="a")
            on.broker.faults.close_after("basic.publish")
            async with on.running(parking_app()) as runner:
                await until(lambda: on.decisions() == {"park": 1})
                await until(lambda: not runner.unsettled("orders"))
            # The first copy may be with the broker: both bear the id, and the original is gone.
            assert set(on.places("a")) == {"ready in orders.parked"}

    run_scenario(scenario())


def test_an_observer_that_fails_breaks_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "_INTERNAL_FAILURE_S", 0.01)

    class Failing(Notes):
        def note(self, event: str, /, **fields: object) -> None:
            super().note(event, **fields)
            if event == "runtime.decided" and fields["decision"] == "park":
                raise RuntimeError("the log is full")

    async def scenario() -> None:
        async with stage(time="manual") as on:
            notes = Failing()
            app = parking_app()
            for name in "ab":
                await on.publish("orders", b"park", message_id=name)
            async with AppRunner(
                app.consumptions(compiled()),
                lambda name: Client(on.broker.url, name=name, observer=notes),
                observer=notes,
                options=AppRunOptions(grace_s=5, linger_s=0),
            ) as runner:
                await until(lambda: notes.count("runtime.failed") == 2)
                await until(lambda: not runner.unsettled("orders"))
            assert on.places("a", "b") == ["ready in orders.parked"] * 2
            assert not [name for name, _ in notes.heard if name in ("client.lost", "client.connect_failed")]

    run_scenario(scenario())


def test_a_handler_that_fails_while_it_is_ended_doubles_nothing() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            began = 0

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                nonlocal began
                began += 1
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    raise Park("gave up") from None

            for name in "abc":
                await on.publish("orders", message_id=name)
            async with on.running(app, grace_s=0.01):
                await until(lambda: began == 3)
            await until(lambda: not [one for one in on.places("a", "b", "c") if one.startswith("unacked")])
            assert on.places("a", "b", "c") == ["ready in orders.parked"] * 3

    run_scenario(scenario())


def test_held_deliveries_do_not_hide_handlers_at_work_after_a_channel_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "_FIRST_S", 20.0)

    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            runs = 0

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                nonlocal runs
                runs += 1
                if runs <= 2:
                    raise Park("as it was told")
                await asyncio.Event().wait()

            async with on.running(app, grace_s=0.01) as runner:
                channel = await on.client.channel()
                await channel.delete_queue("orders.parked")
                for name in "ab":
                    await on.publish("orders", message_id=name)
                (queue,) = runner.subscriptions
                await until(lambda: queue.handler.held == 2)
                assert queue.at_work == 0
                (await runner._consuming.connection()).give_up("cut by the test")
                await until(lambda: runs == 4)
                assert (queue.handler.held, queue.at_work) == (2, 2)
            assert sorted(on.places("a", "b")) == ["ready in orders"] * 2

    run_scenario(scenario())


def test_a_handler_that_cancels_its_own_task_disturbs_no_other() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            ended: list[bytes] = []

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                if body == b"bad":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    raise Park("as it was told")
                try:
                    await asyncio.sleep(0.01)
                finally:
                    ended.append(body)

            publisher = await on.client.publisher()
            await publisher.publish_many([Outgoing("", "orders", body) for body in (b"bad", b"one", b"two")])
            async with on.running(app):
                await until(lambda: on.decisions()["ack"] == 2)
            assert ended == [b"one", b"two"]

    run_scenario(scenario())
