"""An expensive filter runs in a thread, piece by piece; one that takes too long is refused, never half answered."""

import asyncio
import json
import time

import pytest

from redrive.records import BodyTerm, DeadLetter, Filter, NewOperation, OperationKind, Selection, make_id
from redrive.stores import FilterTooExpensive, Store
from redrive.stores.search import offload as evaluating
from redrive.stores.search import walk as searching
from redrive.stores.search.budgets import VIEW_BUDGET, SearchBudget, within_budget
from redrive.stores.search.offload import check_contents_offloaded
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, put

LETTERS = 6
LARGE = {"a": [[n, f"v{n}"] for n in range(20_000)]}
EXPENSIVE = Filter(tuple(BodyTerm(path=("a", "*", "1"), value=f"zz{n}*", negated=True) for n in range(20)))


@pytest.fixture
def large(store: Store, run: Run) -> Store:
    """A store with letters of a third of a megabyte."""
    body = json.dumps(LARGE).encode()
    made = [make_exported(make_letter(n, size_bytes=len(body)), body=body) for n in range(LETTERS)]
    run(put(store, made))
    return store


async def longest_wait_s(until: "asyncio.Task[object]") -> float:
    """How long the event loop was away at most."""
    longest, last = 0.0, time.perf_counter()
    while not until.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def test_a_dear_filter_leaves_the_event_loop_alone(large: Store, run: Run) -> None:
    async def scenario() -> None:
        asking = asyncio.create_task(large.letters.page(EXPENSIVE, limit=50, now_ms=NOW_MS))
        longest_s = await longest_wait_s(asking)
        page = asking.result()
        assert page.letters or page.is_partial
        # It was away all the time: a second for each letter.
        assert longest_s < 0.3

    run(scenario())


@pytest.mark.slow
def test_pages_of_a_dear_filter_are_partial_and_lead_to_everything(large: Store, run: Run) -> None:
    async def scenario() -> None:
        found: list[DeadLetter] = []
        cursor, partial = None, 0
        while True:
            page = await large.letters.page(EXPENSIVE, limit=50, cursor=cursor, now_ms=NOW_MS)
            found += page.letters
            partial += page.is_partial
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len({letter.id for letter in found}) == len(found) == LETTERS
        assert partial > 0

    run(scenario())


def test_what_takes_too_long_as_a_whole_is_refused(large: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    short = SearchBudget(seconds=0.05, content_bytes=1 << 30)
    for room in (
        "letters.letters",
        "operations.operations",
        "letters.changes",
        "statistics",
        "operations.frozen_selection",
        "search.walk",
    ):
        for name in ("VIEW_BUDGET", "SELECT_BUDGET"):
            monkeypatch.setattr(f"redrive.stores.{room}.{name}", short, raising=False)
    selection = Selection(filter=EXPENSIVE, filter_text="expensive")

    async def scenario() -> None:
        with pytest.raises(FilterTooExpensive, match=r"takes longer than 0\.05 s"):
            await large.letters.count(EXPENSIVE, now_ms=NOW_MS)
        with pytest.raises(FilterTooExpensive):
            await large.operations.preview(selection, now_ms=NOW_MS)
        with pytest.raises(FilterTooExpensive):
            await large.stats.totals(EXPENSIVE, now_ms=NOW_MS)
        with pytest.raises(FilterTooExpensive):
            await large.letters.delete(selection, who="ada", why="", now_ms=NOW_MS)
        new = NewOperation(kind=OperationKind.REDRIVE, selection=selection, who="ada")
        with pytest.raises(FilterTooExpensive):
            await large.operations.create(new, id=make_id(NOW_MS, 1), now_ms=NOW_MS)
        assert await large.letters.count(Filter(), now_ms=NOW_MS) == LETTERS
        assert await large.operations.get(make_id(NOW_MS, 1)) is None

    run(scenario())


def test_who_reads_too_much_as_a_whole_is_refused(large: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.stores.letters.letters.VIEW_BUDGET", SearchBudget(seconds=60, content_bytes=1 << 20))
    monkeypatch.setattr(searching, "CONTENTS_BYTES_MAX", 1 << 19)

    async def scenario() -> None:
        cheap = Filter((BodyTerm(path=("a", "0", "1"), value="v0"),))
        with pytest.raises(FilterTooExpensive, match="1,048,576 bytes"):
            await large.letters.count(cheap, now_ms=NOW_MS)

    run(scenario())


def test_one_letter_that_is_too_much_is_named_as_such(large: Store, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "LETTER_COST_MAX", 10_000_000)

    async def scenario() -> None:
        with pytest.raises(FilterTooExpensive, match="too many values of one dead letter; narrow it down"):
            await large.letters.page(EXPENSIVE, limit=1, now_ms=NOW_MS)
        cheap = Filter((BodyTerm(path=("a", "0", "1"), value="v0"),))
        assert len((await large.letters.page(cheap, limit=1, now_ms=NOW_MS)).letters) == 1

    run(scenario())


def test_the_thread_ends_work_that_nobody_waits_for(large: Store, run: Run) -> None:
    async def scenario() -> None:
        asking = asyncio.create_task(large.letters.count(EXPENSIVE, now_ms=NOW_MS))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        began_s = time.perf_counter()
        await check_contents_offloaded([None], ())
        assert time.perf_counter() - began_s < 0.5

    run(scenario())


def test_dear_filters_take_turns_and_others_do_not_wait_for_them(large: Store, run: Run) -> None:
    async def scenario() -> None:
        expensive = [asyncio.create_task(large.letters.page(EXPENSIVE, limit=50, now_ms=NOW_MS)) for _ in range(8)]
        await asyncio.sleep(0.02)
        began_s = time.perf_counter()
        for _ in range(20):
            assert len((await large.letters.page(Filter(), limit=5, now_ms=NOW_MS)).letters) == 5
        assert not all(task.done() for task in expensive), "nothing was under way"
        assert (time.perf_counter() - began_s) / 20 < 0.15
        for task in expensive:
            task.cancel()
        await asyncio.gather(*expensive, return_exceptions=True)

    run(scenario())


def test_a_time_limit_of_somebody_else_is_not_ours(store: Store, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with within_budget(VIEW_BUDGET, database_of(store)):
                raise TimeoutError

    run(scenario())
