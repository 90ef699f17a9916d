"""What a collected hand becomes: new rows, rows that came back, further copies; all of it or nothing."""

import asyncio

import pytest

from redrive.core import Attempt
from redrive.records import ItemState, MessageContent, OperationKind, RetryRule, Selection, Status
from redrive.stores import Store
from redrive.wire import Properties
from tests.unit.stores.arrivals import (
    DLQ,
    NOW_MS,
    begin,
    collect,
    collecting_lease,
    counts_anew,
    counts_kept,
    database_of,
    make_arrival,
    proven,
    redrive,
    statuses,
)
from tests.unit.stores.conftest import Run


def test_a_dead_letter_keeps_everything_that_was_told_of_it(store: Store, run: Run) -> None:
    async def scenario() -> None:
        body = bytes(range(256)) * 5_000
        told = make_arrival(
            7, content=MessageContent(properties=b"\x00\xff", body=body), service="shop", correlation_id="c"
        )
        await collect(store, told)
        letter = await store.letters.get(told.id)
        assert letter is not None
        for name in ("queue", "exchange", "routing_key", "reason", "told_by", "error_type", "error_message", "stack"):
            assert getattr(letter, name) == getattr(told.explanation, name)
        for name in ("attempts", "message_id", "correlation_id", "type", "service", "status_code", "group_id"):
            assert getattr(letter, name) == getattr(told.explanation, name)
        assert (letter.status, letter.version, letter.size_bytes) == (Status.PENDING, 1, len(body))
        assert (letter.dead_at_ms, letter.collected_at_ms) == (NOW_MS + 7, NOW_MS + 1_000)
        assert await store.letters.content(told.id) == told.content
        assert await store.letters.history(told.id) == told.explanation.history

    run(scenario())


def test_the_attempts_are_those_its_properties_tell_of(store: Store, run: Run) -> None:
    async def scenario() -> None:
        told = [{"number": 1, "at_ms": 5, "error": "TimeoutError: a\0b"}, {"number": 2, "error": "é"}, "what?"]
        with_them = Properties.of(headers={"x-redrive-history": told, "n": 1}).raw
        arrivals = [
            make_arrival(number, content=MessageContent(properties=raw, body=b""), history=())
            for number, raw in enumerate((with_them, b"\x00\x00", b"\x20\x00\xff"))
        ]
        await collect(store, *arrivals)
        assert [await store.letters.history(one.id) for one in arrivals] == [
            (Attempt(number=1, at_ms=5, error="TimeoutError: a\ufffdb"), Attempt(number=2, at_ms=0, error="é")),
            (),
            (),
        ]

    run(scenario())


def test_texts_that_no_database_can_hold_are_stored_with_marks_in_their_place(store: Store, run: Run) -> None:
    async def scenario() -> None:
        told = make_arrival(1, error_message="a\x00b", message_id="half \ud800", search_text="x\x00y \udfff")
        await collect(store, told)
        letter = await store.letters.get(told.id)
        assert letter is not None
        assert (letter.error_message, letter.message_id) == ("a\ufffdb", "half ?")

    run(scenario())


def test_identical_twins_are_two_rows(store: Store, run: Run) -> None:
    async def scenario() -> None:
        twins = [make_arrival(n, fingerprint=b"same", message_id="same") for n in (1, 2)]
        lease = await collecting_lease(store)
        stored = await store.batches.store(twins, lease=lease, batch_id="b", now_ms=NOW_MS)
        assert stored.inserted == (twins[0].id, twins[1].id)
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert batch.entries == ((b"same", twins[0].id), (b"same", twins[1].id))

    run(scenario())


def test_a_batch_is_open_until_it_is_owned(store: Store, run: Run) -> None:
    async def scenario() -> None:
        lease = await collecting_lease(store)
        await store.batches.store([make_arrival(1)], lease=lease, batch_id="b", now_ms=NOW_MS)
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert (batch.id, batch.owner, batch.at_ms) == ("b", "collector", NOW_MS)
        assert batch.entries == ((b"fingerprint 1", make_arrival(1).id),)
        assert await store.batches.open_batches("other", DLQ) == ()
        await store.batches.close("b")
        await store.batches.close("b")
        assert await store.batches.open_batches("/", DLQ) == ()

    run(scenario())


