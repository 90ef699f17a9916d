"""Fixtures for the tests of dead letters."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from redrive.stores import open_store
from redrive.wire import Properties
from tests.unit.deadletters.arrivals import arrival, store_arrivals
from tests.unit.deadletters.services_stage import Play, ServicesStage


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(scenario: Callable[[ServicesStage], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), await open_store(f"sqlite:///{tmp_path / 'dead-letters.db'}") as store:
                arrivals = [arrival(Properties.of(message_id=f"m{n}"), b'{"n": %d}' % n) for n in range(3)]
                await store_arrivals(store, arrivals)
                await scenario(ServicesStage(store, tuple(one.id for one in arrivals)))

        asyncio.run(main())

    return run
