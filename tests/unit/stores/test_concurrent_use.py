"""Several collectors, redrivers and people at one store: nobody is locked out, nothing is sent or kept twice."""

import asyncio
from collections import Counter

from redrive.records import Filter, ItemState, NewOperation, OperationKind, Selection, SendResult, make_id
from redrive.stores import Store, open_store
from tests.unit.stores.arrivals import NOW_MS, claim, counts_anew, counts_kept, database_of, make_arrival
from tests.unit.stores.conftest import Run

HANDS, HAND = 6, 20


async def collect_queue(store: Store, number: int) -> None:
    """A collector of a queue of its own; groups, topics and the rest it shares with the others."""
    dlq = f"dlq {number}"
    lease = await store.leases.acquire(f"collect:{dlq}", f"collector {number}", ttl_ms=10**6)
    assert lease is not None
    for hand in range(HANDS):
        first = (number * HANDS + hand) * HAND
        arrivals = [
            make_arrival(first + n, dlq=dlq, group_id=f"g{(first + n * 7) % 5}", queue=f"q{n % 3}") for n in range(HAND)
        ]
        batch_id = f"{number}/{hand}"
        await store.batches.store(arrivals[:: (-1) ** number], lease=lease, batch_id=batch_id, now_ms=NOW_MS)
        await store.batches.close(batch_id)


async def redrive_all(store: Store, number: int, given_out: Counter[str]) -> None:
    """A redriver of its own operation, over everything that may be redriven."""
    for turn in range(4):
        id = make_id(NOW_MS, 10_000 + number * 100 + turn)
        selection = Selection(filter=Filter())
        await store.operations.create(
            NewOperation(kind=OperationKind.REDRIVE, selection=selection), id=id, now_ms=NOW_MS
        )
        lease = await claim(store, id, f"runner {number}")
        while taken := await store.operations.take(id, lease, limit=15, now_ms=NOW_MS):
            given_out.update(one.id for one in taken)
            ends = [SendResult(id=one.id, state=ItemState.SENT) for one in taken]
            await store.operations.record(id, lease, ends, now_ms=NOW_MS)
        operation = await store.operations.get(id)
        assert operation is not None
        assert (operation.state.value, operation.left) == ("done", 0)


async def look_and_resolve(store: Store) -> None:
    """A person who resolves what is pending, a little at a time, and looks at the counts."""
    for _ in range(5):
        await store.letters.resolve(Selection(filter=Filter(), limit=3), who="ada", why="", now_ms=NOW_MS)
        await store.stats.totals(now_ms=NOW_MS)
        await store.operations.resolve_silent(now_ms=NOW_MS, limit=10)


def test_collectors_redrivers_and_people_at_once(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        stores = [await open_store(store_url) for _ in range(2)]
        given_out: Counter[str] = Counter()
        async with asyncio.TaskGroup() as together:
            for number in range(4):
                store = stores[number % 2]
                together.create_task(collect_queue(store, number))
                together.create_task(redrive_all(store, number, given_out))
                together.create_task(look_and_resolve(store))
        await redrive_all(stores[0], 9, given_out)
        assert await counts_kept(stores[0]) == await counts_anew(stores[0])
        async with database_of(stores[0]).read() as tx:
            rows: dict[str, str] = dict(await tx.rows("SELECT id, status FROM letters"))
        assert len(rows) == 4 * HANDS * HAND
        assert set(rows.values()) <= {"retrying", "resolved"}
        assert [id for id, times in given_out.items() if times > 1] == []
        assert {id for id, status in rows.items() if status == "retrying"} == set(given_out)
        for store in stores:
            await store.close()

    run(scenario())
