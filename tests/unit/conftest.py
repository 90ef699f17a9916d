"""What unit tests of several rooms share: an event loop, and scenarios that end in time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

SCENARIO_S_MAX = 60.0

Result = TypeVar("Result")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop for the test."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def run(runner: asyncio.Runner) -> Run:
    """Runs a scenario to its end, which must come in time."""

    def run_scenario(scenario: Coroutine[Any, Any, Result]) -> Result:
        async def in_time() -> Result:
            async with asyncio.timeout(SCENARIO_S_MAX):
                return await scenario

        return runner.run(in_time())

    return run_scenario
