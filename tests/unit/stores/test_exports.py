"""Out of one store and into another: everything arrives as it was, under its own id, once."""

from pathlib import Path

import msgspec
import pytest

from redrive.core import Attempt
from redrive.records import (
    Filter,
    LifecycleEntry,
    MessageContent,
    NameTerm,
    NumberTerm,
    RetryRule,
    Selection,
    Status,
    WordsTerm,
)
from redrive.stores import EarlierContent, ExportedEdit, ExportedLetter, ImportResult, Store, open_store
from redrive.stores.letters import exports as exporting
from redrive.stores.search import walk as searching
from redrive.wire import Properties
from tests.unit.stores.arrivals import (
    LATER_MS,
    OTHER_OPERATION_ID,
    begin,
    collect,
    counts_anew,
    counts_kept,
    make_arrival,
    statuses,
)
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, on_store, put

ODD = bytes(range(256))
WHOLE = ExportedLetter(
    letter=make_letter(
        1,
        status=Status.IN_DOUBT,
        version=5,
        is_edited=True,
        stack="a\nb",
        copy_of="x",
        group_id="g",
        size_bytes=256,
        returns=5,
        forgiven=4,
    ),
    content=MessageContent(
        properties=Properties.of(headers={"x": ODD, "n": 1, "t": True, "said": "one two one three"}).raw, body=ODD
    ),
    history=(Attempt(number=1, at_ms=7, error="E: é"),),
    earlier_contents=(EarlierContent(at_ms=1, redrives=1, content=MessageContent(properties=b"\x00\x00", body=ODD)),)
    * 2,
    edits=(
        ExportedEdit(at_ms=1, who="a", why="b", diff="c", content=MessageContent(properties=b"\x00\x00", body=b"")),
    ),
    lifecycle=((2, LifecycleEntry(at_ms=3, event="claimed", who="a", detail="b", operation_id="o")),),
    group_title="E: é",
)


async def everything(store: Store, filter: Filter | None = None) -> list[ExportedLetter]:
    return [each async for each in store.letters.stream(filter or Filter(), now_ms=NOW_MS)]


def test_what_comes_in_is_what_went_out(store_url: str, tmp_path: Path) -> None:
    async def work(store: Store) -> None:
        await put(store, [WHOLE, make_letter(2, queue="other", error_type=None, service=None)])
        out = await everything(store)
        assert out[0] == WHOLE
        lines = [msgspec.json.encode(each) for each in out]
        async with await open_store(f"sqlite:///{tmp_path}/other.db") as other:
            batch = [msgspec.json.decode(line, type=ExportedLetter) for line in lines]
            imported = await other.letters.insert_exported(batch, who="ann", now_ms=NOW_MS)
            assert imported == ImportResult(inserted=2, skipped=0)
            assert await everything(other) == out
            assert await other.stats.totals(now_ms=NOW_MS) == await store.stats.totals(now_ms=NOW_MS)
            phrase = Filter((WordsTerm(words=("two", "one"), is_phrase=True),))
            assert await other.letters.count(phrase, now_ms=NOW_MS) == 1
            (entry,), _ = await other.audit.page(5)
            assert (entry.action, entry.count, entry.who) == ("letters.imported", 2, "ann")

    on_store(store_url, work)


def test_a_budget_that_a_person_began_anew_is_still_new_in_another_store(store_url: str) -> None:
    async def work(store: Store) -> None:
        await store.rules.set(RetryRule(scope="*", attempts=3), now_ms=NOW_MS)
        pending = [
            make_letter(number, status=Status.PENDING, returns=5, forgiven=forgiven, due_at_ms=NOW_MS)
            for number, forgiven in ((1, 4), (2, 0))
        ]
        await store.letters.insert_exported([make_exported(one) for one in pending], who="ann", now_ms=NOW_MS)
        assert [each.letter.due_at_ms for each in await everything(store)] == [NOW_MS, None]

    on_store(store_url, work)


def test_a_letter_that_is_there_is_left_as_it_is(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(1, queue="first")])
        batch = [make_exported(make_letter(number, queue="second")) for number in (1, 2, 2)]
        imported = await store.letters.insert_exported(batch, who="ann", now_ms=NOW_MS)
        assert imported == ImportResult(inserted=1, skipped=2)
        assert [each.letter.queue for each in await everything(store)] == ["first", "second"]
        assert await store.letters.insert_exported([], who="ann", now_ms=NOW_MS) == ImportResult(inserted=0, skipped=0)
        assert (await store.stats.totals(now_ms=NOW_MS)).total == 2

    on_store(store_url, work)


def test_a_stream_is_read_in_pieces_that_fit(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PIECE", 4)
    monkeypatch.setattr(exporting, "BYTES_MAX", 20)
    made = [make_exported(make_letter(n, queue=f"q{n % 2}", size_bytes=9), body="same") for n in range(23)]

    async def work(store: Store) -> None:
        await put(store, made)
        assert [each.letter.id for each in await everything(store)] == [each.letter.id for each in made]
        chosen = await everything(store, Filter((NameTerm(field="queue", values=("q1",)), WordsTerm(words=("same",)))))
        assert [each.letter.id for each in chosen] == [each.letter.id for each in made[1::2]]

    on_store(store_url, work)


def test_an_export_of_what_no_index_answers_has_all_of_it(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that is full before the window's edge is not the end."""
    monkeypatch.setattr(exporting, "PIECE", 2)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, "WINDOWS", (8, 8))
    made = [make_exported(make_letter(number, attempts=number % 2)) for number in range(20)]

    async def work(store: Store) -> None:
        await put(store, made)
        found = await everything(store, Filter((NumberTerm(field="attempts", low=1, high=1),)))
        assert [each.letter.id for each in found] == [each.letter.id for each in made[1::2]]

    on_store(store_url, work)


def test_an_import_is_not_due_in_a_store_that_has_no_rule_for_it(store: Store, run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        await store.rules.set(RetryRule(scope="*"), now_ms=NOW_MS)
        ids = await collect(store, make_arrival(1))
        exported = [one async for one in store.letters.stream(Filter(), now_ms=NOW_MS)]
        assert exported[0].letter.due_at_ms is not None
        async with await open_store(f"sqlite:///{tmp_path}/ruled.db") as ruled:
            await ruled.rules.set(RetryRule(scope="queue:orders"), now_ms=NOW_MS)
            await ruled.letters.insert_exported(exported, who="ada", now_ms=NOW_MS)
            due = await ruled.operations.create_due(id=OTHER_OPERATION_ID, who="auto", now_ms=LATER_MS, limit=9)
            assert due is not None
            assert due.total == 1
        async with await open_store(f"sqlite:///{tmp_path}/bare.db") as bare:
            await bare.letters.insert_exported(exported, who="ada", now_ms=NOW_MS)
            assert await bare.operations.create_due(id=OTHER_OPERATION_ID, who="auto", now_ms=LATER_MS, limit=9) is None
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
