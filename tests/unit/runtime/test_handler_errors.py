"""What a handler raises that is no ordinary error: panics, GeneratorExit, its own cancellation, and the runtime's."""

import asyncio

import pytest

from redrive import App
from redrive.runtime.handler_errors import read_error
from redrive.runtime.settlement import abandoned
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until


class Panic(BaseException):
    """As libraries written in Rust raise it: no Exception."""


@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_raises_what_is_no_exception_is_retried_and_parked_like_any_other(plain: bool) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", concurrency=None if plain else 1)
            async def place(body: bytes) -> None:
                raise Panic("a library gave up")

            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 2, "park": 1})
            assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


@pytest.mark.parametrize("kind", ["plain", "limited", "thread"])
def test_a_generator_exit_of_a_handlers_own_is_an_error_like_any_other(kind: str) -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            def fail(_body: bytes) -> None:
                raise GeneratorExit

            async def place(body: bytes) -> None:
                fail(body)

            app.consumer("orders", concurrency=1 if kind == "limited" else None)(fail if kind == "thread" else place)
            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"retry": 2, "park": 1})
            assert on.places("a") == ["ready in orders.parked"]

    run_scenario(scenario())


def test_a_run_that_is_closed_from_outside_is_no_error_of_its_handler() -> None:
    async def handler() -> None:
        await asyncio.Event().wait()

    async def boundary() -> None:
        try:
            await handler()
        except BaseException as error:  # noqa: BLE001 - as the runtime's own
            read_error(error, now_ms=0, timeout_ms=None)

    async def scenario() -> None:
        run = boundary()
        run.send(None)
        run.close()  # raises RuntimeError if GeneratorExit does not come through

    run_scenario(scenario())


@pytest.mark.parametrize("limited", [True, False])
def test_the_message_of_a_handler_that_cancels_its_own_task_is_requeued(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abandoned, "_REQUEUE_S", 0.01)

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            runs = 0

            @app.consumer("orders", concurrency=1 if limited else None)
            async def place(body: bytes) -> None:
                nonlocal runs
                runs += 1
                if runs == 1:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                    await asyncio.sleep(0)

            await on.publish("orders", message_id="a")
            async with on.running(app):
                await until(lambda: on.decisions() == {"ack": 1})
                await until(lambda: not on.places("a"))
            assert runs == 2

    run_scenario(scenario())
