"""Copies to exchanges that close channels do not put other copies in doubt; a copy that is sent again although it may
have arrived says so."""

import asyncio
from collections import Counter

import pytest

from redrive import App, Message, Park, PublishFailed
from redrive.client import InDoubt, Nacked, Returned
from redrive.runtime.settlement.isolated_publisher import IsolatedPublisher
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import Stage, compiled, stage, until

TIERED = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.*"]}, retry: {shape: tiered, delays: [50ms]}}
"""
MARK = "x-redrive-possible-duplicate"


def tiered_app(runs: Counter[str]) -> App:
    """Parks what says so, and fails once over everything else."""
    app = App(compiled(TIERED))

    @app.consumer("orders")
    async def handle(body: bytes, message: Message) -> None:
        if body == b"park":
            raise Park("no")
        runs[str(message.id)] += 1
        if message.attempt == 1:
            raise ValueError("once")

    return app


async def delete_exchange(on: Stage, name: str) -> None:
    channel = await on.client.channel()
    await channel.delete_exchange(name)
    await channel.close()


async def declare_dlx(on: Stage) -> None:
    channel = await on.client.channel()
    await channel.declare_exchange("shop.dlx", "fanout", durable=True)
    await channel.bind_queue("shop.dlq", "shop.dlx", "")
    await channel.close()


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_a_missing_dead_letter_exchange_doubles_no_retries(profile: str) -> None:
    async def scenario() -> None:
        runs: Counter[str] = Counter()
        async with stage(TIERED, profile=profile, time="real") as on, on.running(tiered_app(runs)) as runner:
            executor = runner.subscriptions[0].handler._executor
            await delete_exchange(on, "shop.dlx")
            await on.publish("orders.x", b"park", exchange="shop", message_id="p0")
            await until(lambda: executor.closing_exchanges == {"shop.dlx"})
            parked = ["p0"]
            names = []
            for number in range(60):
                if number % 10 == 0:
                    parked.append(await on.publish("orders.x", b"park", exchange="shop"))
                names.append(await on.publish("orders.x", b"fail", exchange="shop"))
            await until(lambda: set(names) <= {name for name, count in runs.items() if count >= 2})
            await until(lambda: not on.places(*names))
            assert runs == dict.fromkeys(names, 2)
            assert on.places(*parked) == ["unacked in orders"] * 7
            await declare_dlx(on)
            await until(lambda: on.places(*parked) == ["ready in shop.dlq"] * 7, timeout_s=40)
            assert not executor.closing_exchanges
            # Only the first was sent on a channel where others might have been: of the others it is known.
            marked = [got.properties.message_id for got in await on.take("shop.dlq") if got.properties.header(MARK)]
            assert marked == ["p0"]

    run_scenario(scenario(), timeout_s=60)


def test_a_copy_whose_confirm_was_lost_is_sent_again_with_a_mark_that_goes_along() -> None:
    async def scenario() -> None:
        marks: list[tuple[int, object]] = []
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def handle(_body: bytes, message: Message) -> None:
                marks.append((message.attempt, message.header(MARK)))
                raise ValueError("no")

            async with on.running(app):
                publisher = await on.client.publisher()
                on.broker.faults.close_after("basic.publish", nth=2)  # the copy; the first is the test's own
                await publisher.publish("", "orders", b"{}")
                await until(lambda: on.decisions()["park"] == 2)  # this fault breaks the line after the copy was taken
            # Attempts are counted on: the second copy is as much ours as the first.
            assert sorted(marks, key=str) == [(1, None), (2, None), (2, True), (3, None), (3, True)]
            parked = [got.properties.header(MARK) for got in await on.take("orders.parked")]
            assert sorted(parked, key=str) == [None, True]

    run_scenario(scenario())


def test_a_handler_that_publishes_to_a_missing_exchange_spoils_nothing_of_the_others() -> None:
    async def scenario() -> None:
        outcomes: list[tuple[bool, bool]] = []
        async with stage(time="real") as on:
            app = App(compiled())

            @app.consumer("orders")
            async def handle(body: bytes, message: Message) -> None:
                is_wrong = body == b"wrong"
                try:
                    await message.publish("nowhere" if is_wrong else "", "orders.parked", b"x")
                except PublishFailed as error:
                    outcomes.append((is_wrong, error.in_doubt))

            async with on.running(app):
                await on.publish("orders", b"wrong")
                await until(lambda: on.decisions()["ack"] == 1)
                outcomes.clear()
                names = [await on.publish("orders", b"wrong" if number % 5 == 0 else b"") for number in range(50)]
                await until(lambda: on.decisions()["ack"] == 51)
            assert outcomes == [(True, False)] * 10
            assert len(await on.take("orders.parked")) == 40
            assert not on.places(*names)

    run_scenario(scenario())


def test_a_strangers_mark_is_left_behind() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def handle(_body: bytes) -> None:
                raise Park("no")

            async with on.running(app):
                await on.publish("orders", message_id="a", headers={MARK: True})
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.header(MARK) is None

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("exchange", "reason", "is_learnt"),
    [
        ("x", "404 NOT_FOUND - no exchange 'x' in vhost '/'", True),
        ("y", "404 NOT_FOUND - no exchange 'x' in vhost '/'", False),
        ("", "403 ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'", True),
        ("x", "403 ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'u'", True),
        ("x", "403 ACCESS_REFUSED - write access to topic 'k' in exchange 'x' in vhost '/' refused", True),
        ("x", "406 PRECONDITION_FAILED - message size 7 is larger than configured max size 5", False),
        ("x", "the connection to exchange 'x' in vhost is gone", False),
    ],
)
def test_an_exchange_is_known_by_the_brokers_words(exchange: str, reason: str, is_learnt: bool) -> None:
    async def scenario() -> None:
        apart = IsolatedPublisher(asyncio.Event().wait)  # type: ignore[arg-type]
        for other in (Returned(312, reason), Nacked()):
            apart.learn(exchange, other)
        assert not apart.exchanges
        apart.learn(exchange, InDoubt(reason))
        assert apart.exchanges == ({exchange} if is_learnt else set())

    run_scenario(scenario())
