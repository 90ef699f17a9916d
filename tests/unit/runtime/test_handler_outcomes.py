"""How a handler ends decides what happens to its message: on the ladder, in virtual time."""

import asyncio
import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from redrive import App, Message, Park, Requeue, RetryAfter
from redrive.core import Answered as HttpAnswer
from redrive.core import Fixed, Outcome, PlainMessage, Requeued, Rule, Situation
from redrive.records import explain
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until


@dataclass
class Order:
    id: int
    customer: str = "nobody"


class Teapot(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        super().__init__(f"status {status_code}")


def test_a_handler_that_returns_acks_its_message() -> None:
    seen: list[Any] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                seen.append(order)

            async with on.running(app):
                await on.publish("orders", b'{"id": 7, "more": true}', message_id="a")
                await until(lambda: seen and not on.places("a"))
            assert on.places("a") == []
            assert on.decisions() == {"ack": 1}

    run_scenario(scenario())
    assert seen == [Order(id=7)]


def test_a_handler_that_always_raises_is_run_after_each_delay_and_then_its_message_is_parked_with_its_history() -> None:
    runs: list[tuple[int, int, str, str]] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            begin_s = on.broker.now_s

            @app.consumer("orders")
            async def place(order: Order, message: Message) -> None:
                moment = round(on.broker.now_s - begin_s)
                runs.append((message.attempt, moment, message.exchange, message.routing_key))
                raise ValueError(f"no {order.id}")

            async with on.running(app):
                await on.publish("orders.new", b'{"id": 1}', exchange="shop", message_id="a", correlation_id="c")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            headers = parked.properties.headers
            assert parked.body == b'{"id": 1}'
            assert parked.properties.message_id == "a"
            assert parked.properties.correlation_id == "c"
            assert headers["x-retry-count"] == headers["x-final-retry-count"] == 2
            assert headers["x-final-error"] == "ValueError: no 1"
            assert headers["x-original-queue"] == "orders"
            assert headers["x-original-exchange"] == "shop"
            assert headers["x-original-routing-key"] == "orders.new"
            assert headers["x-redrive-reason"] == "attempts"
            assert [one["number"] for one in headers["x-redrive-history"]] == [1, 2, 3]
            assert 'raise ValueError(f"no {order.id}")' in headers["x-redrive-stack"]
            assert "redrive/runtime" not in headers["x-redrive-stack"]
            assert on.decisions() == {"retry": 2, "park": 1}

    run_scenario(scenario())
    assert runs == [(1, 0, "shop", "orders.new"), (2, 30, "shop", "orders.new"), (3, 330, "shop", "orders.new")]


def test_an_error_that_lets_nobody_set_anything_is_parked_like_any_other() -> None:
    @dataclass(frozen=True)
    class Refused(Exception):
        order: int

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                raise Refused(order.id)

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.headers["x-redrive-stack"].startswith(f'  File "{__file__}"')
            assert on.decisions() == {"retry": 2, "park": 1}

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_a_retry_that_succeeds_leaves_nothing_behind(profile: str) -> None:
    attempts: list[int] = []

    async def scenario() -> None:
        async with stage(profile=profile) as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order, message: Message) -> None:
                attempts.append(message.attempt)
                if message.attempt == 1:
                    raise ConnectionError("gone")

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.decisions()["ack"] == 1)
                await until(lambda: not on.places("a"))

    run_scenario(scenario())
    assert attempts == [1, 2]


def test_a_message_is_parked_at_once_when_the_handler_says_so_or_the_error_is_of_a_kind_that_parks() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", park_on=[KeyError, 501], rules=[Rule(ZeroDivisionError, "ack")])
            async def place(order: Order) -> None:
                if order.id == 1:
                    raise Park("not one of ours")
                if order.id == 2:
                    raise KeyError("name")
                if order.id == 3:
                    raise Teapot(501)
                if order.id == 4:
                    raise Teapot(404)
                raise ZeroDivisionError

            async with on.running(app):
                for number in range(1, 6):
                    await on.publish("orders", json.dumps({"id": number}).encode())
                await until(lambda: on.decisions() == {"park": 4, "ack": 1})
            parked = {got.properties.message_id: got.properties.headers for got in await on.take("orders.parked")}
            assert {name: headers["x-redrive-reason"] for name, headers in parked.items()} == {
                "m1": "park",
                "m2": "permanent",
                "m3": "status",
                "m4": "status",
            }
            assert parked["m1"]["x-final-error"] == "Park: not one of ours"
            assert parked["m4"]["x-final-status-code"] == 404
            assert [headers["x-final-retry-count"] for headers in parked.values()] == [0] * 4
            assert await on.take("orders") == []

    run_scenario(scenario())


