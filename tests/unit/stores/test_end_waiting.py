"""What is asked for and not done is counted with its reason; and a person may end the waiting for a sent copy."""

from dataclasses import replace

import pytest

from redrive.records import Filter, ItemState, LetterEvent, RedriveTarget, Selection, Status
from redrive.stores import Store, acting_as
from tests.unit.stores.arrivals import (
    LATER_MS,
    NOW_MS,
    begin,
    collect,
    counts_anew,
    counts_kept,
    make_arrival,
    redrive,
    statuses,
)
from tests.unit.stores.conftest import Run

EVERYTHING = Selection(filter=Filter(), filter_text="all")
WHO = {"who": "ada", "why": "because", "now_ms": NOW_MS}


def by_status(not_done: dict[str, int]) -> list[int]:
    """How many were left: retrying, in doubt, pending, being sent, others."""
    words = ("it is retrying", "it is in doubt", "it is pending already", "being sent")
    counts = [sum(n for reason, n in not_done.items() if word in reason) for word in words]
    return [*counts, sum(not_done.values()) - sum(counts)]


async def four_kinds(store: Store) -> tuple[str, ...]:
    """Two retrying, one in doubt, two pending."""
    ids = await collect(store, *(make_arrival(n) for n in range(5)))
    await redrive(store, *ids[:2])
    await redrive(store, ids[2], state=ItemState.IN_DOUBT)
    assert await statuses(store, *ids) == ["retrying", "retrying", "in_doubt", "pending", "pending"]
    return ids


