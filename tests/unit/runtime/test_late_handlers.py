"""Handlers that end after their channel was lost: the broker redelivers the message, and their outcome is ignored."""

import asyncio
from functools import partial

import pytest

from redrive import App, Park
from redrive.runtime import AppRunner
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

CONSUMER_TIMEOUT_S = 30 * 60


def cut(runner: AppRunner) -> None:
    """The line of the consumers breaks; the one for publishing holds."""
    for one in runner.subscriptions:
        for consumer in one._consumers:
            if consumer._session is not None:
                consumer._session.connection.give_up("the line was cut")


@pytest.mark.parametrize(("error", "place"), [(Park("no"), "orders.parked"), (ValueError("no"), "orders.wait.30s")])
def test_a_run_that_fails_too_late_leaves_no_copy(error: Exception, place: str) -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            runs = 0
            go_on = asyncio.Event()

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                nonlocal runs
                runs += 1
                await go_on.wait()
                raise error

            await on.publish("orders", message_id="a")
            async with on.running(app) as runner:
                await until(lambda: runs == 1)
                cut(runner)
                await until(lambda: runs == 2)
                go_on.set()
                await until(lambda: on.notes.count("runtime.decided") == 1)
                await until(lambda: on.notes.count("runtime.stale") == 1)
            assert on.places("a") == [f"ready in {place}"]

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["4.0", "4.3"])
def test_a_message_whose_runs_lose_their_channels_is_still_one_message(profile: str) -> None:
    async def scenario() -> None:
        async with stage(profile=profile, time="automatic") as on:
            app = App(compiled())
            runs = 0

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                nonlocal runs
                runs += 1
                if runs % 2:
                    cut(runner)
                    await asyncio.sleep(0.1)
                raise ValueError("no")

            async with on.running(app) as runner:
                await on.publish("orders", message_id="a")
                await until(lambda: on.decisions()["park"])
                await asyncio.sleep(0.2)
                assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_a_success_that_comes_too_late_is_logged_once_for_each_channel() -> None:
    async def scenario() -> None:
        async with stage(time="manual") as on:
            app = App(compiled())
            begun = 0
            go_on = asyncio.Event()

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                nonlocal begun
                begun += 1
                await go_on.wait()

            names = [await on.publish("orders") for _ in range(5)]
            async with on.running(app) as runner:
                await until(lambda: begun == 5)
                cut(runner)
                await until(lambda: begun == 10)
                go_on.set()
                await until(lambda: not on.places(*names))
            assert on.notes.count("runtime.stale") == 1
            assert on.decisions() == {"ack": 5}

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("fails", [False, True])
def test_what_outlasts_the_consumer_timeout_is_parked_by_the_crash_cap(profile: str, fails: bool) -> None:
    text = "queues: {orders: {type: quorum, retry: [30s]}}"

    async def scenario() -> None:
        async with stage(text, profile=profile, time="manual") as on:
            app = App(compiled(text))
            waiting: list[asyncio.Event] = []

            def has_begun(run: int) -> bool:
                return len(waiting) == run

            @app.consumer("orders", crashes_max=2)
            async def handle(_body: bytes) -> None:
                waiting.append(asyncio.Event())
                await waiting[-1].wait()
                if fails:
                    raise ValueError("no")

            await on.publish("orders", message_id="a")
            async with on.running(app, grace_s=0):
                for run in (1, 2):
                    await until(partial(has_begun, run))
                    await on.broker.advance(CONSUMER_TIMEOUT_S)
                    while on.notes.count("consumer.channel_lost") + on.notes.count("consumer.cancelled") < run:
                        await on.broker.advance(10)  # the broker looks now and then
                        await asyncio.sleep(0.001)
                    waiting[run - 1].set()
                # 4.3 cancels the consumer, as if the queue were deleted: what fails then may be all there is of it.
                copies = 3 if fails and profile == "4.3" else 1
                await until(lambda: on.decisions() == {"park": copies})
            assert len(waiting) == 2
            assert on.places("a") == ["ready in orders.parked"] * copies
            for parked in await on.take("orders.parked"):
                assert parked.properties.headers["x-redrive-reason"] == "crashes"

    run_scenario(scenario())
