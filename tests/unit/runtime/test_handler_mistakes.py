"""Mistakes in a handler that would ack an unhandled message, or stop the app, fail the message with a clear error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from redrive import App, Message
from redrive.runtime.handler_call import build_call
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

Proceed = Callable[[], Awaitable[Any]]


def parked_error(app: App) -> str:
    """Runs the app on one message that fails at every attempt; what its parked copy says was wrong."""
    found: list[str] = []

    async def scenario() -> None:
        async with stage() as on:
            async with on.running(app):
                await on.publish("orders", b"{}", message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            assert on.decisions() == {"retry": 2, "park": 1}
            found.extend(str(one.properties.headers["x-final-error"]) for one in await on.take("orders.parked"))

    run_scenario(scenario())
    (error,) = found
    return error


async def forgets(message: Message, proceed: Proceed) -> None:
    proceed()


async def returns_it(message: Message, proceed: Proceed) -> Any:
    return proceed()


async def forgets_once(message: Message, proceed: Proceed) -> None:
    proceed()
    await proceed()


@pytest.mark.parametrize("middleware", [forgets, returns_it])
@pytest.mark.parametrize("on_app", [True, False])
def test_a_middleware_that_does_not_await_proceed_fails_the_message(middleware: Any, on_app: bool) -> None:
    app, runs = App(compiled()), []
    if on_app:
        app.middleware(middleware)

    @app.consumer("orders", middleware=() if on_app else middleware)
    async def place(body: bytes) -> None:
        runs.append(body)

    assert parked_error(app) == (
        f"RuntimeError: middleware {middleware.__name__} called proceed() and returned before it had ended; write"
        " `await proceed()`"
    )
    assert runs == []


def call_with(middleware: Any, handler: Any) -> Awaitable[Any]:
    call = build_call(handler, takes_message=False, is_async=True, middleware=(middleware,))
    return call(b"", object())  # type: ignore[arg-type]


def test_a_handler_left_in_a_task_fails_the_message() -> None:
    release = asyncio.Event()
    tasks: list[asyncio.Future[Any]] = []
    runs: list[bytes] = []

    async def handler(body: bytes) -> None:
        runs.append(body)
        await release.wait()

    async def begun(message: Message, proceed: Proceed) -> None:
        tasks.append(asyncio.ensure_future(proceed()))
        await asyncio.sleep(0)

    async def not_begun(message: Message, proceed: Proceed) -> None:
        tasks.append(asyncio.ensure_future(proceed()))

    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="begun called proceed"):
            await call_with(begun, handler)
        assert runs == [b""]
        release.set()
        await tasks.pop()
        with pytest.raises(RuntimeError, match="not_begun called proceed"):
            await call_with(not_begun, handler)
        # It has not begun, so it never does: its message is on its way to a retry.
        with pytest.raises(RuntimeError, match="already awaited"):
            await tasks.pop()
        assert runs == [b""]

    asyncio.run(scenario())


def test_a_proceed_that_is_forgotten_beside_one_that_is_awaited_fails_too() -> None:
    async def handler(body: bytes) -> None: ...

    async def scenario() -> None:
        with pytest.raises(RuntimeError, match="forgets_once called proceed"):
            await call_with(forgets_once, handler)

    asyncio.run(scenario())


def test_what_a_middleware_awaits_in_its_own_way_has_ended() -> None:
    async def fails(body: bytes) -> None:
        raise KeyError

    async def waits(body: bytes) -> None:
        await asyncio.Event().wait()

    async def swallows(message: Message, proceed: Proceed) -> str:
        try:
            await proceed()
        except KeyError:
            await asyncio.gather(proceed(), return_exceptions=True)
        return "swallowed"

    async def hurries(message: Message, proceed: Proceed) -> str:
        for timeout_s in (0, 0.001):
            try:
                await asyncio.wait_for(proceed(), timeout_s)
            except TimeoutError:
                pass
        return "late"

    assert asyncio.run(_awaited(call_with(swallows, fails))) == "swallowed"
    assert asyncio.run(_awaited(call_with(hurries, waits))) == "late"


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work


def test_a_middleware_that_does_not_proceed_has_done_the_work() -> None:
    runs: list[bytes] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.middleware
            async def once(message: Message, proceed: Proceed) -> None:
                if message.id != "seen":
                    await proceed()

            @app.consumer("orders")
            async def place(body: bytes) -> None:
                runs.append(body)

            async with on.running(app):
                await on.publish("orders", b"seen", message_id="seen")
                await on.publish("orders", b"new", message_id="new")
                await until(lambda: on.decisions()["ack"] == 2)
            assert on.places("seen", "new") == []

    run_scenario(scenario())
    assert runs == [b"new"]


def test_publishing_blocking_in_the_event_loop_fails_the_message_and_stops_nobody() -> None:
    app = App(compiled())

    @app.consumer("orders")
    async def place(body: bytes, message: Message) -> None:
        message.publish_blocking("", "orders", b"x")

    assert parked_error(app) == (
        "RuntimeError: publish_blocking() would stop the event loop for good; use `await message.publish(...)` in an"
        " async handler"
    )


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("made", [generator, async_generator])
def test_a_plain_function_that_returns_a_generator_fails_the_message(made: Callable[[], Any]) -> None:
    app = App(compiled())
    app.consumer("orders")(lambda body: made())
    assert parked_error(app) == "TypeError: the handler returned a generator, and nothing of it has run"
