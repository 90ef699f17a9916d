"""The audit: what was noted is found, the newest first, whatever it holds."""

import pytest

from redrive.stores import InvalidCursor, Store
from redrive.stores.audit import write_audit
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.audit_entries import entry
from tests.unit.stores.made_letters import on_store


def test_entries_are_paged_and_chosen(store_url: str) -> None:
    async def work(store: Store) -> None:
        for number in range(7):
            await store.audit.add(entry(number, who="bob" if number % 2 else "ann", subject=f"s{number % 3}"))
        first, cursor = await store.audit.page(3)
        second, cursor = await store.audit.page(3, cursor)
        third, end = await store.audit.page(3, cursor)
        assert [each.count for each in (*first, *second, *third)] == [6, 5, 4, 3, 2, 1, 0]
        assert end is None
        chosen, _ = await store.audit.page(10, who="bob", action="letters.resolved", subject="s2")
        assert [each.count for each in chosen] == [5]
        with pytest.raises(InvalidCursor):
            await store.audit.page(3, "nonsense")

    on_store(store_url, work)


def test_whatever_an_entry_holds_it_is_kept(store_url: str) -> None:
    odd = entry(1, why="a\x00b \ud800 é", detail={"a": "\x00", "b": [1, None], "c": {"d": 2.5}})

    async def work(store: Store) -> None:
        await store.audit.add(odd)
        (kept,), _ = await store.audit.page(10)
        assert kept.why == "a\ufffdb ? é"
        assert kept.detail == {"a": "\ufffd", "b": [1, None], "c": {"d": 2.5}}

    on_store(store_url, work)


def test_an_entry_goes_with_the_deed_that_is_undone(store_url: str) -> None:
    async def work(store: Store) -> None:
        async def undone() -> None:
            async with database_of(store).write() as tx:
                await write_audit(tx, entry(1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await undone()
        assert await store.audit.page(10) == ([], None)

    on_store(store_url, work)