def test_with_retry_on_everything_else_is_parked() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", retry_on=[ConnectionError])
            async def place(order: Order) -> None:
                raise ConnectionResetError if order.id == 1 else RuntimeError("no")

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await on.publish("orders", b'{"id": 2}', message_id="b")
                await until(lambda: on.decisions()["park"] == 2)
            reasons = [got.properties.headers["x-redrive-reason"] for got in await on.take("orders.parked")]
            assert reasons == ["permanent", "attempts"]

    run_scenario(scenario())


@pytest.mark.parametrize("body", [b"{", b'{"id": "seven"}', b"[]", b"\xff", b""])
def test_a_body_that_can_not_be_read_is_parked_at_once_and_no_handler_runs(body: bytes) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                raise AssertionError("must not run")

            async with on.running(app):
                await on.publish("orders", body, message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.body == body
            assert parked.properties.headers["x-redrive-reason"] == "undecodable"
            assert "x-redrive-history" not in parked.properties.headers
            told = on.notes.last("runtime.decided")
            assert (told["decision"], told["attempt"], told["handler_s"]) == ("park", None, None)

    run_scenario(scenario())


def test_an_undecodable_message_is_of_one_group_whichever_way_it_came_to_its_handler() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                raise AssertionError("it can't be decoded")

            redriven = {"x-redrive-id": "1hv7", "x-redriven-count": 1}
            async with on.running(app):
                await on.publish("orders", b"{not json", message_id="a")
                await on.publish("orders", b"{not json", message_id="b", headers=redriven)
                await until(lambda: on.places("a") == on.places("b") == ["ready in orders.parked"])
            first, again = await on.take("orders.parked")
            stacks = {one.properties.headers["x-redrive-stack"] for one in (first, again)}
            assert len(stacks) == 1  # one call of the codec, whether admission was needed or not
            groups = {
                explain(PlainMessage(queue="dlq", headers=one.properties.headers), dlq="dlq", now_ms=1).group_id
                for one in (first, again)
            }
            assert len(groups) == 1

    run_scenario(scenario())


def test_retry_after_waits_exactly_that_long_and_above_the_top_delay_again_without_running() -> None:
    moments: list[int] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            begin_s = on.broker.now_s

            @app.consumer("orders")
            async def place(order: Order, message: Message) -> None:
                moments.append(round(on.broker.now_s - begin_s))
                if message.attempt == 1:
                    raise RetryAfter("45s")
                if message.attempt == 2:
                    raise RetryAfter("12m")

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: len(moments) == 3 and not on.places("a"))
            assert on.decisions() == {"retry": 2, "defer": 2, "ack": 1}

    run_scenario(scenario())
    assert moments == [0, 45, 765]


def test_requeue_requeues_the_message_uncounted_as_often_as_it_is_raised() -> None:
    attempts: list[int] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order, message: Message) -> None:
                attempts.append(message.attempt)
                if len(attempts) < 8:
                    raise Requeue(0.001)

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: len(attempts) == 8 and not on.places("a"))
            assert on.decisions() == {"requeue": 7, "ack": 1}

    run_scenario(scenario())
    assert attempts == [1] * 8


def test_a_handler_that_takes_too_long_is_cancelled_and_retried() -> None:
    cancelled: list[bool] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", timeout=0.02)
            async def place(order: Order, message: Message) -> None:
                if message.attempt > 1:
                    raise TimeoutError("my own")
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.append(True)
                    raise

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert [one["error"] for one in parked.properties.headers["x-redrive-history"]] == [
                "TimeoutError: the handler did not end within 0.02 s",
                "TimeoutError: my own",
                "TimeoutError: my own",
            ]

    run_scenario(scenario())
    assert cancelled == [True]


def test_a_plain_function_runs_in_a_thread_and_decides_the_same_way() -> None:
    import threading

    threads: set[str] = set()

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", concurrency=3)
            def place(order: Order, message: Message) -> None:
                threads.add(threading.current_thread().name)
                if order.id == 2:
                    raise Park("thread")

            async with on.running(app):
                for number in (1, 2, 3):
                    await on.publish("orders", json.dumps({"id": number}).encode())
                await until(lambda: on.decisions() == {"ack": 2, "park": 1})
            assert on.places("m1", "m3") == []
            assert on.places("m2") == ["ready in orders.parked"]

    run_scenario(scenario())
    assert threads
    assert all(name.startswith("redrive handler of orders") for name in threads)


