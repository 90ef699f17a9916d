"""Exclusive runs: how long they wait for other handlers, and that they hold up nobody else."""

import asyncio

import pytest

from redrive import App
from redrive.runtime import delivery_handler
from redrive.runtime.exclusive_run import WAIT_S_MAX, ExclusiveRuns
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, delete, failures, stage, until


class Busy:
    """Takes deliveries, and has so many at work."""

    has_wait_queue = True

    def __init__(self) -> None:
        self.at_work = 2

    async def stop_consuming(self) -> None: ...
    async def start_consuming(self) -> None: ...
    async def flush(self) -> None: ...
    def wake(self) -> None: ...


def test_each_time_the_others_do_not_end_it_waits_twice_as_long() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        exclusive_runs, busy = ExclusiveRuns(wait_s_first=0.05), Busy()
        exclusive_runs.queues.append(busy)
        waited_s = []
        for _ in range(3):
            began_s = loop.time()
            async with exclusive_runs.exclusive() as is_exclusive:
                assert not is_exclusive
            waited_s.append(loop.time() - began_s)
        assert waited_s[0] >= 0.05
        assert waited_s[1] >= 0.10
        assert waited_s[2] >= 0.20
        busy.at_work = 1
        async with exclusive_runs.exclusive() as is_exclusive:
            assert is_exclusive
        assert exclusive_runs._wait_s == 0.05

    run_scenario(scenario())


def test_it_never_waits_as_long_as_the_broker_does() -> None:
    assert WAIT_S_MAX < 30 * 60 / 1.5


def test_an_exclusive_run_that_is_cancelled_starts_only_the_consumers_that_it_has_stopped() -> None:
    class Stubborn(Busy):
        has_wait_queue = False

        def __init__(self) -> None:
            super().__init__()
            self.holds = 0

        async def stop_consuming(self) -> None:
            self.holds += 1
            await asyncio.sleep(60)

        async def start_consuming(self) -> None:
            self.holds -= 1

    async def scenario() -> None:
        exclusive_runs = ExclusiveRuns()
        members = [Stubborn(), Stubborn()]
        exclusive_runs.queues.extend(members)

        async def want() -> None:
            async with exclusive_runs.exclusive():
                raise AssertionError

        task = asyncio.create_task(want())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.01)
        assert [one.holds for one in members] == [0, 0]

    run_scenario(scenario())


TWO = "queues: {orders: {retry: [30s]}, others: {retry: [30s]}}"


TWO_WITHOUT_WAITS = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: [orders]}, retry: {shape: requeue}}
  others: {from: {shop: [others]}, retry: {shape: requeue}}
"""


LAST_CHANCE = {"x-redrive-deliveries": 2}


def test_an_exclusive_run_that_finds_no_wait_queue_does_not_hold_up_the_other_queues(
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


def test_a_message_held_without_its_wait_queue_does_not_prevent_an_exclusive_run() -> None:
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
def test_a_queue_that_is_gone_does_not_prevent_exclusive_runs_of_the_others() -> None:
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
                await until(lambda: not runner.unsettled("orders"))
                assert on.places("a", "b", "c") == []

    run_scenario(scenario())
