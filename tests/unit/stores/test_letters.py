"""Dead letters one by one: read, resolved, reopened, deleted, edited, with their lives, counts and audit."""

from dataclasses import replace

import pytest

from redrive.core import Attempt
from redrive.records import DeadLetter, Filter, LifecycleEntry, MessageContent, NameTerm, Selection, Status, WordsTerm
from redrive.stores import ChangeResult, EarlierContent, ExportedEdit, LetterBusy, Store, UnknownLetter, VersionConflict
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.made_letters import NOW_MS, make_exported, make_letter, on_store, put

LATER_MS = NOW_MS + 1_000_000


async def statuses(store: Store) -> dict[str, int]:
    """By counting the letters, and that the kept counts say the same."""
    page = await store.letters.page(Filter(), limit=1_000, now_ms=LATER_MS)
    counted: dict[str, int] = {}
    for letter in page.letters:
        counted[letter.status.value] = counted.get(letter.status.value, 0) + 1
    assert (await store.stats.totals(now_ms=LATER_MS)).by_status == counted
    return counted


async def the(store: Store, number: int) -> DeadLetter:
    letter = await store.letters.get(make_letter(number).id)
    assert letter is not None
    return letter


def test_a_letter_is_read_as_it_was_stored(store_url: str) -> None:
    letter = make_letter(
        3,
        status=Status.FAILED,
        version=7,
        stack="a\nb",
        status_code=503,
        is_poison=True,
        is_edited=True,
        due_at_ms=5,
        silent_at_ms=6,
        copy_of="x",
        operation_id="y",
        resolved_by="z",
        status_reason="why",
    )
    edit = ExportedEdit(
        at_ms=1, who="a", why="b", diff="c", content=MessageContent(properties=b"\x00\x00", body=b"edited")
    )
    past = EarlierContent(at_ms=2, redrives=1, content=MessageContent(properties=b"\x00\x00", body=b"\x00\xff"))
    attempt = Attempt(number=1, at_ms=8, error="TimeoutError: too long")
    happening = LifecycleEntry(at_ms=9, event="resolved", who="a", detail="b", operation_id=None)

    async def work(store: Store) -> None:
        whole = make_exported(letter, body={"a": 1}, past=(past,), edits=(edit,), life=((2, happening),))
        await put(store, [replace(whole, history=(attempt,))])
        assert await store.letters.get(letter.id) == letter
        assert await store.letters.get("nothing") is None
        original = await store.letters.content(letter.id, edited=False)
        assert original is not None
        assert original.body == b'{"a": 1}'
        assert await store.letters.content(letter.id) == edit.content
        assert await store.letters.content("nothing") is None
        assert await store.letters.earlier_contents(letter.id) == (past,)
        assert await store.letters.history(letter.id) == (attempt,)
        events = [each.event for each in await store.letters.lifecycle(letter.id)]
        assert events == ["collected", "resolved"]
        for edited in (True, False):
            everything = await store.letters.whole(letter.id, edited=edited)
            assert everything is not None
            assert everything.letter == letter
            assert everything.content == await store.letters.content(letter.id, edited=edited)
            assert everything.lifecycle == await store.letters.lifecycle(letter.id)
            assert (everything.earlier_contents, everything.history) == ((past,), (attempt,))
        assert await store.letters.whole("nothing") is None

    on_store(store_url, work)


def test_an_id_is_found_by_its_beginning_or_its_end(store_url: str) -> None:
    async def work(store: Store) -> None:
        made = [make_letter(number) for number in range(20)]
        await put(store, made)
        assert await store.letters.find(made[3].id) == (made[3].id,)
        assert await store.letters.find(made[3].id[:12].upper()) != ()
        assert len(await store.letters.find(made[0].id[:2])) == 10
        assert await store.letters.find(made[7].id[-6:]) == (made[7].id,)
        for nothing in ("", "%", "zzzzzz", "x" * 40, "\x00", "é"):
            assert await store.letters.find(nothing) == ()

    on_store(store_url, work)


def test_resolving_says_who_and_why_and_counts(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(0, due_at_ms=5), make_letter(1), make_letter(2, status=Status.RETRYING)])
        ids = tuple(make_letter(number).id for number in (0, 2, 9))
        changed = await store.letters.resolve(Selection(ids=ids), who="ann", why="paid by hand", now_ms=LATER_MS)
        assert changed.done == 1
        assert set(changed.refused) == set(ids[1:])
        assert "retrying" in changed.refused[ids[1]]
        letter = await the(store, 0)
        assert (letter.status, letter.resolved_by, letter.status_reason) == (Status.RESOLVED, "ann", "paid by hand")
        assert (letter.version, letter.updated_at_ms, letter.due_at_ms) == (2, LATER_MS, None)
        last = (await store.letters.lifecycle(letter.id))[-1]
        assert (last.event, last.who, last.detail, last.at_ms) == ("resolved", "ann", "paid by hand", LATER_MS)
        assert await statuses(store) == {"resolved": 1, "pending": 1, "retrying": 1}
        (entry, *_), _ = await store.audit.page(10)
        assert (entry.action, entry.who, entry.count, entry.subject) == ("letters.resolved", "ann", 1, letter.id)
        assert entry.detail == {"ids": [letter.id]}
        buckets = await store.stats.series(from_ms=LATER_MS, until_ms=LATER_MS + 1, bucket_ms=300_000)
        assert [bucket.resolved for bucket in buckets] == [1]

        again = await store.letters.reopen(Selection(ids=ids[:1]), who="bob", why="no", now_ms=LATER_MS + 1)
        assert again == ChangeResult(done=1)
        letter = await the(store, 0)
        assert (letter.status, letter.resolved_by, letter.version) == (Status.PENDING, None, 3)
        twice = await store.letters.reopen(Selection(ids=ids[:1]), who="bob", why="no", now_ms=LATER_MS + 2)
        assert (twice.done, list(twice.refused)) == (0, [letter.id])
        assert await statuses(store) == {"pending": 2, "retrying": 1}

    on_store(store_url, work)


