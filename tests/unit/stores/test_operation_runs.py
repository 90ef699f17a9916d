"""Recording one batch and taking the next at once, and when the silence of what is being sent begins to count."""

import asyncio
from pathlib import Path

import pytest

from redrive.records import (
    ItemState,
    LetterEvent,
    NewOperation,
    OperationKind,
    RetryRule,
    Selection,
    SendResult,
    Status,
    make_id,
)
from redrive.stores import LeaseLost, Store
from redrive.stores.operations import claims as operations_taking
from redrive.stores.operations import runs as operations_running
from redrive.stores.sqlite import SqliteDatabase
from tests.unit.stores.arrivals import (
    LATER_MS,
    NOW_MS,
    OTHER_OPERATION_ID,
    begin,
    claim,
    collect,
    counts_anew,
    counts_kept,
    make_arrival,
    run_out,
    statuses,
)
from tests.unit.stores.conftest import Run


def sent(*ids: str) -> list[SendResult]:
    return [SendResult(id=id, state=ItemState.SENT) for id in ids]


def test_an_exchange_records_one_batch_and_takes_the_next(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(5)))
        operation_id, lease = await begin(store, *ids)
        first = await store.operations.take(operation_id, lease, limit=2, now_ms=NOW_MS, turn=1)
        operation, second = await store.operations.record_and_take(
            operation_id, lease, (), limit=2, now_ms=NOW_MS, turn=2
        )
        assert ([one.id for one in (*first, *second)], operation.left) == (list(ids[:4]), 5)
        operation, third = await store.operations.record_and_take(
            operation_id, lease, sent(*ids[:2]), limit=2, now_ms=NOW_MS, turn=3
        )
        assert ([one.id for one in third], operation.sent, operation.left) == ([ids[4]], 2, 3)
        ends = [
            SendResult(id=ids[2], state=ItemState.REFUSED, reason="312 NO_ROUTE"),
            SendResult(id=ids[3], state=ItemState.IN_DOUBT, reason="the connection was lost"),
        ]
        operation, none = await store.operations.record_and_take(
            operation_id, lease, ends, limit=2, now_ms=NOW_MS, turn=4
        )
        assert (none, operation.sent, operation.refused, operation.in_doubt, operation.left) == ((), 2, 1, 1, 1)
        done = await store.operations.record(operation_id, lease, sent(ids[4]), now_ms=NOW_MS)
        assert (done.state.value, done.sent) == ("done", 3)
        assert await statuses(store, *ids) == ["retrying", "retrying", "pending", "in_doubt", "retrying"]
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_an_exchange_whose_answer_was_lost_records_once_and_gives_the_same_again(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(5)))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=2, now_ms=NOW_MS, turn=1)
        ends = sent(*ids[:2])
        lost = await store.operations.record_and_take(operation_id, lease, ends, limit=2, now_ms=NOW_MS, turn=2)
        again = await store.operations.record_and_take(operation_id, lease, ends, limit=2, now_ms=NOW_MS + 9, turn=2)
        assert again == lost
        assert [(one.id, one.redrives) for one in again[1]] == [(ids[2], 1), (ids[3], 1)]
        items, _ = await store.operations.items(operation_id, 9)
        assert [item.state.value for item in items] == ["sent", "sent", "sending", "sending", "queued"]
        assert [one.event for one in await store.letters.lifecycle(ids[0])] == ["collected", "sent"]
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_an_exchange_passes_over_what_nobody_may_redrive_any_more(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(4)))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS, turn=1)
        await store.letters.resolve(Selection(ids=ids[1:3]), who="ada", why="", now_ms=NOW_MS)
        operation, taken = await store.operations.record_and_take(
            operation_id, lease, sent(ids[0]), limit=2, now_ms=NOW_MS, turn=2
        )
        assert ([one.id for one in taken], operation.sent, operation.skipped, operation.left) == ([ids[3]], 1, 2, 1)

    run(scenario())


