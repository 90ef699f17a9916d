"""Operations: a frozen selection is sent once; a copy that may have been sent is in doubt, also if a redriver dies."""

import asyncio

import pytest

from redrive.records import (
    Filter,
    ItemState,
    NameTerm,
    NewOperation,
    Operation,
    OperationKind,
    OperationState,
    RedriveTarget,
    RetryRule,
    Selection,
    SendResult,
    Status,
    make_id,
)
from redrive.stores import IdempotencyConflict, LeaseLost, Store, UnknownOperation
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
    redrive,
    run_out,
    statuses,
)
from tests.unit.stores.conftest import Run

ALL = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(filter=Filter(), filter_text="all"), who="ada")
OPERATION = make_id(NOW_MS, 1 << 20)


def account(operation: Operation | None) -> tuple[str, int, int, int, int, int]:
    """Where an operation's dead letters are: state, total, sent, refused, in doubt, skipped."""
    assert operation is not None
    return (
        operation.state.value,
        operation.total,
        operation.sent,
        operation.refused,
        operation.in_doubt,
        operation.skipped,
    )


def test_a_preview_counts_what_an_operation_would_take(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(
            store, make_arrival(1), make_arrival(2, queue="mail"), make_arrival(3), make_arrival(4), make_arrival(5)
        )
        await redrive(store, ids[0])
        await redrive(store, ids[2], state=ItemState.IN_DOUBT)
        every = Selection(filter=Filter())
        preview = await store.operations.preview(every, now_ms=NOW_MS)
        assert (preview.total, preview.by_queue) == (3, {"mail": 1, "orders": 2})
        assert preview.left_alone == {"retrying": 1, "in_doubt": 1}
        doubtful = Selection(filter=Filter(), includes_in_doubt=True)
        assert (await store.operations.preview(doubtful, now_ms=NOW_MS)).total == 4
        named = Selection(filter=Filter((NameTerm(field="queue", values=("orders",)),)), limit=1)
        preview = await store.operations.preview(named, now_ms=NOW_MS)
        assert (preview.total, preview.by_queue) == (1, {"orders": 1})
        by_id = await store.operations.preview(Selection(ids=(ids[2], ids[3], "nobody")), now_ms=NOW_MS)
        assert (by_id.total, by_id.left_alone) == (2, {})

    run(scenario())


def test_a_selection_is_frozen_longest_dead_first(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await collect(store, make_arrival(3), make_arrival(1), make_arrival(2))
        selection = Selection(filter=Filter((NameTerm(field="queue", values=("orders",)),)), filter_text="q", limit=2)
        new = NewOperation(
            kind=OperationKind.REDRIVE,
            selection=selection,
            target=RedriveTarget(exchange="retry.{queue}", routing_key="retry"),
            rate_per_s=12.5,
            ramp=(1, 5),
            settle_s=30.0,
            keep_attempts=True,
            who="ada",
            why="fixed",
        )
        made = await store.operations.create(new, id=OPERATION, now_ms=NOW_MS)
        await collect(store, make_arrival(0))
        assert account(made) == ("waiting", 2, 0, 0, 0, 0)
        assert (made.target, made.rate_per_s, made.ramp, made.settle_s) == (new.target, 12.5, (1, 5), 30.0)
        assert (made.keep_attempts, made.who, made.why, made.selection_text) == (True, "ada", "fixed", "q")
        items, cursor = await store.operations.items(OPERATION, 1)
        assert [item.letter_id for item in items] == [make_arrival(1).id]
        items, cursor = await store.operations.items(OPERATION, 1, cursor)
        assert ([item.letter_id for item in items], cursor) == ([make_arrival(2).id], None)

    run(scenario())


def test_an_operation_on_nothing_is_done_at_once(store: Store, run: Run) -> None:
    async def scenario() -> None:
        made = await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS)
        assert account(made) == ("done", 0, 0, 0, 0, 0)
        assert await store.operations.waiting() == ()

    run(scenario())


def test_an_idempotency_key_makes_one_operation_of_one_request(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await collect(store, make_arrival(1))
        keyed = NewOperation(kind=OperationKind.REDRIVE, selection=ALL.selection, who="ada", idempotency_key="k")
        made = await asyncio.gather(
            *(store.operations.create(keyed, id=make_id(NOW_MS, n), now_ms=NOW_MS) for n in range(4))
        )
        assert len({operation.id for operation in made}) == 1
        assert len((await store.operations.page(10))[0]) == 1
        other = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=("x",)), idempotency_key="k")
        with pytest.raises(IdempotencyConflict, match="belongs to operation"):
            await store.operations.create(other, id=make_id(NOW_MS, 9), now_ms=NOW_MS)
        assert len((await store.operations.page(10))[0]) == 1

    run(scenario())


