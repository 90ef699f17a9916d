"""Compares what a store selects with what `records.matches` says, letter by letter, for everything that selects."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from redrive.records import (
    DeadLetter,
    Filter,
    LetterEvent,
    NewOperation,
    OperationKind,
    Selection,
    Status,
    make_id,
    matches,
    statuses_allowing,
)
from redrive.stores import ExportedLetter, Store
from redrive.stores.message_contents import headers_of
from redrive.stores.search import walk as searching
from redrive.stores.search.full_text import forget_words
from tests.selections.filters import draw_filter
from tests.selections.letters import draw_letter
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.made_letters import NOW_MS, put

ROUND_LETTERS, ROUND_FILTERS = 100, 50
REDRIVES, DELETES = 5, 5
"""How many filters of a round also make an operation, and how many delete."""
TABLES = ("letters", "contents", "happenings", "tallies", "groups", "activity", "audit", "operations", "items")


@dataclass(slots=True)
class Result:
    """Pairs that were compared, and each difference in a line."""

    pairs: int = 0
    selected: int = 0
    differences: list[str] = field(default_factory=list)


async def audit_round(
    stores: Sequence[Store], seed: int, *, letters: int = ROUND_LETTERS, filters: int = ROUND_FILTERS
) -> Result:
    """One round: letters and filters of a seed, on each of the stores; every other round as if letters were many."""
    luck = Random(seed)
    made = [draw_letter(luck, number) for number in range(letters)]
    drawn = [draw_filter(luck, made) for _ in range(filters)]
    result = Result()
    for number, store in enumerate(stores):
        await clear(store)
        await put(store, made)
        with as_if_many() if seed % 2 else nullcontext():
            audited = await _audit(store, made, drawn, seed)
        # A pair is one whatever the number of stores.
        result.pairs += audited.pairs if number == 0 else 0
        result.selected += audited.selected if number == 0 else 0
        result.differences += audited.differences
    return result


@contextmanager
def as_if_many() -> Iterator[None]:
    """Letters are looked at a few at a time, and the full-text index is always too slow for whoever is in a hurry."""
    ask = searching.Walk._from_index

    async def ask_slowly(self: searching.Walk, query: str, *arguments: object) -> list[int] | None:
        return await ask(self, query, *arguments) if self._until_s is None else None

    with (
        patch.multiple(searching, LONG=0, SMALL=0, NEAR=8, WINDOWS=(8, 16)),
        patch.object(searching.Walk, "_from_index", ask_slowly),
    ):
        yield


async def clear(store: Store) -> None:
    """Empties the store."""
    async with database_of(store).write() as tx:
        await forget_words(tx, [row[0] for row in await tx.rows("SELECT seq FROM letters")])
        for table in TABLES:
            await tx.run(f"DELETE FROM {table}")  # noqa: S608 - ours


def selected(filter: Filter, letters: Sequence[DeadLetter], made: Sequence[ExportedLetter]) -> set[str]:
    """What the filter means."""
    contents = {each.letter.id: each.content for each in made}
    return {
        letter.id
        for letter in letters
        if matches(
            filter,
            letter,
            headers=headers_of(contents[letter.id].properties),
            body=contents[letter.id].body,
            now_ms=NOW_MS,
        )
    }


async def stored(store: Store) -> list[DeadLetter]:
    """All letters, as they are in the store."""
    return await listed(store, Filter(), limit=1_000)


async def listed(store: Store, filter: Filter, *, limit: int, newest_first: bool = True) -> list[DeadLetter]:
    """All pages."""
    found: list[DeadLetter] = []
    cursor = None
    while True:
        page = await store.letters.page(filter, limit=limit, cursor=cursor, newest_first=newest_first, now_ms=NOW_MS)
        found += page.letters
        cursor = page.next_cursor
        if cursor is None:
            return found


async def _audit(store: Store, made: Sequence[ExportedLetter], filters: Sequence[Filter], seed: int) -> Result:
    result = Result()
    letters = await stored(store)
    claimable = {letter.id for letter in letters if letter.status in _claimable()}
    for number, filter in enumerate(filters):
        expected = selected(filter, letters, made)
        result.pairs += len(letters)
        result.selected += len(expected)

        def compare(what: str, found: object, wanted: object, filter: Filter = filter) -> None:
            if found != wanted:
                result.differences.append(f"seed {seed}, {store.kind}, {what}: {found!r} is not {wanted!r} of {filter}")

        found = [letter.id for letter in await listed(store, filter, limit=7, newest_first=number % 2 == 0)]
        compare("listed twice", len(found), len(set(found)))
        compare("list", set(found) ^ expected, set())
        compare("count", await store.letters.count(filter, now_ms=NOW_MS), len(expected))
        selection = Selection(filter=filter, filter_text="drawn")
        preview = await store.operations.preview(selection, now_ms=NOW_MS)
        compare("preview", preview.total, len(expected & claimable))
        compare("left alone", sum(preview.left_alone.values()), len(expected - claimable))
        exported = {each.letter.id async for each in store.letters.stream(filter, now_ms=NOW_MS)}
        compare("export", exported ^ expected, set())
        if number < REDRIVES:
            new = NewOperation(kind=OperationKind.REDRIVE, selection=selection, who="auditor")
            operation = await store.operations.create(new, id=make_id(NOW_MS, number), now_ms=NOW_MS)
            items, _ = await store.operations.items(operation.id, limit=1_000)
            compare("redrive", {item.letter_id for item in items} ^ (expected & claimable), set())
    for filter in filters[-DELETES:]:
        expected = selected(filter, letters, made)
        # What may not be deleted now, and whether doubtful ones are, is decided elsewhere.
        sure = {
            letter.id
            for letter in letters
            if letter.id in expected and letter.status in (Status.PENDING, Status.FAILED, Status.RESOLVED)
        }
        await store.letters.delete(Selection(filter=filter, filter_text="drawn"), who="auditor", why="", now_ms=NOW_MS)
        left = await stored(store)
        gone = {letter.id for letter in letters} - {letter.id for letter in left}
        if not sure <= gone <= expected:
            wrong = (sure - gone) | (gone - expected)
            result.differences.append(f"seed {seed}, {store.kind}, delete: {wrong} are wrong for {filter}")
        letters = left
    return result


def _claimable() -> set[Status]:
    return set(statuses_allowing(LetterEvent.CLAIMED)) - {Status.IN_DOUBT}