def test_storing_a_batch_twice_is_storing_it_once(store: Store, run: Run) -> None:
    async def scenario() -> None:
        lease = await collecting_lease(store)
        first = await store.batches.store([make_arrival(1)], lease=lease, batch_id="b", now_ms=NOW_MS)
        again = await store.batches.store([make_arrival(1)], lease=lease, batch_id="b", now_ms=NOW_MS)
        assert again == first
        assert await counts_kept(store) == await counts_anew(store)
        assert (await counts_kept(store))["all", "", "pending"] == 1

    run(scenario())


def test_what_is_met_again_joins_the_new_batch_and_the_old_one_closes(store: Store, run: Run) -> None:
    async def scenario() -> None:
        lease = await collecting_lease(store)
        await store.batches.store([make_arrival(1), make_arrival(2)], lease=lease, batch_id="old", now_ms=NOW_MS)
        known = [(b"fingerprint 1", make_arrival(1).id), (b"fingerprint 2", make_arrival(2).id)]
        stored = await store.batches.store(
            [make_arrival(3)], lease=lease, known=known, replaces=["old"], batch_id="new", now_ms=NOW_MS
        )
        assert stored.inserted == (make_arrival(3).id,)
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert (batch.id, batch.entries) == ("new", (*known, (b"fingerprint 3", make_arrival(3).id)))
        await store.batches.store([], lease=lease, known=known, replaces=["new"], batch_id="newer", now_ms=NOW_MS)
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert (batch.id, batch.entries) == ("newer", tuple(known))

    run(scenario())


def test_a_cancelled_store_has_stored_nothing_or_everything(store: Store, run: Run) -> None:
    async def scenario() -> None:
        lease = await collecting_lease(store)
        arrivals = [make_arrival(n) for n in range(300)]
        for turn in range(12):
            storing = asyncio.create_task(store.batches.store(arrivals, lease=lease, batch_id="b", now_ms=NOW_MS))
            for _ in range(turn * 3):
                await asyncio.sleep(0)
            storing.cancel()
            await asyncio.gather(storing, return_exceptions=True)
            count = (await counts_anew(store)).get(("all", "", "pending"), 0)
            assert (count, len(await store.batches.open_batches("/", DLQ))) in ((0, 0), (300, 1))
        stored = await store.batches.store(arrivals, lease=lease, batch_id="b", now_ms=NOW_MS)
        assert len(stored.inserted) == 300
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_a_copy_that_died_again_comes_back_to_its_row(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id)
        back = make_arrival(2, redriven_id=id, redriven_count=1, error_message="still no answer", group_id="other")
        back = await proven(store, back)
        lease = await collecting_lease(store)
        stored = await store.batches.store([back], lease=lease, batch_id="b", now_ms=NOW_MS + 9)
        assert (stored.inserted, stored.came_back, stored.copies) == ((), (id,), ())
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert batch.entries == ((b"fingerprint 2", id),)
        letter = await store.letters.get(id)
        assert letter is not None
        assert (letter.status, letter.redrives, letter.returns, letter.is_poison) == (Status.PENDING, 1, 1, False)
        assert (letter.error_message, letter.group_id, letter.queue) == ("still no answer", "other", "orders")
        assert (letter.silent_at_ms, letter.dead_at_ms) == (None, NOW_MS + 2)
        assert await store.letters.content(id) == back.content
        (past,) = await store.letters.earlier_contents(id)
        assert past.content == make_arrival(1).content
        assert await store.letters.get(back.id) is None
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_after_three_returns_a_dead_letter_is_poison(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        marks = []
        for turn in (1, 2, 3):
            await redrive(store, id, why=f"turn {turn}")
            await collect(store, make_arrival(1 + turn, redriven_id=id, redriven_count=turn))
            letter = await store.letters.get(id)
            assert letter is not None
            marks.append((letter.returns, letter.is_poison))
        assert marks == [(1, False), (2, False), (3, True)]
        assert len(await store.letters.earlier_contents(id)) == 3

    run(scenario())


@pytest.mark.parametrize("end", [ItemState.SENT, ItemState.IN_DOUBT])
def test_a_row_in_doubt_or_resolved_takes_its_copy_back_too(store: Store, run: Run, end: ItemState) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id, state=end)
        if end is ItemState.SENT:
            assert await store.operations.resolve_silent(now_ms=NOW_MS + 600_000, limit=10) == 1
        assert await statuses(store, id) == ["resolved" if end is ItemState.SENT else "in_doubt"]
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        assert await statuses(store, id) == ["pending"]
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_a_second_copy_is_a_row_of_its_own(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id)
        copies = [await proven(store, make_arrival(n, redriven_id=id, redriven_count=1)) for n in (2, 3)]
        lease = await collecting_lease(store)
        stored = await store.batches.store(copies, lease=lease, batch_id="b", now_ms=NOW_MS)
        assert (stored.came_back, stored.inserted, stored.copies) == ((id,), (copies[1].id,), (copies[1].id,))
        second = await store.letters.get(copies[1].id)
        assert second is not None
        assert (second.copy_of, second.status, second.redrives) == (id, Status.PENDING, 0)
        (batch,) = await store.batches.open_batches("/", DLQ)
        assert batch.entries == ((b"fingerprint 2", id), (b"fingerprint 3", copies[1].id))

    run(scenario())


