"""Retention takes what nobody touched for long, in the statuses it is told, never more than it may."""

from redrive.records import Filter, Status
from redrive.stores import Store
from tests.unit.stores.letter_making import NOW_MS, make_letter, on_store, put


def test_only_old_letters_of_the_statuses_go(store_url: str) -> None:
    letters = [
        make_letter(0, status=Status.RESOLVED),
        make_letter(1, status=Status.FAILED),
        make_letter(2, status=Status.RETRYING),
        make_letter(3, status=Status.RESOLVED, updated_at_ms=NOW_MS + 500),
        make_letter(500, status=Status.RESOLVED),
    ]

    async def work(store: Store) -> None:
        await put(store, letters)
        statuses = [Status.RESOLVED, Status.RETRYING]
        assert await store.letters.retain(before_ms=NOW_MS + 100, statuses=statuses, limit=10) == 1
        left = await store.letters.page(Filter(), limit=10, newest_first=False, now_ms=NOW_MS)
        assert [letter.id for letter in left.letters] == [letter.id for letter in letters[1:]]
        assert (await store.stats.totals(now_ms=NOW_MS)).by_status == {"retrying": 1, "failed": 1, "resolved": 2}
        (entry,), _ = await store.audit.page(10, action="letters.deleted")
        assert (entry.who, entry.detail) == ("retention", {"ids": [letters[0].id]})

    on_store(store_url, work)


def test_a_limit_is_kept_and_the_longest_dead_go_first(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(number, status=Status.RESOLVED) for number in range(1_200)])
        before_ms = NOW_MS + 10_000
        assert await store.letters.retain(before_ms=before_ms, statuses=[Status.RESOLVED], limit=1_100) == 1_100
        left = await store.letters.page(Filter(), limit=1, newest_first=False, now_ms=NOW_MS)
        assert left.letters[0].id == make_letter(1_100).id
        assert await store.letters.retain(before_ms=before_ms, statuses=[Status.RESOLVED], limit=1_100) == 100

    on_store(store_url, work)
