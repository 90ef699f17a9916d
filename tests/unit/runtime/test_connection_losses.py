"""Connections that a living process lost: which message is charged, and how a handler that blocks the loop is found."""

import asyncio
import inspect
import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from redrive import App, wire
from redrive.client import Delivery
from redrive.runtime import loop_watch
from redrive.runtime.admission import EXCLUSIVE_WEIGHT_MAX
from redrive.runtime.connection_losses import FORGIVEN_MAX, ConnectionLosses, LossFault
from redrive.runtime.loop_watch import LoopWatch, delivery_in
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

pytestmark = pytest.mark.slow


class Session:
    queue = "orders"


def delivery(name: str, body: bytes = b"{}") -> Delivery:
    header = wire.Properties.of(message_id=name).raw
    return Delivery(1, "c", 1, True, ("", "orders"), header, body, Session())


def test_a_message_that_blocked_the_loop_is_charged_once_and_all_others_are_forgiven() -> None:
    losses = ConnectionLosses()
    losses.blame(delivery("guilty"))
    assert losses.judge("orders", delivery("neighbour")) is LossFault.NONE
    assert losses.judge("orders", delivery("guilty", b"another message")) is LossFault.NONE
    assert losses.judge("orders", delivery("guilty")) is LossFault.ITS_OWN
    assert losses.judge("orders", delivery("guilty")) is LossFault.NONE


def test_blame_is_forgotten_after_a_while() -> None:
    now_s = 0.0
    losses = ConnectionLosses(now_s=lambda: now_s)
    losses.blame(delivery("guilty"))
    now_s = 3600.0
    assert losses.judge("orders", delivery("guilty")) is LossFault.NONE


def test_forgiveness_ends_for_one_message_and_not_for_the_others() -> None:
    losses = ConnectionLosses()
    for _ in range(FORGIVEN_MAX):
        assert losses.judge("orders", delivery("again")) is LossFault.NONE
    assert losses.judge("orders", delivery("again")) is LossFault.MAYBE
    assert losses.judge("orders", delivery("other")) is LossFault.NONE


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_message_that_costs_the_connection_each_time_ends_parked_and_its_neighbours_do_not(
    kind: str, is_seen: bool
) -> None:
    text = f"queues: {{orders: {{type: {kind}, retry: {{shape: per-queue}}}}}}"
    runs: Counter[bytes] = Counter()
    done: set[bytes] = set()

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                runs[body] += 1
                if body == b"block":
                    if is_seen:
                        runner._note_block(delivery_in(inspect.currentframe()), 60.0)
                    runner._consuming._connection.give_up("missed heartbeats")  # type: ignore[union-attr]
                await asyncio.sleep(0.05)
                done.add(body)

            async with on.running(app) as runner:
                names = [await on.publish("orders", body) for body in (b"one", b"block", b"two", b"three")]
                await until(lambda: on.decisions()["park"] == 1, timeout_s=60)
                await until(lambda: on.places(*names) == ["ready in orders.dlq"], timeout_s=60)
            (parked,) = await on.take("orders.dlq")
            assert parked.body == b"block"
            assert parked.properties.headers["x-redrive-reason"] == "crashes"

    run_scenario(scenario(), timeout_s=90)
    assert done >= {b"one", b"two", b"three"}
    # Seen: twice beside others, once alone. Unseen: forgiven, then counted as for a process that left no word.
    if is_seen:
        assert runs[b"block"] == 3
    else:
        assert FORGIVEN_MAX < runs[b"block"] <= FORGIVEN_MAX + 2 + EXCLUSIVE_WEIGHT_MAX


def sleeping(_body: bytes) -> None:
    time.sleep(1.6)


def matching(_body: bytes) -> None:
    """One call of C that keeps every other thread out, the watching one too."""
    size, took_s = 16, 0.0
    while took_s < 1.6:
        began_s = time.monotonic()
        re.match(r"(a+)+$", "a" * size + "b")
        took_s = time.monotonic() - began_s
        size += 1


def counting(_body: bytes) -> None:
    until_s = time.monotonic() + 1.6
    while time.monotonic() < until_s:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("work", [sleeping, matching, counting])
def test_the_delivery_whose_handler_holds_up_the_loop_is_named(work: Callable[[bytes], None]) -> None:
    seen: list[tuple[str | None, float]] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                await asyncio.sleep(0)
                if body == b"block":
                    work(body)
                await asyncio.sleep(0.01)

            async with on.running(app):
                watch = LoopWatch(
                    lambda: 0.3,
                    lambda found, blocked_s: seen.append((found.properties.message_id if found else None, blocked_s)),
                )
                watch.start()
                for number in range(3):
                    await on.publish("orders", b"fine", message_id=f"fine{number}")
                    await on.publish("orders", b"block", message_id="block")
                await until(lambda: on.decisions() == {"ack": 6}, timeout_s=50)
                watch.stop()

    run_scenario(scenario(), timeout_s=60)
    assert seen
    assert {name for name, _ in seen} == {"block"}
    assert all(blocked_s >= 0.3 for _, blocked_s in seen)


def test_a_loop_that_answers_is_never_reported() -> None:
    async def scenario() -> None:
        seen: list[object] = []
        watch = LoopWatch(lambda: 0.5, lambda *what: seen.append(what))
        watch.start()
        await asyncio.sleep(2.5)
        watch.stop()
        assert seen == []
        assert not any(one.name == "redrive loop watch" and not one.daemon for one in threading.enumerate())

    asyncio.run(scenario())


def test_a_loop_that_has_always_answered_is_watched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "_ASK_EVERY_S", 0.005)
    monkeypatch.setattr(loop_watch, "_LOOK_S_LEAST", 0.01)
    asked: list[float] = []
    seen: list[float] = []

    def patience_s() -> float:
        asked.append(time.monotonic())
        return 0.05

    async def scenario() -> None:
        watch = LoopWatch(patience_s, lambda _found, blocked_s: seen.append(blocked_s))
        watch.start()
        await until(lambda: len(asked) > 3)
        time.sleep(0.2)  # noqa: ASYNC251 - this is what it watches for
        await until(lambda: seen)
        watch.stop()

    asyncio.run(scenario())
    assert min(seen) >= 0.05