def test_creating_again_after_a_lost_answer_gives_the_same_operation(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await collect(store, make_arrival(1))
        first = await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS)
        await collect(store, make_arrival(2))
        assert await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS + 5) == first

    run(scenario())


def test_operations_are_paged_newest_first(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await collect(store, make_arrival(1))
        ids = [make_id(NOW_MS, n) for n in range(5)]
        for id in ids:
            await store.operations.create(ALL, id=id, now_ms=NOW_MS)
        await store.operations.cancel(ids[3], who="ada", now_ms=NOW_MS)
        first, cursor = await store.operations.page(3)
        second, end = await store.operations.page(3, cursor)
        assert [operation.id for operation in (*first, *second)] == ids[::-1]
        assert end is None
        waiting, _ = await store.operations.page(10, state=OperationState.WAITING)
        assert [operation.id for operation in waiting] == [ids[4], ids[2], ids[1], ids[0]]

    run(scenario())


def test_what_is_confirmed_stays_retrying_until_its_silence_is_long_enough(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, id, settle_s=60.0)
        (taken,) = await store.operations.take(operation_id, lease, limit=10, now_ms=NOW_MS)
        assert (taken.id, taken.queue, taken.redrives, taken.attempts) == (id, "orders", 1, 4)
        assert (taken.content, taken.was_in_doubt) == (make_arrival(1).content, False)
        assert await statuses(store, id) == ["retrying"]
        ended = await store.operations.record(
            operation_id, lease, [SendResult(id=id, state=ItemState.SENT)], now_ms=NOW_MS + 500
        )
        assert account(ended) == ("done", 1, 1, 0, 0, 0)
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 60_499, limit=10) == 0
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 60_500, limit=10) == 1
        letter = await store.letters.get(id)
        assert letter is not None
        assert (letter.status, letter.status_reason) == (Status.RESOLVED, "has not come back for 1m")
        assert (letter.redrives, letter.operation_id, letter.silent_at_ms) == (1, operation_id, None)
        assert [happening.event for happening in await store.letters.lifecycle(id)] == ["collected", "sent", "silence"]

    run(scenario())


def test_each_end_leaves_its_dead_letter_where_it_belongs(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(4)))
        operation_id, lease = await begin(store, *ids)
        assert len(await store.operations.take(operation_id, lease, limit=10, now_ms=NOW_MS)) == 4
        ends = [
            SendResult(id=ids[0], state=ItemState.SENT),
            SendResult(id=ids[1], state=ItemState.REFUSED, reason="312 NO_ROUTE"),
            SendResult(id=ids[2], state=ItemState.IN_DOUBT, reason="the connection was lost"),
            SendResult(id=ids[3], state=ItemState.QUEUED),
        ]
        after = await store.operations.record(operation_id, lease, ends, now_ms=NOW_MS)
        assert account(after) == ("running", 4, 1, 1, 1, 0)
        assert await statuses(store, *ids) == ["retrying", "pending", "in_doubt", "pending"]
        reasons = [letter.status_reason for id in ids[1:3] if (letter := await store.letters.get(id))]
        assert reasons == ["312 NO_ROUTE", "the connection was lost"]
        # Only what was certainly not sent is given out again.
        again = await store.operations.take(operation_id, lease, limit=10, now_ms=NOW_MS)
        assert [(taken.id, taken.redrives) for taken in again] == [(ids[3], 2)]
        done = await store.operations.record(
            operation_id, lease, [SendResult(id=ids[3], state=ItemState.SENT)], now_ms=NOW_MS
        )
        assert account(done) == ("done", 4, 2, 1, 1, 0)
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_recording_twice_is_recording_once(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=10, now_ms=NOW_MS)
        ends = [SendResult(id=ids[0], state=ItemState.SENT)]
        first = await store.operations.record(operation_id, lease, ends, now_ms=NOW_MS)
        again = await store.operations.record(operation_id, lease, ends, now_ms=NOW_MS + 9)
        assert account(again) == account(first) == ("running", 2, 1, 0, 0, 0)
        letter = await store.letters.get(ids[0])
        assert letter is not None
        assert letter.updated_at_ms == NOW_MS

    run(scenario())


