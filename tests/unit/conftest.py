"""What unit tests of several rooms share: an event loop, scenarios that end in time, and an empty store to copy."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from redrive.stores import open_store

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


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store's file. Each test has a copy, for to make one takes longer than many a test."""
    file = tmp_path_factory.mktemp("empty") / "redrive.db"

    async def make() -> None:
        await (await open_store(f"sqlite:///{file}")).close()

    asyncio.run(make())
    return file
