"""Bugs that seeds have found, each as the smallest case that still shows it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redrive import wire
from redrive.client import Client
from redrive.core import Requeue, Rule
from redrive.embedded import EmbeddedBroker
from redrive.runtime import App, AppRunner, AppRunOptions, Message
from redrive.runtime.concurrency import ConcurrencyLimit
from redrive.runtime.settlement.command_executor import CommandExecutor
from redrive.testing import run_in_virtual_time
from redrive.topology import Compiled, compile_declaration, declare
from redrive.wiring import declare_missing
from tests.simulation.tally import play_seed

DECLARED = compile_declaration(declare(exchanges={"shop": "topic"}, queues={"orders": {"retry": ["30s"]}}))


def test_an_app_that_was_about_to_consume_again_stops_in_time_although_its_broker_is_gone() -> None:
    """It held what `stop` waits for, for as long as there was no connection."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        app = App(DECLARED)

        @app.consumer("orders")
        async def take(order: bytes) -> None: ...

        async with EmbeddedBroker(listen=False) as broker:
            await declare_missing(DECLARED, lambda _: Client(broker.url, dial=broker.dial))
            options = AppRunOptions(grace_s=1)
            runner = AppRunner(
                app.consumptions(DECLARED), lambda _: Client(broker.url, dial=broker.dial), options=options
            )
            await runner.start()
            (subscription,) = runner.subscriptions
            await subscription.stop_consuming()
            await broker.stop()
            await asyncio.sleep(1)
            again = asyncio.create_task(subscription.start_consuming())
            await asyncio.sleep(1)
            began_s = loop.time()
            async with asyncio.timeout(600):
                await runner.stop()
            await again
            return loop.time() - began_s

    assert run_in_virtual_time(main()) < 30


def test_a_concurrency_slot_that_no_waiter_may_use_does_not_spin_the_event_loop() -> None:
    """It did, in one turn of the event loop after the other, and nothing else got the processor's time."""

    async def main() -> list[str]:
        concurrency, heard = ConcurrencyLimit(1), []
        assert concurrency.try_take()

        async def wait(name: str) -> None:
            heard.append(f"{name}: {'a turn' if await concurrency.wait() else 'look again'}")

        first, second = asyncio.create_task(wait("first")), asyncio.create_task(wait("second"))
        await asyncio.sleep(0)
        concurrency.release()
        await first
        concurrency.put_back()
        await asyncio.sleep(1)
        assert not second.done()
        concurrency.wake()
        await second
        assert concurrency.try_take()
        return heard

    assert run_in_virtual_time(main()) == ["first: a turn", "second: look again"]


def test_a_broker_that_was_down_gives_out_what_came_due_meanwhile_and_afterwards() -> None:
    """The stopped server went on waking for the engine's deadlines, and passed their effects to nobody."""

    async def main() -> list[bytes]:
        async with EmbeddedBroker(listen=False) as broker, Client(broker.url, dial=broker.dial) as client:
            channel = await client.channel()
            await channel.declare_queue("orders")
            back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
            for name, ttl_ms in (("short", 5_000), ("long", 60_000)):
                await channel.declare_queue(name, durable=True, arguments={"x-message-ttl": ttl_ms, **back})
            publisher = await client.publisher()
            for name in ("short", "long"):
                await publisher.publish("", name, name.encode())
            deliveries = await client.deliveries("orders")
            await broker.stop()
            await asyncio.sleep(10)
            await broker.start()
            found = []
            for _ in range(2):
                async with asyncio.timeout(600):
                    delivery = await anext(deliveries)
                delivery.ack()
                found.append(delivery.body)
            await deliveries.close()
            return found

    assert run_in_virtual_time(main()) == [b"short", b"long"]


def test_a_frame_held_back_until_its_connection_was_closed_is_not_answered() -> None:
    """The embedded broker told a connection that was gone that it is blocked, and its event loop raised."""
    assert play_seed(12797).account.faults_found == []


# Deliveries that are the attempts

LITERAL = {"shape": "requeue", "requeue": "nack"}


def shop(retry: dict[str, Any], **options: Any) -> Compiled:
    """One queue `orders`, bound to `shop`."""
    queue = {"from": {"shop": ["#"]}, "retry": retry, **options}
    return compile_declaration(declare(exchanges={"shop": "topic"}, queues={"orders": queue}))


