"""The audit's chain: one for any number of writers, whole after every kill, and broken if anybody changes an entry."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.records import GENESIS, AuditRow, ChainCheck, ChainHead, InvalidHead, audit_json, chain_hash, read_head
from redrive.stores import Store, acting_as, open_store
from redrive.stores.schema.migrations import MIGRATIONS
from tests.unit.stores.arrivals import database_of
from tests.unit.stores.audit_entries import entry
from tests.unit.stores.conftest import Run


async def fill(store: Store, count: int) -> None:
    for number in range(count):
        await store.audit.add(entry(number))


async def spoil(store: Store, statement: str, *arguments: Any) -> None:
    async with database_of(store).write() as tx:
        await tx.run(statement, *arguments)


def test_the_chain_is_whole_and_each_entry_has_its_place(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await fill(store, 5)
        report = await store.audit.verify()
        assert (report.entries, report.head.place, report.findings) == (5, 5, ())
        entries = [one async for one in store.audit.all()]
        assert [one.place for one in entries] == [1, 2, 3, 4, 5]
        assert entries[-1].hash == report.head.hash
        assert await store.audit.verify([ChainHead(place=3, hash=entries[2].hash or b"")]) == report

    run(scenario())


MISCHIEF = {
    "changed": ("UPDATE audit SET who = 'eve' WHERE place = 3", "changed", 3),
    "its token": ("UPDATE audit SET token_id = 'eve' WHERE place = 3", "changed", 3),
    "its time": ("UPDATE audit SET at_ms = at_ms + 1 WHERE place = 3", "changed", 3),
    "its count": ("UPDATE audit SET n = 99 WHERE place = 3", "changed", 3),
    "its detail": ("UPDATE audit SET detail = '{\"a\": 1}' WHERE place = 3", "changed", 3),
    "removed": ("DELETE FROM audit WHERE place = 3", "missing", 3),
    "the first removed": ("DELETE FROM audit WHERE place = 1", "missing", 1),
    "moved": ("UPDATE audit SET seq = 1000 WHERE place = 3", "missing", 3),
    "added": ("INSERT INTO audit (at_ms, who, action, subject, n, why, detail) VALUES (1, 'eve', 'a', '', 1, '', '{}')",
              "unchained", None),
    "unchained": ("UPDATE audit SET place = NULL WHERE place = 3", "unchained", None),
    "truncated": ("DELETE FROM audit WHERE place > 3", "truncated", 4),
    **{
        f"added as number {seq}": (
            f"INSERT INTO audit (seq, at_ms, who, action, subject, n, why, detail) "  # noqa: S608
            f"VALUES ({seq}, 1, 'eve', 'a', '', 1, '', '{{}}')",
            "unchained", None)
        for seq in (-(2**62) - 1, -(2**63), -1, 0, 2**63 - 1)
    },
    "the head": ("UPDATE audit_head SET hash = NULL", "changed", 5),
}  # fmt: skip


@pytest.mark.parametrize("what", MISCHIEF)
def test_whatever_is_done_to_an_entry_is_found(store: Store, run: Run, what: str) -> None:
    statement, code, place = MISCHIEF[what]

    async def scenario() -> None:
        await fill(store, 5)
        await spoil(store, statement)
        report = await store.audit.verify()
        assert (code, place) in [(one.code, one.place) for one in report.findings], report.findings

    run(scenario())


@pytest.mark.parametrize("seq", [-(2**63), -(2**62) - 1, -1, 0, 999, 2**63 - 1])
def test_whatever_is_listed_is_exported_and_verified(store: Store, run: Run, seq: int) -> None:
    async def scenario() -> None:
        await fill(store, 3)
        await spoil(
            store,
            "INSERT INTO audit (seq, at_ms, who, action, subject, n, why, detail) "
            "VALUES ($1, $2, 'eve', '', '', 1, '', '')",
            seq,
            2**62,
        )
        listed, cursor = await store.audit.page(2)
        while cursor is not None:
            more, cursor = await store.audit.page(2, cursor)
            listed += more
        exported = [one async for one in store.audit.all()]
        report = await store.audit.verify()
        assert [one.who for one in listed].count("eve") == 1
        assert exported == listed[::-1]
        assert report.entries == len(listed) == 4
        assert [one.code for one in report.findings] == ["unchained"]
        assert [audit_json(one)["at"] for one in listed].count(None) == 1

    run(scenario())


def test_a_row_with_values_of_other_kinds_is_found_and_readable(store: Store, run: Run) -> None:
    if store.kind != "sqlite":
        return

    async def scenario() -> None:
        for column in ("at_ms", "who", "token_id", "n", "why", "detail", "place", "hash"):
            for value in ("x'ff00'", "1.5", "'text'", str(2**62)):
                await spoil(store, "DELETE FROM audit")
                await spoil(store, "UPDATE audit_head SET place = 0, hash = NULL")
                await fill(store, 3)
                await spoil(store, f"UPDATE audit SET {column} = {value} WHERE place = 2")  # noqa: S608
                report = await store.audit.verify()
                assert (report.entries, bool(report.findings)) == (3, True), (column, value)
                listed, _ = await store.audit.page(10)
                assert len([audit_json(one) for one in listed]) == 3

    run(scenario())


def test_two_entries_that_change_places_are_found(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await fill(store, 5)
        for sets in ("seq = 99 WHERE place = 2", "seq = 2 WHERE place = 3", "seq = 3 WHERE place = 2"):
            await spoil(store, f"UPDATE audit SET {sets}")  # noqa: S608
        report = await store.audit.verify()
        assert "moved" in [one.code for one in report.findings]

    run(scenario())


def test_a_chain_that_was_cut_with_its_head_or_written_anew_is_found_by_an_old_head(store: Store, run: Run) -> None:
    async def scenario() -> None:
        await fill(store, 5)
        entries = [one async for one in store.audit.all()]
        old = (await store.audit.verify()).head
        await spoil(store, "DELETE FROM audit WHERE place > 3")
        await spoil(store, "UPDATE audit_head SET place = 3, hash = $1", entries[2].hash)
        assert (await store.audit.verify()).findings == ()  # nobody can see it from within
        (found,) = (await store.audit.verify([old])).findings
        assert (found.code, found.text) == ("truncated", "the last 2 entries are missing: there were 5")
        await fill(store, 4)
        (found,) = (await store.audit.verify([old])).findings
        assert (found.code, found.place) == ("rewritten", 5)

    run(scenario())


def test_two_instances_write_one_chain(store_url: str, store: Store, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(store_url) as other:
            await asyncio.gather(*(fill(one, 20) for one in (store, other, store, other)))
            report = await other.audit.verify()
        assert (report.entries, report.head.place, report.findings) == (80, 80, ())

    run(scenario())


def test_transactions_with_several_locks_and_an_entry_do_not_meet_crosswise(
    store_url: str, store: Store, run: Run
) -> None:
    """The head is locked last: who notes first and locks afterwards would wait for who does it the other way round."""
    from redrive.stores.audit import write_audit

    async def scenario() -> None:
        await spoil(store, "INSERT INTO token_names (folded, token_id) VALUES ('a', 'x')")

        async def one(of: Store, early: bool) -> None:
            for number in range(10):
                async with database_of(of).write() as tx:
                    if early:
                        await write_audit(tx, entry(number))
                    await tx.run("UPDATE token_names SET token_id = 'y' WHERE folded = 'a'")
                    await asyncio.sleep(0)
                    if not early:
                        await write_audit(tx, entry(number))

        async with await open_store(store_url) as other:
            async with asyncio.timeout(20):
                await asyncio.gather(one(store, early=True), one(other, early=False))
        assert (await store.audit.verify()).head.place == 20

    run(scenario())


def test_entries_from_before_the_chain_are_taken_into_it_once(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with monkeypatch.context() as patch:
            patch.setattr("redrive.stores.schema.migrations.MIGRATIONS", MIGRATIONS[:3])
            patch.setattr("redrive.stores.store._adopt", _nothing)
            patch.setattr("redrive.stores.store._group_key_of", _nothing)
            async with await open_store(store_url) as old:
                for number in range(3):
                    await spoil(
                        old,
                        "INSERT INTO audit (at_ms, who, action, subject, n, why, detail) "
                        "VALUES (1, 'ann', 'a', '', $1, '', '{}')",
                        number,
                    )
        async with await open_store(store_url) as store:
            await store.audit.add(entry(3))
            report = await store.audit.verify()
            assert (report.entries, report.head.place, report.findings) == (4, 4, ())
            await spoil(store, MISCHIEF["added"][0])
        async with await open_store(store_url) as store:
            assert [one.code for one in (await store.audit.verify()).findings] == ["unchained"]

    run(scenario())


async def _nothing(_: object) -> None:
    pass


def test_an_entry_has_the_token_of_the_task_that_notes_it(store: Store, run: Run) -> None:
    async def scenario() -> None:
        async def act(name: str) -> None:
            with acting_as(name):
                await asyncio.sleep(0)
                await store.audit.add(entry(1, who=name))

        await asyncio.gather(act("a"), act("b"), store.audit.add(entry(1, who="")))
        entries = [one async for one in store.audit.all()]
        assert {(one.who, one.token_id) for one in entries} == {("a", "a"), ("b", "b"), ("", "")}

    run(scenario())


ROWS = st.builds(
    AuditRow,
    seq=st.just(0),
    place=st.just(None),
    hash=st.just(None),
    at_ms=st.integers(0, 9),
    who=st.text(max_size=3),
    token_id=st.text(max_size=3),
    action=st.text(max_size=3),
    subject=st.text(max_size=3),
    count=st.integers(0, 9),
    why=st.text(max_size=3),
    detail=st.just("{}"),
)


def chained(rows: list[AuditRow]) -> list[AuditRow]:
    head, made = GENESIS, []
    for number, row in enumerate(rows, start=1):
        placed = replace(row, seq=number, place=number)
        head = chain_hash(head, placed)
        made.append(replace(placed, hash=head))
    return made


@given(rows=st.lists(ROWS, min_size=1, max_size=6), data=st.data())
def test_any_other_text_anywhere_breaks_the_chain(rows: list[AuditRow], data: st.DataObject) -> None:
    made = chained(rows)
    head = ChainHead(place=len(made), hash=made[-1].hash or b"")

    def findings(seen: list[AuditRow]) -> tuple[Any, ...]:
        check = ChainCheck()
        for row in seen:
            check.see(row)
        return check.report(head).findings

    assert findings(made) == ()
    number = data.draw(st.integers(0, len(made) - 1))
    column = data.draw(st.sampled_from(["who", "token_id", "action", "subject", "why"]))
    text = data.draw(st.text(max_size=4))
    other = replace(made[number], **{column: text})  # type: ignore[arg-type]
    assert bool(findings([*made[:number], other, *made[number + 1 :]])) == (other != made[number])
    assert findings([*made[:number], *made[number + 1 :]])


@pytest.mark.parametrize("text", ["", "1", "1:", "x:" + "0" * 64, "1:" + "g" * 64, "-1:" + "0" * 64, "1:" + "0" * 63])
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(InvalidHead):
        read_head(text)


def test_a_head_is_read_as_it_is_written() -> None:
    head = ChainHead(place=412, hash=bytes(range(32)))
    assert read_head(f" {head}\n") == head