def test_a_copy_of_an_earlier_redrive_is_a_row_of_its_own(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id)
        await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        await redrive(store, id, why="again")
        late = await proven(store, make_arrival(3, redriven_id=id, redriven_count=1))
        lease = await collecting_lease(store)
        stored = await store.batches.store([late], lease=lease, batch_id="b", now_ms=NOW_MS)
        assert (stored.came_back, stored.copies) == ((), (late.id,))
        assert await statuses(store, id, late.id) == ["retrying", "pending"]

    run(scenario())


def test_a_copy_of_a_row_that_is_not_here_is_a_new_dead_letter(store: Store, run: Run) -> None:
    async def scenario() -> None:
        stranger = make_arrival(1, redriven_id="0000000000000000", redriven_count=1)
        assert await collect(store, stranger) == (stranger.id,)
        letter = await store.letters.get(stranger.id)
        assert letter is not None
        assert letter.copy_of is None

    run(scenario())


def test_one_that_came_back_with_its_attempts_spent_has_failed(store: Store, run: Run) -> None:
    async def scenario() -> None:
        rule = RetryRule(scope="queue:orders", attempts=2, first_ms=1_000, ceiling_ms=60_000)
        await store.rules.set(rule, now_ms=NOW_MS)
        (id,) = await collect(store, make_arrival(1))
        seen = []
        for turn in (1, 2):
            await redrive(store, id, kind=OperationKind.AUTO_RETRY, why=f"turn {turn}")
            await collect(store, make_arrival(1 + turn, redriven_id=id, redriven_count=turn))
            letter = await store.letters.get(id)
            assert letter is not None
            seen.append((letter.status, letter.due_at_ms))
        assert seen == [(Status.PENDING, NOW_MS + 2 + 2_000), (Status.FAILED, None)]

    run(scenario())


def test_a_group_that_was_resolved_is_regressed_by_a_new_dead_letter(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await collect(store, make_arrival(5))
        async with database_of(store).write() as tx:
            await tx.run("UPDATE groups SET state = 'resolved'")
        await collect(store, make_arrival(2), make_arrival(9))
        group = await store.groups.get("timeouts")
        assert group is not None
        assert (group.state.value, group.count) == ("regressed", 3)
        assert (group.first_seen_ms, group.last_seen_ms) == (NOW_MS + 2, NOW_MS + 9)

    run(scenario())


def test_what_was_given_back_to_the_broker_is_resolved_and_can_come_again(store: Store, run: Run) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id, kind=OperationKind.RESTORE)
        letter = await store.letters.get(id)
        assert letter is not None
        assert (letter.status, letter.resolved_by) == (Status.RESOLVED, "ada")
        assert letter.status_reason == "given back to its dead-letter queue"
        again = make_arrival(2, message_id="m-1")
        assert await collect(store, again) == (again.id,)
        assert await statuses(store, id, again.id) == ["resolved", "pending"]

    run(scenario())


def test_a_stopped_queue_stays_stopped_until_somebody_says_resume(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await store.batches.stop_queue("/", DLQ, "near its delivery limit", now_ms=NOW_MS, who="ada")
        await store.batches.stop_queue("/", DLQ, "nearer", now_ms=NOW_MS, who="ada")
        assert await store.batches.stopped_queues() == {("/", DLQ): "nearer"}
        await store.batches.resume_queue("/", DLQ, now_ms=NOW_MS, who="ada")
        assert await store.batches.stopped_queues() == {}

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
        await begin(store, *given_back, kind=OperationKind.RESTORE)
        (batch,) = await store.batches.open_batches("/", arrivals[0].dlq)
        assert batch.entries == ((arrivals[2].fingerprint, arrivals[2].id),)

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
