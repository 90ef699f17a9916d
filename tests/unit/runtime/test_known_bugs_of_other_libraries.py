"""Known bugs of other libraries, shown to be absent here, in virtual time: those that take half-hours and days.

The numbers are those of tests/live/runtime/test_known_bugs_of_other_libraries, where the same is asked of real brokers.
"""

from datetime import UTC, datetime

import pytest

from redrive.client import Client
from redrive.core import RetryAfter
from redrive.runtime import App, Message
from redrive.wiring import declare_missing
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

pytestmark = pytest.mark.slow

PROFILES = ("3.10", "4.0", "4.3")
SHAPES = {
    "ladder": "{shape: ladder, delays: [30s, 30m]}",
    "tiered": "{shape: tiered, exchange: shop, domain: orders, delays: [30s, 30m]}",
    "service": "{shape: service, service: orders, delays: [30s], attempts: 3}",
    "per-queue": "{shape: per-queue, delays: [30s], attempts: 3}",
    "quorum": "{shape: quorum, delays: [30s], attempts: 3}",
    "requeue": "{shape: requeue, attempts: 3}",
    "native": "{shape: native, min: 30s, max: 30m, attempts: 3}",
}
DAY_S = 86_400


def declared(shape: str) -> str:
    return f"exchanges: {{shop: topic}}\nqueues:\n  orders: {{from: {{shop: ['orders.#']}}, retry: {SHAPES[shape]}}}\n"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dead_letter_is_still_there_after_a_month(shape: str) -> None:
    """Fault 2, Dramatiq: its dead queue is emptied after seven days."""

    async def scenario() -> None:
        plan = compiled(declared(shape))
        routes = plan.queue("orders").routes
        assert routes is not None
        parking = routes.parking.queue
        async with stage(plan) as shop:
            app = App(plan)

            @app.consumer("orders")
            async def handle(_: bytes) -> None:
                raise ValueError("every time")

            name = await shop.publish("orders", b"{}")
            async with shop.running(app):
                await until(lambda: shop.places(name) == [f"ready in {parking}"])
            assert shop.decisions() == {"retry": 2, "park": 1}
            await shop.broker.advance(30 * DAY_S)
            (parked,) = await shop.take(parking)
            assert parked.properties.header("x-final-error") == "ValueError: every time"
            assert shop.places(name) == []

    run_scenario(scenario())


@pytest.mark.parametrize("profile", PROFILES)
def test_thirty_minutes_do_not_block_thirty_seconds(profile: str) -> None:
    """Fault 14, taskiq: one delay queue with per-message TTLs, where the head holds up whatever is behind it."""

    async def scenario() -> None:
        async with stage(declared("ladder"), profile=profile) as shop:
            app = App(compiled(declared("ladder")))
            back: dict[str, float] = {}
            began_s: dict[str, float] = {}

            @app.consumer("orders")
            async def handle(body: bytes, message: Message) -> None:
                name = str(message.id)
                if message.attempt == 2:
                    back[name] = shop.broker.now_s - began_s[name]
                    return
                began_s[name] = shop.broker.now_s
                raise RetryAfter(body.decode())

            # The long one goes first, one between them, then the short ones; 10 s is below every wait there is.
            for name, delay in (("long", "30m"), ("middle", "5m"), ("short", "30s"), ("shorter", "10s")):
                await shop.publish("orders", delay.encode(), message_id=name)
            async with shop.running(app):
                await until(lambda: len(back) == 4)
            assert shop.places("long", "middle", "short", "shorter") == []
            assert 30 <= back["short"] < 31
            assert 30 * 60 <= back["long"] < 30 * 60 + 1
            # Between two waits a delay can be held up by the queue's head, never beyond the queue's own TTL.
            assert 10 <= back["shorter"] < 31
            assert 5 * 60 <= back["middle"] < 30 * 60 + 1

    run_scenario(scenario())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_delay_of_hours_is_in_no_consumers_hands_and_outlives_a_restart_of_everything(profile: str) -> None:
    """Faults 11 and 17, Wolverine and others: a delay that lives in a process, or in a delivery that the broker's
    consumer timeout of thirty minutes would take away."""

    async def scenario() -> None:
        async with stage(declared("ladder"), profile=profile, time="manual") as shop:
            app = App(compiled(declared("ladder")))
            runs: list[tuple[int, float]] = []
            began_s = shop.broker.now_s

            @app.consumer("orders")
            async def handle(_: bytes, message: Message) -> None:
                runs.append((message.attempt, shop.broker.now_s - began_s))
                if message.attempt == 1:
                    raise RetryAfter("2h")  # four times the longest wait

            name = await shop.publish("orders", b"{}")
            async with shop.running(app) as runner:
                await until(lambda: shop.places(name) == ["ready in orders.wait.30m"])
                assert runner.unsettled("orders") == 0
            await shop.broker.restart()
            async with shop.running(app) as runner:
                for half_hour in range(1, 4):
                    await shop.broker.advance(30 * 60)
                    # It came, it was too early, and it waits again: neither run nor counted.
                    await until(lambda done=half_hour: shop.decisions()["defer"] == done)  # type: ignore[misc]
                    await until(lambda: shop.places(name) == ["ready in orders.wait.30m"])
                    assert runner.unsettled("orders") == 0
                await shop.broker.advance(30 * 60)
                await until(lambda: len(runs) == 2)
                await until(lambda: shop.places(name) == [])
            assert [attempt for attempt, _ in runs] == [1, 2]
            assert 2 * 3600 <= runs[1][1] < 2 * 3600 + 1

    run_scenario(scenario())


