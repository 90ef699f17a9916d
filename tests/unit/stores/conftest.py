"""One suite for both stores: `store` is a new, empty one on SQLite and on PostgreSQL; `run` runs a scenario with it.

A store belongs to one event loop, so both fixtures share a runner.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from redrive.stores import Store, open_store

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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be, on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(store_url: str, run: Run) -> Iterator[Store]:
    """A new, empty store."""
    opened: Store = run(open_store(store_url))
    yield opened
    run(opened.close())