def test_what_a_bulk_change_leaves_is_counted_by_reason(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await four_kinds(store)
        found = await store.letters.preview_change(EVERYTHING, LetterEvent.DELETED, now_ms=NOW_MS)
        assert (found.able, by_status(found.not_able)) == (2, [2, 1, 0, 0, 0])
        reopened = await store.letters.reopen(EVERYTHING, **WHO)  # type: ignore[arg-type]
        assert (reopened.done, by_status(reopened.not_done)) == (0, [2, 1, 2, 0, 0])
        limited = await store.letters.resolve(Selection(filter=Filter(), limit=1), **WHO)  # type: ignore[arg-type]
        assert (limited.done, limited.not_done) == (1, {})
        deleted = await store.letters.delete(EVERYTHING, **WHO)  # type: ignore[arg-type]
        assert (deleted.done, by_status(deleted.not_done)) == (2, [2, 1, 0, 0, 0])
        assert await statuses(store, *ids[:3]) == ["retrying", "retrying", "in_doubt"]

    run(scenario())


@pytest.mark.parametrize("by_ids", [True, False])
@pytest.mark.parametrize("event", [LetterEvent.RESOLVED, LetterEvent.REOPENED, LetterEvent.DELETED])
def test_a_person_ends_the_waiting_and_a_copy_that_comes_back_all_the_same_is_kept(
    store: Store, run: Run, event: LetterEvent, by_ids: bool
) -> None:
    async def scenario() -> None:
        (id,) = await collect(store, make_arrival(1))
        await redrive(store, id)
        chosen = Selection(ids=(id,)) if by_ids else EVERYTHING
        do = {LetterEvent.RESOLVED: store.letters.resolve, LetterEvent.REOPENED: store.letters.reopen}
        change = do.get(event, store.letters.delete)
        refused = await change(chosen, **WHO)  # type: ignore[arg-type]
        assert (refused.done, by_status(refused.not_done)) == (0, [1, 0, 0, 0, 0])
        ended = Selection(ids=chosen.ids, filter=chosen.filter, filter_text=chosen.filter_text, ends_waiting=True)
        changed = await change(ended, **WHO)  # type: ignore[arg-type]
        assert (changed.done, changed.not_done) == (1, {})
        assert await counts_kept(store) == await counts_anew(store)
        # Nobody resolves it by its silence afterwards.
        assert await store.operations.resolve_silent(now_ms=NOW_MS + 10**9, limit=10) == 0
        back = await collect(store, make_arrival(2, redriven_id=id, redriven_count=1))
        found = [await store.letters.get(one) for one in back]
        assert [one.status for one in found if one is not None] == [Status.PENDING]
        assert (back == (id,)) is (event is not LetterEvent.DELETED)
        assert await counts_kept(store) == await counts_anew(store)

    run(scenario())


def test_what_is_being_sent_at_this_moment_is_left_even_then(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        operation_id, lease = await begin(store, *ids)
        await store.operations.take(operation_id, lease, limit=1, now_ms=NOW_MS)
        ended = Selection(filter=Filter(), ends_waiting=True)
        changed = await store.letters.delete(ended, **WHO)  # type: ignore[arg-type]
        assert (changed.done, by_status(changed.not_done)) == (1, [0, 0, 0, 1, 0])
        named = await store.letters.delete(Selection(ids=ids, ends_waiting=True), **WHO)  # type: ignore[arg-type]
        assert (named.done, by_status(named.not_done)) == (0, [0, 0, 0, 1, 1])
        assert await statuses(store, ids[0]) == ["retrying"]

    run(scenario())


def test_a_copy_that_lies_in_its_target_is_waited_for_and_not_resolved(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1, queue="orders"), make_arrival(2, queue="mail"))
        elsewhere = await collect(store, make_arrival(3, queue="orders"))
        await redrive(store, *ids)
        await redrive(store, *elsewhere, target=RedriveTarget(exchange="retry", routing_key="orders"))
        late_ms = NOW_MS + 600_000
        looked_at, queues = await store.operations.silent_queues(now_ms=late_ms, limit=10, vhost="/")
        assert (looked_at, sorted(queues)) == (3, ["mail", "orders"])
        waiting = {"orders": "nobody consumes orders, and messages lie there"}
        settled = await store.operations.resolve_silent(now_ms=late_ms, limit=10, vhost="/", waiting=waiting)
        assert settled == 2
        assert await statuses(store, *ids, *elsewhere) == ["waiting", "resolved", "resolved"]
        assert await counts_kept(store) == await counts_anew(store)
        found = await store.letters.get(ids[0])
        assert found is not None
        assert found.status_reason == waiting["orders"]
        settle = store.operations.resolve_silent
        # Looked at again after a while. It still lies there: nothing changes, and no version is used up.
        assert await settle(now_ms=late_ms + 299_000, limit=10) == 0
        assert await settle(now_ms=late_ms + 300_000, limit=10, vhost="/", waiting=waiting) == 0
        assert (await store.letters.get(ids[0])) == replace(found, silent_at_ms=late_ms + 600_000)
        # Somebody takes it: it has all its time again to come back, and is resolved only after that.
        assert await settle(now_ms=late_ms + 600_000, limit=10, vhost="/", waiting={}) == 0
        assert await statuses(store, ids[0]) == ["retrying"]
        assert await counts_kept(store) == await counts_anew(store)
        assert await settle(now_ms=late_ms + 1_199_999, limit=10, vhost="/", waiting={}) == 0
        assert await settle(now_ms=late_ms + 1_200_000, limit=10, vhost="/", waiting={}) == 1
        assert await statuses(store, ids[0]) == ["resolved"]
        assert await counts_kept(store) == await counts_anew(store)
        life = [one.event for one in await store.letters.lifecycle(ids[0])]
        assert life[-3:] == ["waiting", "taken", "silence"]
        # What Redrive did by itself is in the audit, once for each look that did something.
        entries, _ = await store.audit.page(20, who="auto-retry")
        told = [(one.action, one.subject, one.count, one.at_ms - late_ms) for one in reversed(entries)]
        assert told == [
            ("letters.waiting", "orders", 1, 0),
            ("letters.settled", "2 queues", 2, 0),
            ("letters.taken", "orders", 1, 600_000),
            ("letters.settled", "orders", 1, 1_200_000),
        ]
        by_silence = next(one for one in entries if one.count == 2)
        assert sorted(by_silence.detail["ids"]) == sorted((ids[1], *elsewhere))
        assert [one.why for one in entries if one.action == "letters.waiting"] == [waiting["orders"]]

    run(scenario())


def test_a_look_that_settles_thousands_is_one_entry_of_nobody_s_token_and_names_some(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, *(make_arrival(number) for number in range(1, 121)))
        await redrive(store, *ids)
        with acting_as("cli:root"):
            assert await store.operations.resolve_silent(now_ms=NOW_MS + 600_000, limit=1_000) == 120
        (entry,), _ = await store.audit.page(9, action="letters.settled")
        assert (entry.who, entry.token_id, entry.count) == ("auto-retry", "", 120)
        assert len(entry.detail["ids"]) == 100
        assert set(entry.detail["ids"]) <= set(ids)
        assert (await store.audit.verify()).findings == ()

    run(scenario())


def test_letters_of_another_vhost_are_left_alone(store: Store, run: Run) -> None:
    async def scenario() -> None:
        ids = await collect(store, make_arrival(1), make_arrival(2))
        await redrive(store, *ids)
        late_ms = NOW_MS + 600_000
        settle = store.operations.resolve_silent
        assert await store.operations.silent_queues(now_ms=late_ms, limit=10, vhost="other") == (0, frozenset())
        assert await settle(now_ms=late_ms, limit=10, vhost="other") == 0
        assert await statuses(store, *ids) == ["retrying", "retrying"]
        # One that is gone is anybody's to forget.
        await store.letters.delete(Selection(ids=ids[:1], ends_waiting=True), **WHO)  # type: ignore[arg-type]
        assert await store.operations.silent_queues(now_ms=late_ms, limit=10, vhost="other") == (1, frozenset())
        assert await settle(now_ms=late_ms, limit=10, vhost="other") == 0
        assert await store.operations.silent_queues(now_ms=late_ms, limit=10, vhost="other") == (0, frozenset())
        assert await settle(now_ms=late_ms, limit=10, vhost="/") == 1

    run(scenario())


def test_a_silence_that_nobody_listens_to_resolves_nothing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        arrival = make_arrival(1)
        ids = await collect(store, arrival)
        await redrive(store, *ids)
        await store.batches.stop_queue("/", arrival.dlq, "it nears its delivery limit", now_ms=NOW_MS, who="ada")
        await store.operations.resolve_silent(now_ms=LATER_MS, limit=9)
        assert await statuses(store, *ids) == ["retrying"]

    run(scenario())
