"""What people do at the desk, on a real SQLite store: what is changed, what is refused, and in which words."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from redrive.core import Finding
from redrive.deadletters.actions.dead_letter_service import ActionRefused, DeadLetterService
from redrive.deadletters.actions.edits import InvalidEdit, LetterEdit
from redrive.deadletters.redrive.preflight import Preflight, TargetRefused
from redrive.deadletters.redrive.redrive_service import RedriveService
from redrive.records import (
    Filter,
    GroupState,
    ItemState,
    NameTerm,
    NewOperation,
    OperationKind,
    OperationState,
    RedriveTarget,
    Selection,
    SendResult,
    Status,
)
from redrive.stores import Store, UnknownOperation, VersionConflict, open_store
from redrive.wire import Properties
from tests.unit.deadletters.arrivals import arrival, now_ms, random_bits, store_arrivals

FIT = Preflight(targets=(), findings=())
UNFIT = Preflight(targets=(), findings=(Finding(code="target-missing", address="queue orders", summary="it is gone"),))


class Office:
    """A store with three dead letters, and both desks."""

    def __init__(self, store: Store, ids: tuple[str, ...]) -> None:
        self.store = store
        self.ids = ids
        self.preflight = FIT
        self.desk = DeadLetterService(store, clock_ms=now_ms)
        self.redrives = RedriveService(store, clock_ms=now_ms, random_bits=random_bits, check_targets=self._check)

    async def _check(self, queues: object, target: RedriveTarget) -> Preflight:
        return self.preflight

    async def status(self, id: str) -> Status:
        letter = await self.store.letters.get(id)
        assert letter is not None
        return letter.status

    async def send(self, id: str, state: ItemState) -> None:
        """An operation that ends for this dead letter as said."""
        operation = await self.redrives.retry_manually(id, who="ann")
        lease = await self.store.leases.acquire(f"operation:{operation.id}", "test", ttl_ms=60_000)
        assert lease is not None
        assert await self.store.operations.claim(operation.id, lease, now_ms=now_ms()) is not None
        assert len(await self.store.operations.take(operation.id, lease, limit=1, now_ms=now_ms(), turn=1)) == 1
        await self.store.operations.record(operation.id, lease, [SendResult(id=id, state=state)], now_ms=now_ms())

    async def actions(self) -> list[tuple[str, str, str]]:
        """The audit, oldest first: who, what, why."""
        entries = (await self.store.audit.page(100))[0]
        return [(entry.who, entry.action, entry.why) for entry in reversed(entries)]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Office], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[Office], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), await open_store(f"sqlite:///{tmp_path / 'desk.db'}") as store:
                arrivals = [arrival(Properties.of(message_id=f"m{n}"), b'{"n": %d}' % n) for n in range(3)]
                await store_arrivals(store, arrivals)
                await scenario(Office(store, tuple(one.id for one in arrivals)))

        asyncio.run(main())

    return run


Play = Callable[[Callable[[Office], Coroutine[Any, Any, None]]], None]


def test_booklys_operations(play: Play) -> None:
    async def scenario(on: Office) -> None:
        first, second, third = on.ids
        assert (await on.desk.get_stats()).by_status == {"pending": 3}
        resolved = await on.desk.resolve_manually(first, "ann", "refunded by hand")
        assert (resolved.status, resolved.resolved_by) == (Status.RESOLVED, "ann")
        operation = await on.redrives.retry_manually(second, who="ann", why="the service is up again")
        assert (operation.state, operation.total, operation.who) == (OperationState.WAITING, 1, "ann")
        await on.desk.remove(third, who="ann")
        assert await on.store.letters.get(third) is None
        listed = await on.desk.list(Filter((NameTerm(field="status", values=("pending",)),)))
        assert [letter.id for letter in listed.letters] == [second]
        assert (await on.desk.get_stats()).by_status == {"pending": 1, "resolved": 1}
        assert await on.actions() == [
            ("ann", "letters.resolved", "refunded by hand"),
            ("ann", "redrive.created", "the service is up again"),
            ("ann", "letters.deleted", ""),
        ]

    play(scenario)


def test_what_is_on_its_way_is_neither_resolved_nor_removed_nor_edited(play: Play) -> None:
    async def scenario(on: Office) -> None:
        first = on.ids[0]
        await on.send(first, ItemState.SENT)
        with pytest.raises(ActionRefused, match="a copy may be on its way"):
            await on.desk.resolve_manually(first, "ann", "done")
        with pytest.raises(ActionRefused, match="a copy may be on its way"):
            await on.desk.remove(first, who="ann")
        with pytest.raises(ActionRefused, match="is on its way; edit it when it comes back"):
            await on.desk.edit(first, LetterEdit(body=b"x"), who="ann", why="typo")
        with pytest.raises(ActionRefused, match="nothing to send back: what matches is left alone"):
            await on.redrives.retry_manually(first, who="ann")
        assert await on.status(first) is Status.RETRYING

    play(scenario)


def test_a_doubt_is_settled_by_whoever_knows(play: Play) -> None:
    async def scenario(on: Office) -> None:
        first, second, third = on.ids
        for one in (first, second):
            await on.send(one, ItemState.IN_DOUBT)
        arrived = await on.desk.settle_doubt(first, arrived=True, who="ann", why="it is in the ledger")
        assert (arrived.status, arrived.status_reason) == (Status.RESOLVED, "it arrived: it is in the ledger")
        lost = await on.desk.settle_doubt(second, arrived=False, who="ann", why="the ledger has no such entry")
        assert lost.status is Status.PENDING
        with pytest.raises(ActionRefused, match="is pending, not in doubt"):
            await on.desk.settle_doubt(third, arrived=True, who="ann", why="?")

    play(scenario)


def test_an_edit_is_what_a_redrive_sends_and_its_difference_is_kept(play: Play) -> None:
    async def scenario(on: Office) -> None:
        first = on.ids[0]
        edited = await on.desk.edit(
            first, LetterEdit(body=b'{"n": 7}', set_headers={"tenant": "b"}), who="ann", why="wrong tenant"
        )
        assert edited.is_edited
        content = await on.store.letters.content(first)
        original = await on.store.letters.content(first, edited=False)
        assert content is not None
        assert original is not None
        assert (content.body, original.body) == (b'{"n": 7}', b'{"n": 0}')
        assert Properties(content.properties).headers == {"tenant": "b"}
        entry = (await on.store.audit.page(1))[0][0]
        assert (entry.action, entry.why) == ("letter.edited", "wrong tenant")
        assert '-{"n": 0}' in entry.detail["diff"]
        with pytest.raises(VersionConflict):
            await on.desk.edit(first, LetterEdit(body=b"x"), who="ann", why="again", if_version=edited.version - 1)
        with pytest.raises(InvalidEdit, match="changes nothing"):
            await on.desk.edit(first, LetterEdit(), who="ann", why="again")

    play(scenario)


def test_groups_are_acknowledged_ignored_resolved_and_noted(play: Play) -> None:
    async def scenario(on: Office) -> None:
        assert (await on.desk.acknowledge_group("group1", who="ann")).state is GroupState.ACKNOWLEDGED
        assert (await on.desk.ignore_group("group1", who="ann", why="known")).state is GroupState.IGNORED
        assert (await on.desk.resolve_group("group1", who="ann", why="mended")).state is GroupState.RESOLVED
        assert (await on.desk.reopen_group("group1", who="ann")).state is GroupState.OPEN
        noted = await on.desk.add_note("group1", "see the ticket", who="ann")
        assert [(note.who, note.text) for note in noted.notes] == [("ann", "see the ticket")]
        with pytest.raises(ActionRefused, match="there is no group nobody"):
            await on.desk.acknowledge_group("nobody", who="ann")
        with pytest.raises(ActionRefused, match="the note is empty"):
            await on.desk.add_note("group1", "  ", who="ann")

    play(scenario)


def test_a_selection_is_resolved_and_reopened_as_a_whole(play: Play) -> None:
    async def scenario(on: Office) -> None:
        everything = Selection(filter=Filter())
        assert (await on.desk.resolve(everything, who="ann", why="all refunded")).done == 3
        assert (await on.desk.reopen(everything, who="ann")).done == 3
        assert (await on.desk.delete(Selection(ids=(*on.ids[:2], "nobody")), who="ann")).refused.keys() == {"nobody"}
        assert [letter.id for letter in (await on.desk.list(Filter())).letters] == [on.ids[2]]

    play(scenario)


def test_a_plan_counts_and_changes_nothing_and_an_unfit_target_refuses_the_start(play: Play) -> None:
    async def scenario(on: Office) -> None:
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(filter=Filter()), who="ann")
        on.preflight = UNFIT
        plan = await on.redrives.plan(new)
        assert (plan.preview.total, plan.preview.by_queue, plan.preflight) == (3, {"orders": 3}, UNFIT)
        with pytest.raises(TargetRefused, match="queue orders: it is gone"):
            await on.redrives.start(new)
        assert (await on.store.operations.page(10))[0] == []
        assert await on.actions() == []

    play(scenario)


def test_an_operation_is_paused_resumed_and_cancelled_once(play: Play) -> None:
    async def scenario(on: Office) -> None:
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=on.ids), who="ann")
        id = (await on.redrives.start(new)).id
        with pytest.raises(ActionRefused, match="is waiting, not paused"):
            await on.redrives.resume(id, who="ann")
        paused = await on.redrives.pause(id, who="ann")
        assert (paused.state, paused.note) == (OperationState.PAUSED, "paused by ann")
        assert (await on.redrives.resume(id, who="ann")).state is OperationState.WAITING
        cancelled = await on.redrives.cancel(id, who="ann")
        assert (cancelled.state, cancelled.skipped) == (OperationState.CANCELLED, 3)
        with pytest.raises(ActionRefused, match="has ended: it is cancelled"):
            await on.redrives.cancel(id, who="ann")
        with pytest.raises(UnknownOperation):
            await on.redrives.pause("nobody", who="ann")
        assert {await on.status(one) for one in on.ids} == {Status.PENDING}

    play(scenario)


EVERYTHING = Selection(filter=Filter())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"selection": Selection()}, "choose which dead letters"),
        ({"selection": Selection(ids=("a",), filter=Filter())}, "not by both"),
        ({"selection": Selection(filter=Filter(), limit=0)}, "a limit of 0 takes nothing"),
        ({"rate_per_s": 0.0}, "a rate of 0 messages a second"),
        ({"rate_per_s": float("nan")}, "a rate of nan"),
        ({"ramp": (1, 0)}, "a ramp is at most 20 batches"),
        ({"settle_s": 0}, "must be above zero"),
        ({"target": RedriveTarget(exchange="retry.{queeu}")}, "a placeholder other than {queue}"),
        ({"who": " "}, "say who you are"),
        ({"who": "a" * 201}, "longer than 200 characters"),
        ({"why": "a" * 2001}, "the reason is longer than 2,000 characters"),
    ],
)
def test_what_can_not_be_asked_for_is_refused_in_a_sentence(play: Play, fields: dict[str, Any], reason: str) -> None:
    async def scenario(on: Office) -> None:
        known: dict[str, Any] = {"kind": OperationKind.REDRIVE, "selection": EVERYTHING, "who": "ann"}
        with pytest.raises(ActionRefused, match=reason):
            await on.redrives.start(NewOperation(**{**known, **fields}))

    play(scenario)


def test_a_resolution_needs_a_reason_and_unknown_ones_are_said(play: Play) -> None:
    async def scenario(on: Office) -> None:
        with pytest.raises(ActionRefused, match="say why"):
            await on.desk.resolve_manually(on.ids[0], "ann", " ")
        for call in (
            on.desk.resolve_manually("nobody", "ann", "x"),
            on.desk.remove("nobody", who="ann"),
            on.redrives.retry_manually("nobody", who="ann"),
        ):
            with pytest.raises(ActionRefused, match="there is no dead letter nobody"):
                await call
        with pytest.raises(ActionRefused, match="a page has 1 to 1000"):
            await on.desk.list(Filter(), limit=0)

    play(scenario)
