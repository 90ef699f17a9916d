"""The ladder's real delays, lived through by an unmodified app in virtual time (bench.embedded tells the real ones)."""

import asyncio

import pytest

from redrive.embedded import EmbeddedBroker
from tests.unit.runtime.ladder_app import ORDER, PARKED, climb


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_an_app_that_fails_four_times_parks_after_35_minutes_and_a_half(profile: str) -> None:
    runs_s: list[int] = []

    async def scenario() -> None:
        async with EmbeddedBroker(profile, time="automatic") as broker:
            began_s = broker.now_s
            await climb(broker.url, lambda: runs_s.append(round(broker.now_s - began_s)))
            assert [place.queue for place in broker.whereabouts(ORDER)] == [PARKED]
            waits = ("orders.wait.30s", "orders.wait.5m", "orders.wait.30m")
            assert broker.depths() == {"orders": 0, PARKED: 1, **dict.fromkeys(waits, 0)}

    asyncio.run(scenario())
    assert runs_s == [0, 30, 330, 2130]