def test_a_take_whose_answer_was_lost_is_given_the_same_again(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(3)))
        operation_id, lease = await begin(store, *ids)
        lost = await store.operations.take(operation_id, lease, limit=2, now_ms=NOW_MS, turn=1)
        again = await store.operations.take(operation_id, lease, limit=2, now_ms=NOW_MS, turn=1)
        assert again == lost
        assert [taken.redrives for taken in again] == [1, 1]
        (third,) = await store.operations.take(operation_id, lease, limit=2, now_ms=NOW_MS, turn=2)
        assert third.id == ids[2]

    run(scenario())


def test_a_take_without_a_turn_never_gives_out_twice_and_the_doubt_is_shown(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        (other,) = await store.operations.take(operation_id, lease, limit=5, now_ms=NOW_MS)
        assert other.id == ids[1]
        assert await store.operations.take(operation_id, lease, limit=5, now_ms=NOW_MS) == ()
        await store.operations.record(operation_id, lease, [SendResult(id=ids[1], state=ItemState.SENT)], now_ms=NOW_MS)
        await store.leases.release(lease)
        assert await store.operations.waiting() == (operation_id,)
        await claim(store, operation_id)
        assert account(await store.operations.get(operation_id)) == ("done", 2, 1, 0, 1, 0)
        assert await statuses(store, *ids) == ["in_doubt", "retrying"]

    run(scenario())


def test_what_a_dead_runner_had_on_the_way_is_in_doubt(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(3)))
        operation_id, dead = await begin(store, *ids)
        await store.operations.take(operation_id, dead, limit=2, now_ms=NOW_MS)
        assert await store.operations.waiting() == ()
        await run_out(store, dead)
        assert await store.operations.waiting() == (operation_id,)
        lease = await claim(store, operation_id, "heir", NOW_MS + 10_000)
        assert account(await store.operations.get(operation_id)) == ("running", 3, 0, 0, 2, 0)
        assert await statuses(store, *ids) == ["in_doubt", "in_doubt", "pending"]
        # The dead one wakes up: it changes nothing.
        ends = [SendResult(id=ids[0], state=ItemState.SENT)]
        with pytest.raises(LeaseLost):
            await store.operations.record(operation_id, dead, ends, now_ms=NOW_MS + 10_000)
        with pytest.raises(LeaseLost):
            await store.operations.take(operation_id, dead, limit=2, now_ms=NOW_MS + 10_000)
        with pytest.raises(LeaseLost):
            await store.operations.claim(operation_id, dead, now_ms=NOW_MS + 10_000)
        (taken,) = await store.operations.take(operation_id, lease, limit=9, now_ms=NOW_MS + 10_000)
        assert taken.id == ids[2]
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_doubtful_ones_are_sent_again_only_when_asked_for_and_say_so(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        await redrive(store, ids[0], state=ItemState.IN_DOUBT)
        made = await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS)
        assert made.total == 1
        operation_id, lease = await begin(store, ids[0])
        (taken,) = await store.operations.take(operation_id, lease, limit=9, now_ms=NOW_MS, turn=1)
        assert (taken.id, taken.was_in_doubt, taken.redrives) == (ids[0], True, 2)
        assert await store.operations.take(operation_id, lease, limit=9, now_ms=NOW_MS, turn=1) == (taken,)

    run(scenario())


def test_one_that_became_doubtful_meanwhile_is_skipped_unless_asked_for(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1))
        await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS)
        await redrive(store, *ids, state=ItemState.IN_DOUBT)
        lease = await claim(store, OPERATION)
        assert await store.operations.take(OPERATION, lease, limit=9, now_ms=NOW_MS) == ()
        assert account(await store.operations.get(OPERATION)) == ("done", 1, 0, 0, 0, 1)
        assert await statuses(store, *ids) == ["in_doubt"]

    run(scenario())