@asynccontextmanager
async def open_for_business(
    app: App, declared: Compiled, profile: str, messages: int, *, headers: dict[str, Any] | None = None
) -> AsyncIterator[EmbeddedBroker]:
    """The app at work on messages #0, #1 …, which were there before it."""
    async with EmbeddedBroker(profile, listen=False) as broker:

        def connect(_: str) -> Client:
            return Client(broker.url, dial=broker.dial)

        await declare_missing(declared, connect)
        async with connect("outside") as client:
            publisher = await client.publisher()
            for number in range(messages):
                made = wire.Properties.of(delivery_mode=2, message_id=f"#{number}", headers=headers)
                await publisher.publish("shop", "order", b"%d" % number, made)
        options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000))
        runner = AppRunner(app.consumptions(declared), connect, options=options)
        await runner.start()
        yield broker
        await runner.stop()


async def places_of(broker: EmbeddedBroker, messages: int) -> list[str]:
    """Where each message is, as soon as all that are anywhere are in the dead letters."""
    async with asyncio.timeout(3600):
        while True:
            await asyncio.sleep(1)
            places = [place for number in range(messages) for place in broker.whereabouts(f"#{number}")]
            if all(place.queue != "orders" for place in places):
                return [f"{place.state} in {place.queue}" for place in places]


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_a_pause_costs_no_message_an_attempt_where_the_broker_counts_every_nack(profile: str) -> None:
    """Messages that were unsettled when the queue was paused were nacked. That counted as their only attempt, and they
    were parked for crashes that never happened, without a run of the handler."""
    declared = shop({**LITERAL, "attempts": 1}, type="quorum")
    app, seen = App(declared), []

    @app.consumer("orders", pause_after=1, prefetch=20, concurrency=1)
    async def take(order: bytes, message: Message) -> None:
        seen.append((message.id, message.attempt))
        if len(seen) <= 3:
            raise ConnectionRefusedError("the database is down")

    async def main() -> list[str]:
        async with open_for_business(app, declared, profile, 8) as broker:
            return await places_of(broker, 8)

    assert run_in_virtual_time(main()) == []
    assert {number for number, _ in seen} == {f"#{number}" for number in range(8)}
    assert {attempt for _, attempt in seen} == {1}


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_what_asks_to_be_requeued_keeps_its_attempts_in_the_literal_form_too(profile: str) -> None:
    declared = shop({**LITERAL, "attempts": 3}, type="quorum")
    app, attempts = App(declared), []

    @app.consumer("orders")
    async def take(order: bytes, message: Message) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 40:
            raise Requeue(pause=0.1)

    async def main() -> list[str]:
        async with open_for_business(app, declared, profile, 1) as broker:
            return await places_of(broker, 1)

    assert run_in_virtual_time(main()) == []
    assert attempts == [1] * 40


@pytest.mark.parametrize(
    ("profile", "retry", "parking"),
    [
        ("4.3", {"shape": "native", "min": "5s", "max": "15m"}, "orders.parked"),
        ("4.0", LITERAL, "orders.dlq"),
        ("3.10", LITERAL, "orders.dlq"),
    ],
)
@pytest.mark.parametrize("attempts", [1, 2])
def test_a_rule_that_allows_more_runs_than_the_queue_has_them_where_deliveries_are_the_attempts(
    profile: str, retry: dict[str, Any], parking: str, attempts: int
) -> None:
    """The next delivery was parked for crashes that never happened, without its error; after a long Retry-After it
    ran."""
    declared = shop({**retry, "attempts": attempts}, type="quorum")
    app, seen = App(declared), []

    @app.consumer("orders", rules=[Rule(ValueError, "retry", attempts_max=4)])
    async def take(order: bytes, message: Message) -> None:
        seen.append(message.attempt)
        raise ValueError("not yet")

    async def main() -> tuple[list[str], dict[str, Any]]:
        async with open_for_business(app, declared, profile, 1) as broker:
            places = await places_of(broker, 1)
            async with Client(broker.url, dial=broker.dial) as client:
                channel = await client.channel()
                parked = await channel.get_message(parking)
                assert parked is not None
                return places, dict(parked.properties.headers)

    places, headers = run_in_virtual_time(main())
    assert seen == [1, 2, 3, 4]
    assert places == [f"ready in {parking}"]
    assert headers["x-redrive-reason"] == "attempts"
    assert headers["x-final-retry-count"] == 3
    assert headers["x-final-error"] == "ValueError: not yet"


def test_a_message_on_a_rules_own_run_that_asks_to_be_requeued_has_not_died() -> None:
    """It came back with the flag of a redelivery and with all of the queue's own attempts behind it."""
    declared = shop({"shape": "native", "min": "5s", "max": "15m", "attempts": 1})
    app, seen = App(declared), []

    @app.consumer("orders", rules=[Rule(ValueError, "retry", attempts_max=2)])
    async def take(order: bytes, message: Message) -> None:
        seen.append(message.attempt)
        match len(seen):
            case 1:
                raise ValueError("not yet")
            case 2:
                raise Requeue(pause=1)

    async def main() -> list[str]:
        async with open_for_business(app, declared, "4.3", 1) as broker:
            return await places_of(broker, 1)

    assert run_in_virtual_time(main()) == []
    assert seen == [1, 2, 2]


