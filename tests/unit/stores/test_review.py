"""What a review of the store found: each was a way to send, keep, or lose a dead letter that nobody had asked for."""

from pathlib import Path

import pytest

from redrive.records import Filter, ItemState, OperationKind, RetryRule, Selection, SendResult, make_id
from redrive.stores import Store, StoreUnavailable, open_store
from tests.unit.stores.arrivals import (
    NOW_MS,
    begin,
    collect,
    collecting_lease,
    counts_anew,
    counts_kept,
    database_of,
    make_arrival,
    redrive,
    statuses,
)
from tests.unit.stores.conftest import Run

LATER_MS = NOW_MS + 10_000_000
OTHER = make_id(NOW_MS, 1 << 21)


def test_an_import_is_not_due_in_a_store_that_has_no_rule_for_it(store: Store, run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*"), now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1))
        exported = [one async for one in store.letters.stream(Filter(), now_ms=NOW_MS)]
        assert exported[0].letter.due_at_ms is not None
        async with await open_store(f"sqlite:///{tmp_path}/ruled.db") as ruled:
            await ruled.rules.set(RetryRule(scope="queue:orders"), now_ms=NOW_MS)
            await ruled.letters.insert_exported(exported, who="ada", now_ms=NOW_MS)
            due = await ruled.operations.create_due(id=OTHER, who="auto", now_ms=LATER_MS, limit=9)
            assert due is not None
            assert due.total == 1
        async with await open_store(f"sqlite:///{tmp_path}/bare.db") as bare:
            await bare.letters.insert_exported(exported, who="ada", now_ms=NOW_MS)
            assert await bare.operations.create_due(id=OTHER, who="auto", now_ms=LATER_MS, limit=9) is None
            assert await statuses(bare, *ids) == ["pending"]

    run(scenario())


def test_one_exported_while_it_was_sent_is_in_doubt_where_nobody_sends_it(
    store: Store, run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, *ids)
        assert len(await store.operations.take(operation_id, lease, limit=9, now_ms=NOW_MS)) == 1
        exported = [one async for one in store.letters.stream(Filter(), now_ms=NOW_MS)]
        async with await open_store(f"sqlite:///{tmp_path}/other.db") as other:
            await other.letters.insert_exported(exported, who="ada", now_ms=NOW_MS)
            assert await statuses(other, *ids) == ["in_doubt"]
            assert await counts_kept(other) == await counts_anew(other)
            assert (await other.letters.reopen(Selection(ids=ids), who="ada", why="", now_ms=NOW_MS)).done == 1

    run(scenario())


def test_what_a_cancelled_operation_could_not_send_is_skipped_and_due_again(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*"), now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        await store.operations.cancel(operation_id, who="ada", now_ms=NOW_MS)
        unsent = SendResult(id=ids[0], state=ItemState.QUEUED, reason="no connection")
        ended = await store.operations.record(operation_id, lease, [unsent], now_ms=NOW_MS)
        assert (ended.state, ended.left, ended.skipped, ended.ended_at_ms) == ("cancelled", 0, 2, NOW_MS)
        assert await statuses(store, *ids) == ["pending", "pending"]
        due = await store.operations.create_due(id=OTHER, who="auto", now_ms=LATER_MS, limit=9)
        assert due is not None
        assert due.total == 2

    run(scenario())


def test_auto_retry_leaves_the_dead_letters_of_other_vhosts_to_others(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*"), now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1), make_arrival(2, vhost="other"))
        due = await store.operations.create_due(id=OTHER, who="auto", now_ms=LATER_MS, limit=9, vhost="other")
        assert due is not None
        items, _ = await store.operations.items(due.id, 9)
        assert [one.letter_id for one in items] == [ids[1]]
        assert await store.operations.waiting(vhost="/") == ()
        assert await store.operations.waiting(vhost="other") == (due.id,)
        assert await store.operations.waiting() == (due.id,)

    run(scenario())


def test_what_is_given_back_is_in_no_open_batch_any_more(store: Store, run: Run) -> None:
    async def scenario() -> None:
        arrivals = [make_arrival(number) for number in (1, 2, 3)]
        lease = await collecting_lease(store)
        await store.batches.store(arrivals, lease=lease, batch_id="open", now_ms=NOW_MS)
        given_back = tuple(one.id for one in arrivals[:2])
        await begin(store, arrivals[2].id)
        (batch,) = await store.batches.open_batches("/", arrivals[0].dlq)
        assert len(batch.entries) == 3
        await begin(store, *given_back, kind=OperationKind.RETURN)
        (batch,) = await store.batches.open_batches("/", arrivals[0].dlq)
        assert batch.entries == ((arrivals[2].fingerprint, arrivals[2].id),)

    run(scenario())


def test_a_silence_that_nobody_listens_to_resolves_nothing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        arrival = make_arrival(1)
        ids = await collect(store, arrival)
        await redrive(store, *ids)
        await store.batches.stop_queue("/", arrival.dlq, "it nears its delivery limit", now_ms=NOW_MS, who="ada")
        await store.operations.settle_silent(now_ms=LATER_MS, limit=9)
        assert await statuses(store, *ids) == ["retrying"]

    run(scenario())


def test_the_copy_of_a_doubtful_letter_that_was_reopened_comes_back_to_it(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1))
        await redrive(store, *ids, state=ItemState.IN_DOUBT)
        await store.letters.reopen(Selection(ids=ids), who="ada", why="it did not arrive", now_ms=NOW_MS)
        back = await collect(store, make_arrival(2, redriven_id=ids[0], redriven_count=1))
        # Two pending rows for one message would be sent twice.
        assert back == ids

    run(scenario())


def test_a_file_that_was_removed_or_replaced_takes_no_commit(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"sqlite:///{tmp_path}/redrive.db"
        async with await open_store(url) as store:
            await collect(store, make_arrival(1))
            (tmp_path / "redrive.db").rename(tmp_path / "moved.db")
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await collect(store, make_arrival(2))
            (tmp_path / "redrive.db").write_bytes(b"")
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await collect(store, make_arrival(2))
            (tmp_path / "moved.db").rename(tmp_path / "redrive.db")
            await collect(store, make_arrival(3))
            assert await store.letters.count(Filter(), now_ms=NOW_MS) == 2

    run(scenario())


@pytest.mark.slow
def test_a_server_that_would_forget_commits_is_told_not_to(postgres_url: str, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(postgres_url) as store, database_of(store).write() as tx:
            name = await tx.value("SELECT current_database()")
            await tx.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        async with await open_store(postgres_url) as store:
            async with database_of(store).read() as tx:
                assert await tx.value("SHOW synchronous_commit") == "off"
            async with database_of(store).write() as writing:
                assert await writing.value("SHOW synchronous_commit") == "on"

    run(scenario())