def test_two_operations_on_one_dead_letter_send_it_once(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(20)))
        runs = [await begin(store, *ids) for _ in range(2)]
        taken = await asyncio.gather(*(store.operations.take(id, lease, limit=20, now_ms=NOW_MS) for id, lease in runs))
        given_out = [one.id for some in taken for one in some]
        assert sorted(given_out) == sorted(ids)
        left = [operation.left for id, _ in runs if (operation := await store.operations.get(id))]
        assert sum(left) == 20
        reasons = [item.reason for id, _ in runs for item in (await store.operations.items(id, 99))[0] if item.reason]
        assert reasons == ["it is retrying"] * 20

    run(scenario())


def test_one_that_came_back_before_its_confirmation_was_recorded_stays_back(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        operation_id, lease = await begin(store, id)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        done = await store.operations.record(
            operation_id, lease, [SendResult(id=id, state=ItemState.SENT)], now_ms=NOW_MS
        )
        assert account(done) == ("done", 1, 1, 0, 0, 0)
        assert await statuses(store, id) == ["pending"]
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 10**9, limit=10) == 0

    run(scenario())


def test_one_that_was_sent_again_meanwhile_does_not_hear_of_the_first_sending(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        first, first_lease = await begin(store, id)
        await store.operations.take(first, first_lease, limit=1, now_ms=NOW_MS)
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        second, second_lease = await begin(store, id)
        await store.operations.take(second, second_lease, limit=1, now_ms=NOW_MS)
        refused = [SendResult(id=id, state=ItemState.REFUSED, reason="returned")]
        await store.operations.record(first, first_lease, refused, now_ms=NOW_MS)
        assert await statuses(store, id) == ["retrying"]

    run(scenario())


def test_a_paused_operation_gives_nothing_out_and_goes_on_when_resumed(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        paused = await store.operations.pause(operation_id, "Ctrl-C", now_ms=NOW_MS, who="ada")
        assert (paused.state, paused.note) == (OperationState.PAUSED, "Ctrl-C")
        assert await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS) == ()
        await store.operations.record(operation_id, lease, [SendResult(id=ids[0], state=ItemState.SENT)], now_ms=NOW_MS)
        await store.leases.release(lease)
        assert await store.operations.waiting() == ()
        assert await store.operations.claim(operation_id, await claim(store, operation_id), now_ms=NOW_MS) is None
        resumed = await store.operations.resume(operation_id, now_ms=NOW_MS, who="ada")
        assert account(resumed) == ("waiting", 2, 1, 0, 0, 0)

    run(scenario())


def test_a_cancelled_operation_skips_what_is_queued_and_still_records_what_is_on_the_way(
    store: Store, run: Run
) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(3)))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        cancelled = await store.operations.cancel(operation_id, who="bob", now_ms=NOW_MS)
        assert account(cancelled) == ("cancelled", 3, 0, 0, 0, 2)
        after = await store.operations.record(
            operation_id, lease, [SendResult(id=ids[0], state=ItemState.SENT)], now_ms=NOW_MS
        )
        assert account(after) == ("cancelled", 3, 1, 0, 0, 2)
        assert await statuses(store, *ids) == ["retrying", "pending", "pending"]
        assert await store.operations.cancel(operation_id, who="bob", now_ms=NOW_MS) == after

    run(scenario())


