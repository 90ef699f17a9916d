"""One clock decides what several instances share: the database's. An instance whose own is off says so."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from redrive.core import NULL_OBSERVER
from redrive.deadletters.held_leases import HeldLease, LeaseHolder
from redrive.records import Selection
from redrive.stores import Store, open_store
from redrive.stores.database_clock import ASKED_AGAIN_MS, ServerClock
from redrive.wiring import dead_letter_service
from tests.unit.client.scenario import Notes
from tests.unit.stores.arrivals import collect, make_arrival
from tests.unit.stores.conftest import Run

AHEAD_MS = 35_000
HOUR_MS = 3_600_000
_really_ns = time.time_ns


def machine_ms() -> int:
    return _really_ns() // 1_000_000


@pytest.fixture
def clock_ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets this machine's clock, as Python sees it."""

    def ahead(by_ms: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: _really_ns() + by_ms * 1_000_000)

    return ahead


def test_an_instance_whose_clock_is_ahead_takes_no_lease_that_is_held(store: Store, run: Run) -> None:
    async def scenario() -> None:
        def hold(owner: str, by_ms: int) -> AbstractAsyncContextManager[HeldLease | None]:
            holder = LeaseHolder(
                store=store,
                owner=owner,
                ttl_s=30.0,
                patience_s=1.0,
                clock_ms=lambda: machine_ms() + by_ms,
                observer=NULL_OBSERVER,
            )
            return holder.hold("operation:1")

        async with hold("right", 0) as mine:
            assert mine is not None
            for by_ms in (AHEAD_MS, -AHEAD_MS, HOUR_MS):
                async with hold("off", by_ms) as theirs:
                    assert theirs is None
            await mine.renew()
        # And one that is behind does not leave a lease that has run out before it began.
        async with hold("behind", -HOUR_MS) as behind:
            assert behind is not None
            async with hold("right", 0) as mine:
                assert mine is None

    run(scenario())


def test_what_is_written_down_has_the_databases_time(
    store_url: str, run: Run, clock_ahead: Callable[[int], None]
) -> None:
    async def scenario() -> None:
        if not store_url.startswith("postgresql"):
            return  # a file has this machine's clock, and no other
        clock_ahead(HOUR_MS)
        notes = Notes()
        async with await open_store(store_url, observer=notes) as store:
            assert abs(store.clock_ms() - machine_ms()) < 1_000
            assert abs(store.clock_off_ms - HOUR_MS) < 1_000
            told = [fields for event, fields in notes.heard if event == "store.clock_off"]
            assert [abs(int(str(one["off_ms"])) - HOUR_MS) < 1_000 for one in told] == [True]
            (id,) = await collect(store, make_arrival(1))
            await dead_letter_service(store).resolve(Selection(ids=(id,)), who="ada", why="done")
            entries, _ = await store.audit.page(10)
            assert abs(entries[0].at_ms - machine_ms()) < 5_000

    run(scenario())


def test_both_kinds_of_database_know_the_time(store: Store, run: Run) -> None:
    async def scenario() -> None:
        before = machine_ms()
        lease = await store.leases.acquire("auto-retry", "ada", ttl_ms=0)
        assert lease is not None
        assert before - 1_000 <= lease.until_ms <= machine_ms() + 1_000
        await asyncio.sleep(0)
        assert abs(store.clock_ms() - machine_ms()) < 1_000
        assert abs(store.clock_off_ms) < 1_000

    run(scenario())


def test_a_servers_clock_is_counted_on_asked_again_and_told_about_when_it_goes_off() -> None:
    steady, wall, told = 1_000.0, 500_000, list[int]()
    clock = ServerClock(report=told.append, steady=lambda: steady, wall=lambda: wall)
    assert (clock.now_ms(), clock.is_to_be_asked) == (500_000, True)
    begun = clock.begin()
    steady += 100
    clock.learn(900_000, begun)  # at some moment of these 100 ms
    assert (clock.now_ms(), clock.is_to_be_asked) == (900_050, False)
    assert told == [500_000 - 900_050]
    steady += 5_000
    assert clock.now_ms() == 905_050
    wall = 7  # whoever sets this machine's clock changes nothing
    assert clock.now_ms() == 905_050
    steady += ASKED_AGAIN_MS
    assert clock.is_to_be_asked
    # An answer that took long says little about the present.
    begun = clock.begin()
    steady += 60_000
    clock.learn(1, begun)
    assert clock.now_ms() == 975_050
    assert clock.is_to_be_asked
    wall = 975_000
    clock.learn(975_050, clock.begin())
    assert told[1:] == [-50]