def test_a_thread_that_takes_too_long_is_given_up_and_its_message_retried() -> None:
    import threading

    release = threading.Event()

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", timeout=0.02)
            def place(order: Order, message: Message) -> None:
                if message.attempt == 1:
                    release.wait(5)

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.decisions() == {"retry": 1, "ack": 1})
                release.set()
                await until(lambda: not on.places("a"))

    run_scenario(scenario())


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), StopIteration()])
def test_odd_errors_are_failures_of_their_message_and_of_nothing_else(error: BaseException) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                if order.id == 1:
                    raise error

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await on.publish("orders", b'{"id": 2}', message_id="b")
                await until(lambda: on.decisions() == {"retry": 2, "park": 1, "ack": 1})
            assert on.places("a", "b") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_an_error_that_can_not_be_described_still_parks_its_message() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", park_on=[Broken])
            async def place(order: Order) -> None:
                raise Broken

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])

    run_scenario(scenario())


def test_a_huge_error_on_a_message_with_large_headers_is_parked_within_the_frame() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", park_on=[ValueError])
            async def place(order: Order) -> None:
                raise ValueError("é" * 500_000)

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a", headers={"big": "x" * 110_000})
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.headers["big"] == "x" * 110_000
            assert len(parked.header) < 125_000

    run_scenario(scenario())


def test_backoff_age_and_a_decision_of_ones_own_replace_the_queues() -> None:
    moments: list[tuple[str, int]] = []

    def own(outcome: Outcome, situation: Situation) -> Requeued | None:
        return Requeued(pause_ms=0) if isinstance(outcome, HttpAnswer) and outcome.status == 299 else None

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            begin_s = on.broker.now_s

            @app.consumer("orders", backoff=Fixed("10s"), age_max="15s", decide=own)
            async def place(order: Order, message: Message) -> HttpAnswer | None:
                moments.append((message.id or "", round(on.broker.now_s - begin_s)))
                if message.id == "odd":
                    return HttpAnswer(status=299) if len(moments) < 3 else None
                raise ValueError

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="odd")
                await until(lambda: on.decisions() == {"requeue": 2, "ack": 1})
                stamp = datetime.fromtimestamp(on.broker.now_s, UTC)
                await on.publish("orders", b'{"id": 1}', message_id="old", timestamp=stamp)
                await until(lambda: on.places("old") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.headers["x-redrive-reason"] == "age"

    run_scenario(scenario())
    assert moments == [("odd", 0)] * 3 + [("old", 0), ("old", 10)]


def test_middleware_wraps_every_run_in_order_and_may_fail_it() -> None:
    told: list[str] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.middleware
            async def outer(message: Message, proceed: Any) -> None:
                told.append(f"outer {message.id}")
                try:
                    await proceed()
                finally:
                    told.append("outer ends")

            async def inner(message: Message, proceed: Any) -> None:
                told.append("inner")
                if message.id == "b":
                    raise Park("middleware")
                await proceed()

            @app.consumer("orders", middleware=[inner])
            async def place(order: Order) -> None:
                told.append(f"handler {order.id}")

            async with on.running(app):
                await on.publish("orders", b'{"id": 1}', message_id="a")
                await until(lambda: on.decisions()["ack"] == 1)
                await on.publish("orders", b'{"id": 2}', message_id="b")
                await until(lambda: on.places("b") == ["ready in orders.parked"])

    run_scenario(scenario())
    assert told == ["outer a", "inner", "handler 1", "outer ends", "outer b", "inner", "outer ends"]


def test_no_more_handlers_run_at_once_than_allowed_and_they_begin_in_order() -> None:
    begun: list[int] = []
    most = 0

    async def scenario() -> None:
        nonlocal most
        async with stage() as on:
            app = App(compiled())
            now = 0

            @app.consumer("orders", concurrency=2, prefetch=20)
            async def place(order: Order) -> None:
                nonlocal now, most
                begun.append(order.id)
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.002)
                now -= 1

            async with on.running(app):
                for number in range(20):
                    await on.publish("orders", json.dumps({"id": number}).encode())
                await until(lambda: on.decisions()["ack"] == 20)
            assert on.places(*(f"m{number}" for number in range(1, 21))) == []

    run_scenario(scenario())
    assert most == 2
    assert begun == list(range(20))


def test_several_queues_in_one_app_do_not_hold_each_other_up() -> None:
    text = """
queues:
  fast: {retry: [30s]}
  slow: {retry: [30s]}
"""
    done: list[str] = []

    async def scenario() -> None:
        async with stage(text) as on:
            app = App(compiled(text))
            release = asyncio.Event()

            @app.consumer("slow", prefetch=1)
            async def crawl(body: bytes) -> None:
                await release.wait()
                done.append("slow")

            @app.consumer("fast")
            async def dash(body: str) -> None:
                done.append(body)

            async with on.running(app):
                await on.publish("slow", b"1")
                await on.publish("fast", b"text")
                await until(lambda: done == ["text"])
                release.set()
                await until(lambda: len(done) == 2)

    run_scenario(scenario())
    assert done == ["text", "slow"]


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