@pytest.mark.parametrize("stopping", ["pause", "cancel"])
def test_an_exchange_takes_nothing_of_what_was_stopped_and_records_what_was_on_the_way(
    store: Store, run: Run, stopping: str
) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(4)))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS, turn=1)
        if stopping == "pause":
            await store.operations.pause(operation_id, now_ms=NOW_MS, who="ada")
        else:
            await store.operations.cancel(operation_id, who="bob", now_ms=NOW_MS)
        ends = sent(ids[0])
        operation, taken = await store.operations.record_and_take(
            operation_id, lease, ends, limit=2, now_ms=NOW_MS, turn=2
        )
        assert (taken, operation.sent) == ((), 1)
        assert operation.skipped == (0 if stopping == "pause" else 3)

    run(scenario())


def test_a_runner_that_was_replaced_exchanges_nothing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(4)))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS, turn=1)
        await store.operations.record_and_take(operation_id, lease, (), limit=1, now_ms=NOW_MS, turn=2)
        await run_out(store, lease)
        await claim(store, operation_id, "heir", NOW_MS + 20_000)
        with pytest.raises(LeaseLost):
            await store.operations.record_and_take(operation_id, lease, sent(ids[0]), limit=2, now_ms=NOW_MS, turn=3)
        assert await statuses(store, *ids) == ["in_doubt", "in_doubt", "pending", "pending"]

    run(scenario())


def test_exchanges_and_changes_of_the_same_dead_letters_wait_for_each_other(store: Store, run: Run) -> None:
    """Rows are locked in one order by all: nobody is refused for a deadlock."""

    async def scenario() -> None:
        # Longest dead first is not the order of the numbers.
        ids = await collect(store, *(make_arrival(n) for n in range(60, 0, -1)))
        operation_id, lease = await begin(store, *ids)

        async def exchange() -> None:
            ends: list[SendResult] = []
            for turn in range(1, 9):
                _, taken = await store.operations.record_and_take(
                    operation_id, lease, ends, limit=10, now_ms=NOW_MS, turn=turn
                )
                ends = sent(*(one.id for one in taken))

        async def reopen() -> None:
            for _ in range(8):
                await store.letters.resolve(Selection(ids=ids[::7]), who="ada", why="", now_ms=NOW_MS)
                await store.letters.reopen(Selection(ids=ids[::7]), who="ada", why="", now_ms=NOW_MS)

        await asyncio.gather(exchange(), reopen(), reopen())
        operation = await store.operations.get(operation_id)
        assert operation is not None
        assert (operation.state.value, operation.sent + operation.skipped) == ("done", 60)
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_silence_counts_from_the_confirmation_and_is_shown_from_then(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, id, settle_s=60.0)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        taken = await store.letters.get(id)
        assert taken is not None
        assert (taken.status, taken.silent_at_ms) == (Status.RETRYING, None)
        # However long the broker takes: what is not confirmed is not silent.
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 90_000, limit=10) == 0
        await store.operations.record(operation_id, lease, sent(id), now_ms=NOW_MS + 90_000)
        confirmed = await store.letters.get(id)
        assert confirmed is not None
        assert confirmed.silent_at_ms is not None
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 149_999, limit=10) == 0
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 150_000, limit=10) == 1
        assert await statuses(store, id) == ["resolved"]

    run(scenario())


def test_the_silence_of_an_earlier_copy_does_not_settle_one_that_is_being_sent(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        first, lease = await begin(store, id, settle_s=600.0)
        await store.operations.take(first, lease, limit=1, now_ms=NOW_MS)
        await store.operations.record(first, lease, sent(id), now_ms=NOW_MS)
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        second, lease = await begin(store, id, settle_s=1.0)
        await store.operations.take(second, lease, limit=1, now_ms=NOW_MS + 1)
        # The first copy's entry is due, and so would be the second's, were it confirmed.
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 700_000, limit=10) == 0
        assert await statuses(store, id) == ["retrying"]
        await store.operations.record(second, lease, sent(id), now_ms=NOW_MS + 700_000)
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 701_000, limit=10) == 1

    run(scenario())