FORGED_COUNT = {"x-delivery-count": 25, "x-acquired-count": 25}
COUNTING: list[tuple[str, dict[str, Any], str]] = [
    ("4.3", {"shape": "native", "min": "5s", "max": "15m", "attempts": 2}, "orders.parked"),
    *((profile, {**LITERAL, "attempts": 2}, "orders.dlq") for profile in ("3.10", "4.0", "4.3")),
]


@pytest.mark.parametrize("count", [1, 25])
@pytest.mark.parametrize(("profile", "retry", "parking"), COUNTING)
def test_a_publishers_own_delivery_count_does_not_count_after_a_requeue(
    profile: str, retry: dict[str, Any], parking: str, count: int
) -> None:
    """4.3 counts no nack and so writes no x-delivery-count over the publisher's: a requeued message was taken for
    one that had been delivered 25 times, and was parked for crashes that never happened."""
    declared = shop(retry, type="quorum")
    app, seen = App(declared), []

    @app.consumer("orders")
    async def take(order: bytes, message: Message) -> None:
        seen.append(message.attempt)
        if len(seen) < 4:
            raise Requeue(pause=0.1)

    async def main() -> list[str]:
        forged = {"x-delivery-count": count, "x-acquired-count": count}
        async with open_for_business(app, declared, profile, 1, headers=forged) as broker:
            return await places_of(broker, 1)

    assert run_in_virtual_time(main()) == []
    assert seen == [1, 1, 1, 1]


@pytest.mark.parametrize(("profile", "retry", "parking"), COUNTING)
def test_a_publishers_own_delivery_count_does_not_count_after_a_failed_run(
    profile: str, retry: dict[str, Any], parking: str
) -> None:
    """The literal nack of 4.3 left it on the message as well, and the second run never came."""
    declared = shop(retry, type="quorum")
    app, seen = App(declared), []

    @app.consumer("orders")
    async def take(order: bytes, message: Message) -> None:
        seen.append(message.attempt)
        raise ValueError("not yet")

    async def main() -> tuple[list[str], dict[str, Any]]:
        async with open_for_business(app, declared, profile, 1, headers=FORGED_COUNT) as broker:
            places = await places_of(broker, 1)
            async with Client(broker.url, dial=broker.dial) as client:
                parked = await (await client.channel()).get_message(parking)
                assert parked is not None
                return places, dict(parked.properties.headers)

    places, headers = run_in_virtual_time(main())
    assert seen == [1, 2]
    assert places == [f"ready in {parking}"]
    assert (headers["x-redrive-reason"], headers["x-final-retry-count"]) == ("attempts", 1)


@pytest.mark.parametrize(("profile", "retry", "parking"), COUNTING)
def test_a_requeue_without_a_copy_makes_the_queue_write_its_own_count_over_a_publishers(
    profile: str, retry: dict[str, Any], parking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no copy can be made the message pays for one run, as after a death, and not for 25."""
    monkeypatch.setattr(CommandExecutor, "copy_once", _refused)
    declared = shop({**retry, "attempts": 3}, type="quorum")
    app, seen = App(declared), []

    @app.consumer("orders")
    async def take(order: bytes, message: Message) -> None:
        seen.append(message.attempt)
        if len(seen) == 1:
            raise Requeue(pause=0.1)

    async def main() -> list[str]:
        async with open_for_business(app, declared, profile, 1, headers=FORGED_COUNT) as broker:
            return await places_of(broker, 1)

    assert run_in_virtual_time(main()) == []
    assert seen == [1, 2]


async def _refused(*_: object, **__: object) -> bool:
    return False


@pytest.mark.parametrize("seed", [4843, 5219, 5433, 7496, 7510, 12482, 12998, 15130, 16364, 18685])
def test_a_seed_in_which_a_publishers_delivery_count_was_believed_is_accounted_for(seed: int) -> None:
    assert play_seed(seed).account.faults_found == []


@pytest.mark.parametrize("seed", [7998, 9138, 11286, 11609, 13288, 17955])
def test_a_seed_in_which_a_message_expires_with_anothers_deaths_is_accounted_for(seed: int) -> None:
    assert play_seed(seed).account.faults_found == []


@pytest.mark.parametrize("seed", [2482, 7925, 10724, 11017, 14639, 15874, 16881])
def test_a_seed_that_showed_one_of_these_is_accounted_for(seed: int) -> None:
    assert play_seed(seed).account.faults_found == []