def test_a_letter_that_somebody_changed_is_not_changed_unread(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(0, version=4)])
        one = Selection(ids=(make_letter(0).id,))
        for change in (store.letters.resolve, store.letters.delete):
            with pytest.raises(VersionConflict, match="version 4, not 3"):
                await change(one, who="ann", why="", now_ms=LATER_MS, if_version=3)
        assert await statuses(store) == {"pending": 1}
        assert (await store.letters.resolve(one, who="ann", why="", now_ms=LATER_MS, if_version=4)).done == 1

    on_store(store_url, work)


def test_by_filter_doubtful_and_flying_letters_are_left_alone(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(number, status=list(Status)[number % 6]) for number in range(1_560)])
        every = Selection(filter=Filter(), filter_text="all of it")
        changed = await store.letters.delete(every, who="ann", why="old", now_ms=LATER_MS)
        assert changed.done == 780
        assert sorted(changed.not_done.values()) == [260, 260, 260]
        assert await statuses(store) == {"in_doubt": 260, "retrying": 260, "waiting": 260}
        entries, _ = await store.audit.page(10, action="letters.deleted")
        assert sum(entry.count for entry in entries) == 780
        assert {entry.subject for entry in entries} == {"all of it"}

        named = Selection(filter=Filter((NameTerm(field="status", values=("in_doubt",)),)), limit=10)
        assert (await store.letters.resolve(named, who="ann", why="", now_ms=LATER_MS)).done == 10
        meant = Selection(filter=Filter(), includes_in_doubt=True)
        assert (await store.letters.delete(meant, who="ann", why="", now_ms=LATER_MS)).done == 260
        assert await statuses(store) == {"retrying": 260, "waiting": 260}
        assert await store.letters.delete(Selection(), who="ann", why="", now_ms=LATER_MS) == ChangeResult(done=0)

    on_store(store_url, work)


def test_a_limit_takes_the_longest_dead(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_letter(number) for number in range(9)])
        some = Selection(filter=Filter((NameTerm(field="queue", values=("orders",)),)), limit=4)
        assert (await store.letters.resolve(some, who="ann", why="", now_ms=LATER_MS)).done == 4
        left = await store.letters.page(
            Filter((NameTerm(field="status", values=("pending",)),)), limit=9, now_ms=LATER_MS
        )
        assert [letter.id for letter in left.letters] == [make_letter(number).id for number in (8, 7, 6, 5, 4)]

    on_store(store_url, work)


def test_a_deleted_letter_leaves_nothing_but_the_audit(store_url: str) -> None:
    async def work(store: Store) -> None:
        await put(store, [make_exported(make_letter(0), body={"a": "unmistakable"})])
        await store.letters.delete(Selection(ids=(make_letter(0).id,)), who="ann", why="", now_ms=LATER_MS)
        assert await store.letters.get(make_letter(0).id) is None
        async with database_of(store).read() as tx:
            for table in ("letters", "contents", "happenings", "tallies"):
                assert await tx.value(f"SELECT count(*) FROM {table}") == 0, table  # noqa: S608
        # The words are free again: the same letter comes back from an export.
        word = Filter((WordsTerm(words=("unmistakable",)),))
        assert await store.letters.count(word, now_ms=LATER_MS) == 0
        await put(store, [make_exported(make_letter(0), body={"a": "unmistakable"})])
        assert await store.letters.count(word, now_ms=LATER_MS) == 1
        assert await statuses(store) == {"pending": 1}

    on_store(store_url, work)


def test_an_edit_keeps_the_original_and_is_refused_while_a_copy_flies(store_url: str) -> None:
    first = MessageContent(properties=b"\x00\x00", body=b"\x00 first")
    second = MessageContent(properties=b"\x00\x00", body=b"second")

    async def work(store: Store) -> None:
        await put(store, [make_letter(0), make_letter(1, status=Status.RETRYING)])
        id = make_letter(0).id
        await store.letters.edit(id, first, who="ann", why="typo", diff="-a +b", now_ms=LATER_MS)
        letter = await store.letters.edit(
            id, second, who="ann", why="again", diff="-b +c", if_version=2, now_ms=LATER_MS + 1
        )
        assert (letter.version, letter.is_edited, letter.updated_at_ms) == (3, True, LATER_MS + 1)
        assert await store.letters.content(id) == second
        original = await store.letters.content(id, edited=False)
        assert original is not None
        assert original.body == b"{}"
        (entry, *_), _ = await store.audit.page(1)
        assert (entry.action, entry.subject, entry.detail["diff"]) == ("letter.edited", id, "-b +c")
        assert [each.event for each in await store.letters.lifecycle(id)] == ["collected", "edited", "edited"]
        with pytest.raises(VersionConflict):
            await store.letters.edit(id, first, who="", why="", diff="", if_version=2, now_ms=LATER_MS)
        with pytest.raises(LetterBusy, match="retrying"):
            await store.letters.edit(make_letter(1).id, first, who="", why="", diff="", now_ms=LATER_MS)
        with pytest.raises(UnknownLetter):
            await store.letters.edit("nothing", first, who="", why="", diff="", now_ms=LATER_MS)

    on_store(store_url, work)
