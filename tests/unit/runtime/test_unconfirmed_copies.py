"""A copy that is not confirmed: its delivery is held, then requeued, and no crash is counted."""

import pytest

from redrive import App
from redrive.runtime.settlement import command_executor
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, failures, stage, until


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_a_missing_wait_queue_is_not_counted_as_a_death(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_executor, "HELD_S_MAX", 0.05)
    monkeypatch.setattr(command_executor, "_FIRST_S", 0.02)

    async def scenario() -> None:
        async with stage(profile=profile, time="manual") as on:
            app = App(compiled())
            runs = 0

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                nonlocal runs
                runs += 1
                raise ValueError("no")

            async with on.running(app):
                channel = await on.client.channel()
                await channel.delete_queue("orders.wait.30s")
                await on.publish("orders", message_id="a")
                await until(lambda: runs >= 6)  # with three deaths it would be parked by now
                assert on.decisions() == {}
                await channel.declare_queue(
                    "orders.wait.30s",
                    durable=True,
                    arguments=next(
                        {"x-queue-type": one.type, **one.arguments.thaw()}
                        for one in compiled().topology.queues
                        if one.name == "orders.wait.30s"
                    ),
                )
                await until(lambda: on.decisions() == {"retry": 1})
            assert on.places("a") == ["ready in orders.wait.30s"]

    run_scenario(scenario())


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
