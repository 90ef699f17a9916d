"""Leases: one holder at a time, and a stale one can do nothing."""

import asyncio

import pytest

from redrive.stores import LeaseLost, Store
from tests.unit.stores.arrivals import NOW_MS, collecting_lease, make_arrival, run_out
from tests.unit.stores.conftest import Run


def test_a_lease_is_one_owners_until_it_runs_out(store: Store, run: Run) -> None:
    async def scenario() -> None:
        mine = await store.leases.acquire("auto-retry", "ada", ttl_ms=60_000)
        assert mine is not None
        assert await store.leases.acquire("auto-retry", "bob", ttl_ms=60_000) is None
        assert await store.leases.held() == (mine,)
        await run_out(store, mine)
        assert await store.leases.held() == ()
        theirs = await store.leases.acquire("auto-retry", "bob", ttl_ms=60_000)
        assert theirs is not None
        assert theirs.fence > mine.fence
        with pytest.raises(LeaseLost, match="ada lost the lease auto-retry"):
            await store.leases.renew(mine, ttl_ms=1_000)
        await store.leases.release(mine)
        assert await store.leases.held() == (theirs,)

    run(scenario())


def test_a_lease_that_ran_out_and_nobody_took_can_be_renewed(store: Store, run: Run) -> None:
    async def scenario() -> None:
        mine = await store.leases.acquire("auto-retry", "ada", ttl_ms=0)
        assert mine is not None
        assert await store.leases.held() == ()
        renewed = await store.leases.renew(mine, ttl_ms=60_000)
        assert renewed.fence == mine.fence
        assert renewed.until_ms >= mine.until_ms + 60_000
        assert await store.leases.held() == (renewed,)

    run(scenario())


def test_a_released_lease_is_free_at_once_and_its_holder_has_it_no_more(store: Store, run: Run) -> None:
    async def scenario() -> None:
        mine = await collecting_lease(store, "ada")
        await store.leases.release(mine)
        with pytest.raises(LeaseLost):
            await store.leases.renew(mine, ttl_ms=1_000)
        with pytest.raises(LeaseLost):
            await store.batches.store([make_arrival(1)], lease=mine, batch_id="b", now_ms=NOW_MS)
        assert await store.letters.get(make_arrival(1).id) is None
        theirs = await collecting_lease(store, "bob")
        assert theirs.fence > mine.fence

    run(scenario())


def test_the_same_owner_gets_its_lease_again_with_a_new_fence(store: Store, run: Run) -> None:
    async def scenario() -> None:
        first = await collecting_lease(store, "ada")
        again = await collecting_lease(store, "ada")
        assert again.fence == first.fence + 1
        with pytest.raises(LeaseLost):
            await store.leases.renew(first, ttl_ms=1_000)

    run(scenario())


def test_of_many_at_once_one_gets_the_lease(store: Store, run: Run) -> None:
    async def scenario() -> None:
        asked = [store.leases.acquire("auto-retry", f"o{n}", ttl_ms=60_000) for n in range(8)]
        got = [lease for lease in await asyncio.gather(*asked) if lease is not None]
        assert len(got) == 1
        assert await store.leases.held() == tuple(got)

    run(scenario())


def test_a_stolen_lease_keeps_its_old_holder_from_storing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        mine = await collecting_lease(store, "ada")
        await run_out(store, mine)
        theirs = await store.leases.acquire(mine.name, "bob", ttl_ms=60_000)
        assert theirs is not None
        with pytest.raises(LeaseLost):
            await store.batches.store([make_arrival(1)], lease=mine, batch_id="b", now_ms=NOW_MS)
        stored = await store.batches.store([make_arrival(1)], lease=theirs, batch_id="b", now_ms=NOW_MS)
        assert stored.inserted == (make_arrival(1).id,)

    run(scenario())
