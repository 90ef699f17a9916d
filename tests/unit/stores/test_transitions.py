"""Whatever happens to dead letters in whatever order: they change only as the table of states says, every operation
accounts for all of its items, and the counts kept beside them equal a recount."""

import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.records import (
    TRANSITIONS,
    Filter,
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
from redrive.stores import Lease, Store
from tests.examples import examples
from tests.unit.stores.arrivals import (
    NOW_MS,
    claim,
    collect,
    counts_anew,
    counts_kept,
    database_of,
    make_arrival,
    run_out,
)
from tests.unit.stores.conftest import Run

TABLES = (
    "letters contents past_contents edits happenings silences groups tallies activity leases batches operations items "
    "rules"
)
ENDS = (ItemState.SENT, ItemState.REFUSED, ItemState.IN_DOUBT, ItemState.QUEUED)


class World:
    """A store and those who work with it. Each deed says which events it may bring about."""

    def __init__(self, store: Store, data: st.DataObject) -> None:
        self.store = store
        self.data = data
        self.numbers = itertools.count(1_000)
        self.now_ms = NOW_MS
        self.operations: dict[str, Lease | None] = {}
        self.on_the_way: dict[str, list[str]] = {}

    async def clear(self) -> None:
        """Every example begins with an empty store; a new one would take longer than all its deeds."""
        async with database_of(self.store).write() as tx:
            for table in TABLES.split():
                await tx.run(f"DELETE FROM {table}")  # noqa: S608 - names of ours
            if self.store.kind == "sqlite":
                await tx.run("DELETE FROM search_texts")
                await tx.run("INSERT INTO letter_words (letter_words) VALUES ('delete-all')")
            else:
                await tx.run("DELETE FROM letter_words")

    async def collect(self) -> None:
        kinds: tuple[dict[str, str | None], ...] = (
            {},
            {"queue": "mail", "service": "post"},
            {"group_id": "others", "type": None},
        )
        await collect(self.store, *(make_arrival(next(self.numbers), **self._one_of(kinds)) for _ in range(2)))

    async def come_back(self) -> None:
        id = self._one_of(sorted(await self.letters()) or ["nobody"])
        letter = await self.store.letters.get(id)
        count = 0 if letter is None else letter.redrives - self._one_of((0, 0, 0, 1))
        await collect(self.store, make_arrival(next(self.numbers), redriven_id=id, redriven_count=count, queue="mail"))

    async def create(self) -> None:
        id = make_id(NOW_MS, next(self.numbers))
        doubtful = self._one_of((True, False))
        selection = Selection(filter=Filter(), includes_in_doubt=doubtful, limit=self._one_of((None, 1)))
        kind = self._one_of((OperationKind.REDRIVE, OperationKind.RESTORE))
        await self.store.operations.create(NewOperation(kind=kind, selection=selection), id=id, now_ms=self.now_ms)
        self.operations[id] = None

    async def create_due(self) -> None:
        id = make_id(NOW_MS, next(self.numbers))
        if await self.store.operations.create_due(id=id, who="auto", now_ms=self.now_ms + 10**6, limit=3):
            self.operations[id] = None

    async def claim(self) -> None:
        if self.operations:
            id = self._one_of(sorted(self.operations))
            self.now_ms += 100_000
            before = self.operations[id]
            if before is not None:
                await run_out(self.store, before)
            self.operations[id] = await claim(self.store, id, f"runner {next(self.numbers)}", self.now_ms)
            self.on_the_way[id] = []

    async def take(self) -> None:
        for id, lease in self.operations.items():
            if lease is not None:
                taken = await self.store.operations.take(id, lease, limit=2, now_ms=self.now_ms)
                self.on_the_way[id] += [one.id for one in taken]

    async def record(self) -> None:
        for id, lease in self.operations.items():
            if lease is not None:
                ends = [SendResult(id=one, state=self._one_of(ENDS), reason="told") for one in self.on_the_way[id]]
                await self.store.operations.record(id, lease, ends, now_ms=self.now_ms)
                self.on_the_way[id] = []

    async def cancel(self) -> None:
        if self.operations:
            await self.store.operations.cancel(self._one_of(sorted(self.operations)), who="ada", now_ms=self.now_ms)

    async def settle(self) -> None:
        await self.store.operations.resolve_silent(now_ms=self.now_ms + 10**9, limit=5)

    async def resolve(self) -> None:
        await self.store.letters.resolve(Selection(filter=Filter(), limit=2), who="ada", why="", now_ms=self.now_ms)

    async def reopen(self) -> None:
        await self.store.letters.reopen(Selection(filter=Filter(), limit=2), who="ada", why="", now_ms=self.now_ms)

    async def delete(self) -> None:
        await self.store.letters.delete(Selection(filter=Filter(), limit=1), who="ada", why="", now_ms=self.now_ms)

    async def set_rule(self) -> None:
        rule = RetryRule(scope=self._one_of(("*", "queue:mail")), attempts=self._one_of((1, 3)))
        await self.store.rules.set(rule, now_ms=self.now_ms)

    async def letters(self) -> dict[str, Status]:
        async with database_of(self.store).read() as tx:
            return {id: Status(status) for id, status in await tx.rows("SELECT id, status FROM letters")}

    def _one_of(self, values: Any) -> Any:
        return self.data.draw(st.sampled_from(values))


DEEDS: dict[str, tuple[LetterEvent, ...]] = {
    "collect": (),
    "come_back": (LetterEvent.CAME_BACK, LetterEvent.SPENT),
    "create": (),
    "create_due": (),
    "claim": (LetterEvent.LOST,),
    "take": (LetterEvent.CLAIMED,),
    "record": (LetterEvent.CONFIRMED, LetterEvent.REFUSED, LetterEvent.LOST, LetterEvent.SILENCE),
    "cancel": (),
    "settle": (LetterEvent.SILENCE,),
    "resolve": (LetterEvent.RESOLVED,),
    "reopen": (LetterEvent.REOPENED,),
    "delete": (LetterEvent.DELETED,),
    "set_rule": (),
}


def misses(before: dict[str, Status], after: dict[str, Status], events: tuple[LetterEvent, ...]) -> list[str]:
    """Changes that the table does not have for these events; new letters must be pending."""
    found = []
    for id in before.keys() | after.keys():
        old, new = before.get(id), after.get(id)
        if old is None:
            if new is not Status.PENDING:
                found.append(f"{id} began as {new}")
        elif old is not new and not any(
            (old, event) in TRANSITIONS and TRANSITIONS[old, event] is new for event in events
        ):
            found.append(f"{id}: {old} became {new}")
    return found


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_dead_letters_change_only_as_the_table_says_and_the_counts_stay_true(
    store: Store, run: Run, data: st.DataObject
) -> None:
    async def scenario() -> None:
        world = World(store, data)
        await world.clear()
        await world.collect()
        # Sendings need several deeds in a row, so those that lead there are drawn more often.
        names = [*DEEDS, "create", "claim", "take", "take", "record", "record", "come_back"]
        for _ in range(data.draw(st.integers(5, 25))):
            name = data.draw(st.sampled_from(names))
            before = await world.letters()
            await getattr(world, name)()
            assert misses(before, await world.letters(), DEEDS[name]) == []
            assert await counts_kept(store) == await counts_anew(store)
        async with database_of(store).read() as tx:
            counted = "count(*) FILTER (WHERE i.state = $1)"
            for state in ("sending", "sent", "refused", "in_doubt", "skipped"):
                sql = "SELECT o.id, o.{0}, {1} FROM operations AS o LEFT JOIN items AS i ON i.operation_seq = o.seq "
                rows = await tx.rows(sql.format(state, counted) + "GROUP BY o.id, o." + state, state)
                assert [row for row in map(tuple, rows) if row[1] != row[2]] == []
            stray = "SELECT count(*) FROM letters WHERE silent_at_ms IS NOT NULL AND status <> 'retrying'"
            assert await tx.value(stray) == 0
            stray = "SELECT count(*) FROM letters WHERE due_at_ms IS NOT NULL AND status <> 'pending'"
            assert await tx.value(stray) == 0

    run(scenario())


def test_the_check_itself_notices_a_change_that_is_not_in_the_table() -> None:
    assert misses({"a": Status.RETRYING}, {}, (LetterEvent.SILENCE,)) == ["a: retrying became None"]
    assert misses({"a": Status.PENDING}, {"a": Status.RESOLVED}, (LetterEvent.SILENCE,)) == [
        "a: pending became resolved"
    ]
    assert misses({}, {"a": Status.FAILED}, ()) == ["a began as failed"]
    assert misses({"a": Status.PENDING}, {"a": Status.RETRYING}, (LetterEvent.CLAIMED,)) == []
