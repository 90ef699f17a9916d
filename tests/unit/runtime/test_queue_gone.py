"""Queues that are deleted while their messages are unacked: what fails then is all there is of a message, and is parked
by a copy. If that can't be done either, somebody is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product

import pytest

from redrive import App, Park, Requeue
from redrive.core import Succeeded
from redrive.runtime.settlement import command_executor
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import Stage, compiled, stage, until

SHAPES = {
    "ladder": ("retry: [30s]", "orders.parked"),
    "per-queue": ("retry: {shape: per-queue}", "orders.dlq"),
    "quorum": ("retry: {shape: quorum}", "orders.dlq"),
    "requeue": ("retry: {shape: requeue, exchange: shop}", "orders.dlq"),
    "requeue by nack": ("retry: {shape: requeue, exchange: shop, requeue: nack, park: reject}", "orders.dlq"),
    "tiered": ("retry: {shape: tiered, exchange: shop}", "shop.dlq"),
    "tiered by reject": ("retry: {shape: tiered, exchange: shop, park: reject}", "shop.dlq"),
    "native": ("retry: {shape: native}", "orders.parked"),
    "none": ("retry: false, arguments: {x-dead-letter-exchange: '', x-dead-letter-routing-key: keep}", "keep"),
}
ERRORS = {"fails": ValueError("no"), "parks": Park("no"), "requeues": Requeue(0)}
QUICK = {
    ("ladder", "fails", True, "4.3"),
    ("per-queue", "fails", True, "4.3"),
    ("quorum", "requeues", False, "4.3"),
    ("requeue", "fails", True, "3.10"),
    ("tiered by reject", "parks", True, "4.3"),
    ("none", "fails", False, "3.10"),
}


def declared(shape: str) -> str:
    orders = f"{{from: {{shop: ['orders.*']}}, {SHAPES[shape][0]}}}"
    return f"exchanges: {{shop: topic}}\nqueues:\n  keep: {{retry: false}}\n  orders: {orders}"


class Late:
    """An app whose handlers end when they are told to."""

    def __init__(self, shape: str, error: BaseException | None, *, prefetch: int = 100, concurrency: int = 100) -> None:
        self.text = declared(shape)
        self.app = App(compiled(self.text))
        self.begun = 0
        self.go_on = asyncio.Event()

        @self.app.consumer("orders", prefetch=prefetch, concurrency=concurrency)
        async def handle(_body: bytes) -> None:
            self.begun += 1
            await self.go_on.wait()
            if error is not None:
                raise error


@asynccontextmanager
async def in_hand(late: Late, *, profile: str = "4.3") -> AsyncIterator[Stage]:
    async with stage(late.text, profile=profile, time="manual") as on:
        for name in "ab":
            await on.publish("orders", message_id=name)
        async with on.running(late.app, grace_s=0.2):
            await until(lambda: late.begun == 2)
            yield on


async def delete(on: Stage, *queues: str) -> None:
    channel = await on.client.channel()
    for queue in queues:
        await channel.delete_queue(queue)
    await channel.close()


async def until_gone(on: Stage) -> None:
    """Until the consumer was told that there is no such queue."""
    await until(lambda: on.notes.count("consumer.failed"))


@pytest.mark.parametrize(
    ("shape", "how", "known", "profile"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
        for case in product(SHAPES, ERRORS, (True, False), ("3.10", "4.3"))
        if case[0] != "native" or case[3] == "4.3"
    ],
)
def test_a_message_that_fails_after_its_queue_was_deleted_is_parked_by_a_copy(
    shape: str, how: str, known: bool, profile: str
) -> None:
    async def scenario() -> None:
        late = Late(shape, ERRORS[how])
        async with in_hand(late, profile=profile) as on:
            await delete(on, "orders")
            await (until_gone(on) if known else until(lambda: on.notes.count("consumer.cancelled")))
            late.go_on.set()
            waits = shape == "ladder" and how == "fails" and known
            place = "orders.wait.30s" if waits else SHAPES[shape][1]
            await until(lambda: on.decisions() == {"retry" if waits else "park": 2})
            assert on.places("a", "b") == [f"ready in {place}"] * 2
            if not waits:
                spent = {("none", "fails"): "attempts"}.get((shape, how))  # one run is all it has
                reason = spent or ("park" if how == "parks" else "queue_gone" if known else "crashes")
                assert on.notes.last("runtime.decided")["reason"] == reason
        assert on.notes.count("runtime.stale") == on.notes.count("runtime.lost") == 0
        assert on.places("a", "b") == [f"ready in {place}"] * 2

    run_scenario(scenario(), timeout_s=30)


def test_a_ladders_retry_waits_for_its_queue_to_be_there_again() -> None:
    async def scenario() -> None:
        late = Late("ladder", ValueError("no"))
        async with in_hand(late) as on:
            await delete(on, "orders")
            await until_gone(on)
            late.go_on.set()
            await until(lambda: on.decisions() == {"retry": 2})
            await on.broker.advance(3600)
            assert len(on.places("a", "b")) == 2

    run_scenario(scenario())


@pytest.mark.parametrize("shape", ["ladder", "requeue"])
def test_a_copy_on_its_way_to_a_deleted_queue_is_parked_although_nobody_consumes_any_more(shape: str) -> None:
    """Without a consumer the broker says nothing when a queue goes."""

    async def scenario() -> None:
        late = Late(shape, Requeue(0))
        text = late.text
        async with stage(text, time="manual") as on:
            await on.publish("orders", message_id="a")
            async with on.running(late.app) as runner:
                await until(lambda: late.begun == 1)
                await runner.subscriptions[0].stop_consuming()
                await delete(on, "orders")
                late.go_on.set()
                await until(lambda: on.decisions() == {"park": 1})
                assert on.notes.last("runtime.decided")["reason"] == "queue_gone"
                assert on.places("a") == [f"ready in {SHAPES[shape][1]}"]

    run_scenario(scenario())


def test_a_copy_that_is_insisted_on_is_parked_when_the_queue_goes_too() -> None:
    async def scenario() -> None:
        late = Late("ladder", ValueError("no"))
        async with in_hand(late) as on:
            await delete(on, "orders.wait.30s")
            late.go_on.set()
            await until(lambda: on.notes.count("runtime.publish_failed") >= 2)
            await delete(on, "orders")
            await until(lambda: on.decisions() == {"park": 2})
            assert on.places("a", "b") == ["ready in orders.parked"] * 2

    run_scenario(scenario())


def test_a_message_without_its_queue_is_parked_when_the_app_stops() -> None:
    async def scenario() -> None:
        late = Late("quorum", None)
        async with in_hand(late) as on:
            await delete(on, "orders")
            await until_gone(on)
        assert on.decisions() == {"park": 2}
        assert on.places("a", "b") == ["ready in orders.dlq"] * 2

    run_scenario(scenario())


def test_a_message_that_had_not_begun_goes_with_its_queue() -> None:
    async def scenario() -> None:
        late = Late("quorum", ValueError("no"), concurrency=2)
        async with in_hand(late) as on:
            await on.publish("orders", message_id="c")
            await until(lambda: on.places("c") == ["unacked in orders"])
            await delete(on, "orders")
            await until_gone(on)
            late.go_on.set()
            await until(lambda: on.decisions() == {"park": 2})
        assert late.begun == 2
        assert on.places("a", "b", "c") == ["ready in orders.dlq"] * 2

    run_scenario(scenario())


@pytest.mark.parametrize("shape", ["requeue", "quorum"])
def test_a_message_that_can_not_be_parked_either_is_logged_by_name(shape: str) -> None:
    async def scenario() -> None:
        late = Late(shape, ValueError("no"))
        async with in_hand(late) as on:
            await delete(on, "orders", "orders.dlq")
            await until_gone(on)
            late.go_on.set()
            await until(lambda: on.notes.count("runtime.publish_failed") >= 4)  # tried again as long as there is hope
            assert on.notes.count("runtime.lost") == 0
        lost = [fields for name, fields in on.notes.heard if name == "runtime.lost"]
        assert sorted(str(one["message_id"]) for one in lost) == ["a", "b"]
        assert all(one["certain"] is True and "no queue took it" in str(one["why"]) for one in lost)
        assert on.decisions() == {}

    run_scenario(scenario(), timeout_s=30)


def test_a_held_message_is_parked_once_its_parking_exists_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_executor, "HELD_S_MAX", 0.0)

    async def scenario() -> None:
        late = Late("quorum", ValueError("no"))
        async with in_hand(late) as on:
            await delete(on, "orders", "orders.dlq")
            await until_gone(on)
            late.go_on.set()
            await until(lambda: on.notes.count("runtime.publish_failed") >= 4)
            channel = await on.client.channel()
            dlq = next(one for one in compiled(late.text).topology.queues if one.name == "orders.dlq")
            await channel.declare_queue(dlq.name, arguments=dlq.arguments.thaw())
            for binding in compiled(late.text).topology.bindings:
                if binding.destination == dlq.name:
                    await channel.bind_queue(dlq.name, binding.source, binding.routing_key)
            await until(lambda: on.decisions() == {"park": 2})
            assert on.places("a", "b") == ["ready in orders.dlq"] * 2

    run_scenario(scenario(), timeout_s=30)


def test_a_deleted_queue_without_a_parking_logs_what_was_lost_with_it() -> None:
    async def scenario() -> None:
        text = "queues: {orders: {retry: false}}"
        app = App(compiled(text))
        go_on = asyncio.Event()

        @app.consumer("orders")
        async def handle(_body: bytes) -> Succeeded:
            await go_on.wait()
            raise ValueError("no")

        async with stage(text, time="manual") as on:
            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.places("a") == ["unacked in orders"])
                await delete(on, "orders")
                await until_gone(on)
                go_on.set()
                await until(lambda: on.notes.count("runtime.lost"))
                assert on.notes.last("runtime.lost")["message_id"] == "a"

    run_scenario(scenario())


def test_a_success_after_its_queue_was_deleted_leaves_nothing_and_does_not_promise_a_return() -> None:
    async def scenario() -> None:
        late = Late("quorum", None)
        async with in_hand(late) as on:
            await delete(on, "orders")
            await until_gone(on)
            late.go_on.set()
            await until(lambda: on.notes.count("runtime.stale"))
            assert on.notes.last("runtime.stale")["comes_again"] == "no"
        assert on.places("a", "b") == []
        assert on.notes.count("runtime.lost") == 0

    run_scenario(scenario())
