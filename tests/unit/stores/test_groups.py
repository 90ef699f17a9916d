"""Groups: pages in both orders, what people said about them, and counts that are the letters'."""

from pathlib import Path

import pytest

from redrive.records import GroupState, GroupStateChange, Selection, Status
from redrive.stores import InvalidCursor, Store, UnknownGroup, open_store
from tests.unit.stores.conftest import Run
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, on_store, put

LATER_MS = NOW_MS + 1_000_000


async def put_groups(store: Store) -> None:
    """Group g<n> has n letters of queue q<n % 2>; g1 was seen last."""
    exported = []
    for size in range(1, 6):
        for number in range(size):
            letter = make_letter(
                100 * (6 - size) + number,
                group_id=f"g{size}",
                queue=f"q{size % 2}",
                status=Status.FAILED if number == 0 else Status.PENDING,
            )
            exported.append(make_exported(letter, title=f"TimeoutError: {size}"))
    await put(store, exported)


async def page_ids(store: Store, **asked: object) -> list[str]:
    ids: list[str] = []
    cursor = None
    while True:
        groups, cursor = await store.groups.page(limit=2, cursor=cursor, **asked)  # type: ignore[arg-type]
        ids += [group.id for group in groups]
        if cursor is None:
            return ids


def test_groups_are_listed_by_when_they_were_seen_or_by_size(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put_groups(store)
        assert await page_ids(store) == ["g1", "g2", "g3", "g4", "g5"]
        assert await page_ids(store, order="count") == ["g5", "g4", "g3", "g2", "g1"]
        assert await page_ids(store, queue="q1") == ["g1", "g3", "g5"]
        assert await page_ids(store, state=GroupState.IGNORED) == []
        _, cursor = await store.groups.page(limit=2)
        with pytest.raises(InvalidCursor):
            await store.groups.page(limit=2, cursor=cursor, order="count")

    on_store(store_url, work)


def test_a_group_tells_how_its_letters_stand(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put_groups(store)
        group = await store.groups.get("g3")
        assert group is not None
        assert (group.title, group.queue, group.error_type) == ("TimeoutError: 3", "q1", "TimeoutError")
        assert (group.first_seen_ms, group.last_seen_ms) == (NOW_MS + 300, NOW_MS + 302)
        assert (group.count, group.by_status) == (3, {"failed": 1, "pending": 2})
        ids = tuple(make_letter(300 + number).id for number in range(3))
        await store.letters.delete(Selection(ids=ids), who="ann", why="", now_ms=LATER_MS)
        assert await page_ids(store) == ["g1", "g2", "g4", "g5"]
        empty = await store.groups.get("g3")
        assert empty is not None
        assert (empty.count, empty.by_status) == (0, {})
        assert await store.groups.get("nothing") is None

    on_store(store_url, work)


def test_what_people_say_about_a_group_is_kept_and_audited(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put_groups(store)
        group = await store.groups.set_state("g2", GroupState.RESOLVED, who="ann", why="fixed in 1.2", now_ms=LATER_MS)
        assert (group.state, group.count) == (GroupState.RESOLVED, 2)
        said = GroupStateChange(state=GroupState.RESOLVED, at_ms=LATER_MS, who="ann", why="fixed in 1.2")
        assert group.state_change == said
        await store.groups.add_note("g2", "ask the bank", who="bob", now_ms=LATER_MS + 1)
        group = await store.groups.add_note("g2", "they called", who="ann", now_ms=LATER_MS + 2)
        assert [(note.who, note.text) for note in group.notes] == [("bob", "ask the bank"), ("ann", "they called")]
        assert await page_ids(store, state=GroupState.RESOLVED) == ["g2"]
        entries, _ = await store.audit.page(10, subject="g2")
        assert [entry.action for entry in entries] == ["group.noted", "group.noted", "group.resolved"]
        assert (entries[-1].who, entries[-1].why, entries[-1].count) == ("ann", "fixed in 1.2", 2)

        await put(store, [make_letter(999, group_id="g2")])
        again = await store.groups.get("g2")
        assert again is not None
        assert again.state is GroupState.REGRESSED
        assert again.state_change == said  # who resolved it, and why, matters most now
        listed, _ = await store.groups.page(limit=9)
        assert {one.id: one.state_change for one in listed if one.state_change is not None} == {"g2": said}
        with pytest.raises(UnknownGroup):
            await store.groups.set_state("nothing", GroupState.IGNORED, who="", why="", now_ms=LATER_MS)
        with pytest.raises(UnknownGroup):
            await store.groups.add_note("nothing", "text", who="", now_ms=LATER_MS)

    on_store(store_url, work)


def test_each_database_has_a_secret_of_its_own_that_all_who_open_it_share(
    store_url: str, store: Store, run: Run, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with (
            await open_store(store_url) as again,
            await open_store(f"sqlite:///{tmp_path}/other.db") as other,
        ):
            assert again.group_key == store.group_key
            assert len(store.group_key) == len(other.group_key) == 32
            assert other.group_key != store.group_key

    run(scenario())