@pytest.mark.parametrize("state", [ItemState.REFUSED, ItemState.QUEUED, ItemState.IN_DOUBT])
def test_what_was_not_confirmed_has_no_silence(store: Store, run: Run, state: ItemState) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, id, settle_s=60.0)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        await store.operations.record(operation_id, lease, [SendResult(id=id, state=state, reason="so")], now_ms=NOW_MS)
        letter = await store.letters.get(id)
        assert letter is not None
        assert letter.silent_at_ms is None
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 10**9, limit=10) == 0
        event = LetterEvent.LOST if state is ItemState.IN_DOUBT else LetterEvent.REFUSED
        told = {LetterEvent.LOST: "in doubt", LetterEvent.REFUSED: "refused"}[event]
        assert [one.event for one in await store.letters.lifecycle(id)] == ["collected", told]

    run(scenario())


def test_auto_retry_settles_by_its_rule_and_what_is_given_back_by_none(store: Store, run: Run) -> None:
    async def scenario() -> None:
        rule = RetryRule(scope="*", first_ms=1, ceiling_ms=1, settle_ms=5_000)
        await store.rules.set(rule, now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1))
        made = await store.operations.create_due(id=make_id(NOW_MS, 3), who="auto", now_ms=NOW_MS + 10**6, limit=9)
        assert made is not None
        lease = await claim(store, made.id, now_ms=NOW_MS)
        await store.operations.take(made.id, lease, limit=9, now_ms=NOW_MS)
        await store.operations.record(made.id, lease, sent(*ids), now_ms=NOW_MS + 100)
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 5_099, limit=9) == 0
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 5_100, limit=9) == 1
        (back,) = await collect(store, make_arrival(7))
        giving = NewOperation(kind=OperationKind.RESTORE, selection=Selection(ids=(back,)), who="ada")
        made = await store.operations.create(giving, id=make_id(NOW_MS, 4), now_ms=NOW_MS)
        lease = await claim(store, made.id, now_ms=NOW_MS)
        await store.operations.take(made.id, lease, limit=9, now_ms=NOW_MS)
        await store.operations.record(made.id, lease, sent(back), now_ms=NOW_MS)
        letter = await store.letters.get(back)
        assert letter is not None
        assert (letter.status, letter.silent_at_ms) == (Status.RESOLVED, None)

    run(scenario())


def test_sqlite_finds_a_batch_without_reading_the_rest_of_the_operation(tmp_path: Path) -> None:
    """It keeps no statistics; left to itself it goes through every item there is, for every batch."""

    async def scenario() -> None:
        database = SqliteDatabase(str(tmp_path / "letters.db"), "here")
        await database.migrate()
        async with database.read() as tx:
            for sql, index in (
                (operations_taking._QUEUED, "items_queued"),
                (operations_taking._OF_TURN, "items_sending"),
                (operations_running._SENDING, "items_sending"),
                (operations_running._STALE, "items_sending"),
            ):
                plan = await tx.rows(f"EXPLAIN QUERY PLAN {sql}", *range(1, sql.count("$") + 1))
                assert f"USING INDEX {index} (operation_seq=?)" in plan[0][3]
        await database.close()

    asyncio.run(scenario())


def test_what_a_dead_runner_left_half_sent_does_not_hide_the_silence_of_a_later_copy(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        first, lease = await begin(store, id, settle_s=60.0)
        await store.operations.take(first, lease, limit=1, now_ms=NOW_MS)  # it is sent, and its runner dies
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        second, lease = await begin(store, id, settle_s=60.0)
        await store.operations.take(second, lease, limit=1, now_ms=NOW_MS + 10)
        await store.operations.record(second, lease, sent(id), now_ms=NOW_MS + 20)
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 61_000, limit=10) == 1
        assert await statuses(store, id) == ["resolved"]

    run(scenario())


def test_a_clock_set_back_while_it_is_sent_makes_a_silence_longer_and_not_endless(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, id, settle_s=60.0)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        await store.operations.record(operation_id, lease, sent(id), now_ms=NOW_MS - 2_000)
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 58_000, limit=10) == 0
        assert await statuses(store, id) == ["retrying"]
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 61_000, limit=10) == 1
        assert await statuses(store, id) == ["resolved"]

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
        due = await store.operations.create_due(id=OTHER_OPERATION_ID, who="auto", now_ms=LATER_MS, limit=9)
        assert due is not None
        assert due.total == 2

    run(scenario())