def test_what_a_cancelled_operations_dead_runner_had_is_found_and_in_doubt(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, _ = await begin(store, *ids)
        lease = await claim(store, operation_id)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        await store.operations.cancel(operation_id, who="bob", now_ms=NOW_MS)
        later = NOW_MS + 20_000
        await run_out(store, lease)
        assert await store.operations.waiting() == (operation_id,)
        await claim(store, operation_id, "heir", later)
        assert account(await store.operations.get(operation_id)) == ("cancelled", 2, 0, 0, 1, 1)
        assert await statuses(store, *ids) == ["in_doubt", "pending"]
        assert await store.operations.waiting() == ()

    run(scenario())


def test_a_deleted_dead_letter_is_skipped(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        await store.operations.create(ALL, id=OPERATION, now_ms=NOW_MS)
        await store.letters.delete(Selection(ids=ids[:1]), who="ada", why="old", now_ms=NOW_MS)
        lease = await claim(store, OPERATION)
        (taken,) = await store.operations.take(OPERATION, lease, limit=9, now_ms=NOW_MS)
        assert taken.id == ids[1]
        items, _ = await store.operations.items(OPERATION, 9)
        assert [(item.letter_id, item.state.value, item.reason) for item in items] == [
            (ids[0], "skipped", "it was deleted"),
            (ids[1], "sending", ""),
        ]

    run(scenario())


def test_a_batch_with_large_bodies_is_cut_short(store: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.stores.operations.claims.TAKE_BYTES_MAX", 10)

    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(n) for n in range(3)))
        operation_id, lease = await begin(store, *ids)
        sizes = []
        while taken := await store.operations.take(operation_id, lease, limit=9, now_ms=NOW_MS):
            sizes.append(len(taken))
        assert sizes == [1, 1, 1]

    run(scenario())


def test_what_is_due_becomes_one_operation_and_not_a_second_one(store: Store, run: Run) -> None:
    async def scenario() -> None:
        rule = RetryRule(scope="*", first_ms=1_000, ceiling_ms=8_000, attempts=3, settle_ms=5_000)
        await store.rules.set(rule, now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1), make_arrival(2_000))
        assert await store.operations.create_due(id=OPERATION, who="auto", now_ms=NOW_MS + 1_000, limit=9) is None
        assert await store.operations.get(OPERATION) is None
        made = await store.operations.create_due(id=OPERATION, who="auto", now_ms=NOW_MS + 1_001, limit=9)
        assert account(made) == ("waiting", 1, 0, 0, 0, 0)
        other = make_id(NOW_MS, 77)
        assert await store.operations.create_due(id=other, who="auto", now_ms=NOW_MS + 1_001, limit=9) is None
        lease = await claim(store, OPERATION)
        (taken,) = await store.operations.take(OPERATION, lease, limit=9, now_ms=NOW_MS + 1_001)
        assert taken.id == ids[0]
        done = await store.operations.record(
            OPERATION, lease, [SendResult(id=ids[0], state=ItemState.SENT)], now_ms=NOW_MS + 1_001
        )
        assert done.state is OperationState.DONE
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 6_001, limit=9) == 1

    run(scenario())


def test_one_that_was_refused_is_due_again_as_if_it_had_died_now(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*", first_ms=1_000, ceiling_ms=8_000), now_ms=NOW_MS)
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id, state=ItemState.REFUSED)
        letter = await store.letters.get(id)
        assert letter is not None
        assert (letter.status, letter.due_at_ms) == (Status.PENDING, NOW_MS + 1_000)

    run(scenario())


def test_an_operation_that_is_not_there_is_said_so(store: Store, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(UnknownOperation, match="there is no operation nothing"):
            await store.operations.pause("nothing", now_ms=NOW_MS, who="ada")
        assert await store.operations.get("nothing") is None
        assert await store.operations.items("nothing", 5) == ([], None)

    run(scenario())


@pytest.mark.parametrize("state", [ItemState.REFUSED, ItemState.QUEUED])
def test_a_refused_copy_of_a_doubtful_one_leaves_it_in_doubt(store: Store, run: Run, state: ItemState) -> None:
    async def scenario() -> None:
        [id] = await collect(store, make_arrival(1))
        await redrive(store, id, state=ItemState.IN_DOUBT)
        await redrive(store, id, state=state)
        assert await statuses(store, id) == ["in_doubt"]

    run(scenario())


def test_auto_retry_leaves_the_dead_letters_of_other_vhosts_to_others(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*"), now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1), make_arrival(2, vhost="other"))
        due = await store.operations.create_due(
            id=OTHER_OPERATION_ID, who="auto", now_ms=LATER_MS, limit=9, vhost="other"
        )
        assert due is not None
        items, _ = await store.operations.items(due.id, 9)
        assert [one.letter_id for one in items] == [ids[1]]
        assert await store.operations.waiting(vhost="/") == ()
        assert await store.operations.waiting(vhost="other") == (due.id,)
        assert await store.operations.waiting() == (due.id,)

    run(scenario())
