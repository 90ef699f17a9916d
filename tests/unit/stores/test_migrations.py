"""The schema: the first process creates it, any process migrates it, an older Redrive refuses it."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from redrive.stores import Store, StoreTooNew, open_store
from redrive.stores.schema.dialect import POSTGRESQL, SQLITE
from redrive.stores.schema.migrations import MIGRATIONS, Migration
from tests.unit.stores.arrivals import NOW_MS, collect, database_of, make_arrival
from tests.unit.stores.conftest import Run


async def version_of(store: Store) -> list[int]:
    async with database_of(store).read() as tx:
        return [row[0] for row in await tx.rows("SELECT version FROM schema_version ORDER BY version")]


def test_versions_count_from_one_without_a_gap() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_both_databases_get_the_same_tables_and_columns() -> None:
    def columns(kind: str) -> dict[str, list[str]]:
        dialect = SQLITE if kind == "sqlite" else POSTGRESQL
        tables = {}
        for step in MIGRATIONS:
            for statement in step.statements(dialect):
                if statement.startswith("CREATE TABLE") and "words" not in statement:
                    lines = [line.strip() for line in statement.splitlines()]
                    tables[lines[0]] = [line.split()[0] for line in lines[1:-1]]
        return tables

    assert columns("sqlite") == columns("postgresql")


def test_opening_again_finds_what_was_there(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(store_url) as store:
            (id,) = await collect(store, make_arrival(1))
        async with await open_store(store_url) as store:
            assert await store.letters.get(id) is not None
            assert await version_of(store) == [step.version for step in MIGRATIONS]

    run(scenario())


def test_many_that_open_a_new_store_at_once_make_it_once(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        stores = await asyncio.gather(*(open_store(store_url) for _ in range(4)))
        for number, store in enumerate(stores):
            await collect(store, make_arrival(number), now_ms=NOW_MS)
        assert await version_of(stores[0]) == [step.version for step in MIGRATIONS]
        found = [await stores[0].letters.get(make_arrival(number).id) for number in range(4)]
        assert None not in found
        for store in stores:
            await store.close()

    run(scenario())


def test_a_store_of_a_newer_redrive_is_left_alone(store_url: str, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(store_url) as store, database_of(store).write() as tx:
            await tx.run("INSERT INTO schema_version (version) VALUES (99)")
        with pytest.raises(StoreTooNew, match=r"version 99.*install the newer Redrive"):
            await open_store(store_url)

    run(scenario())


def test_a_store_of_an_older_redrive_gets_what_it_lacks(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [step.version for step in MIGRATIONS]
    statements = ("CREATE TABLE later (seq INTEGER)",)
    new = Migration(version=known[-1] + 1, title="test", statements=lambda dialect: statements)

    async def scenario() -> None:
        async with await open_store(store_url) as store:
            (id,) = await collect(store, make_arrival(1))
        monkeypatch.setattr("redrive.stores.schema.migrations.MIGRATIONS", (*MIGRATIONS, new))
        async with await open_store(store_url) as store:
            assert await store.letters.get(id) is not None
            assert await version_of(store) == [*known, new.version]
            async with database_of(store).read() as tx:
                assert await tx.value("SELECT count(*) FROM later") == 0

    run(scenario())


def test_a_step_that_fails_leaves_the_store_as_it_was(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = ("CREATE TABLE later (seq INTEGER)", "CREATE TABLE nonsense (")
    wrong = Migration(version=MIGRATIONS[-1].version + 1, title="test", statements=lambda dialect: statements)

    async def scenario() -> None:
        async with await open_store(store_url):
            pass
        with monkeypatch.context() as patch:
            patch.setattr("redrive.stores.schema.migrations.MIGRATIONS", (*MIGRATIONS, wrong))
            with pytest.raises(Exception, match=r"(?i)incomplete|syntax"):
                await open_store(store_url)
        async with await open_store(store_url) as store:
            assert await version_of(store) == [step.version for step in MIGRATIONS]
            async with database_of(store).read() as tx:
                with pytest.raises(Exception, match="later"):
                    await tx.value("SELECT count(*) FROM later")

    run(scenario())


def test_listings_and_lookups_have_an_index(tmp_path: Path, run: Run) -> None:
    """SQLite says how it would answer: never by reading everything or sorting."""
    path = tmp_path / "redrive.db"

    async def scenario() -> None:
        async with await open_store(f"sqlite:///{path}"):
            pass

    run(scenario())
    with sqlite3.connect(path) as connection:
        for condition in (
            "TRUE",
            "status = 'pending'",
            "group_seq = 1",
            "routing_key = 'x'",
            "service = 'x'",
            "type = 'x'",
        ):
            query = "SELECT seq FROM letters WHERE {} ORDER BY dead_at_ms, seq".replace("{}", condition)
            plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + query))
            assert "INDEX letters_" in plan, (condition, plan)
            assert "TEMP B-TREE" not in plan, (condition, plan)
        for condition in (
            "due_at_ms <= 5",
            "message_id = 'x'",
            "correlation_id = 'x'",
            "id = 'x'",
        ):
            query = "SELECT seq FROM letters WHERE {}".replace("{}", condition)
            plan = " ".join(row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + query))
            assert "SEARCH" in plan, (condition, plan)
    connection.close()