@pytest.mark.parametrize("shape", ["ladder", "tiered", "service", "per-queue", "quorum", "requeue"])
@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit"])
def test_a_message_that_was_dead_here_before_is_retried_and_not_taken_for_a_cycle(shape: str, reason: str) -> None:
    """Fault 6, Celery: 3.10 goes on in an x-death that a message brings along, and drops what looks like a cycle."""

    async def scenario() -> None:
        plan = compiled(declared(shape))
        async with stage(plan, profile="3.10") as shop:
            app = App(plan)
            attempts: list[int] = []

            @app.consumer("orders")
            async def handle(_: bytes, message: Message) -> None:
                attempts.append(message.attempt)
                if message.attempt < 3:
                    raise ValueError("not yet")

            death = {
                "queue": "orders",
                "reason": reason,
                "count": 1,
                "exchange": "shop",
                "routing-keys": ["orders.placed"],
                "time": datetime(2026, 1, 1, tzinfo=UTC),
            }
            name = await shop.publish("orders", b"{}", headers={"x-death": [death]})
            async with shop.running(app):
                await until(lambda: len(attempts) == 3)
                await until(lambda: shop.places(name) == [])
            assert attempts == [1, 2, 3]
            assert [hop for hop in shop.broker.life(name) if "cycle" in str(hop)] == []

    run_scenario(scenario())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_long_wait_of_one_queue_outlasts_another_queues_deletion(profile: str) -> None:
    """Fault 4, Celery and NServiceBus: one destination is gone, and everybody's delays are blocked.

    What waits for the queue that is gone is held until it is back, however long that takes.
    """
    both = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [30m]}
  invoices: {from: {shop: ["invoices.#"]}, retry: [30m]}
"""

    async def scenario() -> None:
        plan = compiled(both)
        async with stage(plan, profile=profile, time="manual") as shop:
            app = App(plan)
            handled: list[str] = []

            async def handle(_: bytes, message: Message) -> None:
                if message.attempt == 1:
                    raise ValueError("once")
                handled.append(str(message.id))

            for queue in ("orders", "invoices"):
                app.consumer(queue)(handle)
                await shop.publish(queue, b"{}", message_id=queue)
            async with shop.running(app):
                waiting = ["ready in orders.wait.30m", "ready in invoices.wait.30m"]
                await until(lambda: shop.places("orders", "invoices") == waiting)
                channel = await shop.client.channel()
                await channel.delete_queue("orders")
                await shop.broker.advance(31 * 60)
                await until(lambda: handled == ["invoices"])
                await shop.broker.advance(DAY_S)
                assert len(shop.places("orders")) == 1
                await declare_missing(plan, lambda _: Client(shop.broker.url))
                await shop.broker.advance(10 * 60)
                await until(lambda: handled == ["invoices", "orders"])
                await until(lambda: shop.places("orders", "invoices") == [])

    run_scenario(scenario(), timeout_s=60)
