"""Runs a test's coroutine with a timeout, and fails on exceptions that the event loop reports afterwards."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

SCENARIO_S_MAX = 30.0


def run_scenario(scenario: Coroutine[Any, Any, None], *, timeout_s: float = SCENARIO_S_MAX) -> None:
    """Raises what the scenario raises, TimeoutError if it hangs; fails on exceptions that nobody retrieved."""
    complaints: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(f"{context}"))
        async with asyncio.timeout(timeout_s):
            await scenario
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(main())
    gc.collect()
    assert not complaints, complaints


async def wait_until(condition: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    """Waits until the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions are of many kinds, and a deadline bounds the wait
            await asyncio.sleep(0.001)


async def ended(*awaitables: Awaitable[Any], timeout_s: float = 10.0) -> list[Any]:
    """The results, exceptions among them; raises TimeoutError instead of waiting for ever."""
    async with asyncio.timeout(timeout_s):
        return await asyncio.gather(*awaitables, return_exceptions=True)


class Notes:
    """An observer that keeps what is reported to it."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, object]]] = []

    def note(self, event: str, /, **fields: object) -> None:
        self.heard.append((event, fields))

    def count(self, event: str) -> int:
        return sum(1 for name, _ in self.heard if name == event)

    def last(self, event: str) -> dict[str, object]:
        return [fields for name, fields in self.heard if name == event][-1]
