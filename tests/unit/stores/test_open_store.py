"""Opening a store, and what is said when that, or a transaction, can't be done."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rig.postgres import Postgres

from redrive.records import Filter
from redrive.stores import InvalidDatabaseUrl, Store, StoreUnavailable, open_store
from redrive.stores.database_urls import PostgresPlace, SqlitePlace, read_database_url
from redrive.stores.schema.dialect import for_sqlite, sqlite_arguments
from redrive.stores.sqlite import SqliteDatabase
from tests.unit.stores.arrivals import (
    NOW_MS,
    collect,
    collecting_lease,
    counts_anew,
    database_of,
    make_arrival,
)
from tests.unit.stores.conftest import Run


def test_a_url_says_which_file() -> None:
    assert read_database_url("sqlite:///redrive.db") == SqlitePlace(path="redrive.db")
    assert read_database_url("sqlite:////var/lib/red%20rive.db") == SqlitePlace(path="/var/lib/red rive.db")
    assert SqlitePlace(path="/var/lib/x.db").address == "sqlite:////var/lib/x.db"


def test_a_new_file_is_its_owner_s_alone_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    def modes(name: str) -> dict[str, int]:
        return {one.name.removeprefix(name): one.stat().st_mode & 0o777 for one in tmp_path.glob(f"{name}*")}

    async def opened(name: str) -> dict[str, int]:
        store = await open_store(f"sqlite:///{tmp_path / name}")
        try:
            return await asyncio.to_thread(modes, name)
        finally:
            await store.close()

    before = os.umask(0o022)
    try:
        assert asyncio.run(opened("new.db")) == {"": 0o600, "-wal": 0o600, "-shm": 0o600}
        (tmp_path / "shared.db").touch(mode=0o640)
        assert asyncio.run(opened("shared.db"))[""] == 0o640
    finally:
        os.umask(before)


def test_an_address_has_no_password() -> None:
    place = read_database_url("postgresql://ada:s3cret@db:5432/redrive?sslmode=require&password=s3cret")
    assert isinstance(place, PostgresPlace)
    assert place.address == "postgresql://ada@db:5432/redrive?sslmode=require&password=…"
    assert "s3cret" not in repr(place)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redrive.db", "has no scheme"),
        ("sqlite://redrive.db", "needs three slashes"),
        ("sqlite:///", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://db/redrive", "no stores on 'mysql'"),
        ("postgress://db/redrive", "did you mean `postgresql`"),
    ],
)
def test_a_url_that_is_none_is_refused_with_what_one_looks_like(url: str, sentence: str, run: Run) -> None:
    with pytest.raises(InvalidDatabaseUrl, match=sentence):
        run(open_store(url))


def test_a_store_says_what_and_where_it_is(store: Store, store_url: str) -> None:
    assert store.kind == store_url.partition(":")[0]
    assert store.address.startswith(store.kind)
    assert "not-for-logs" not in store.address


def test_a_folder_that_is_not_there_is_said_so(tmp_path: Path, run: Run) -> None:
    with pytest.raises(StoreUnavailable, match=r"unable to open.*make its folder"):
        run(open_store(f"sqlite:///{tmp_path}/nowhere/redrive.db"))


def test_a_file_that_is_no_database_is_said_so(tmp_path: Path, run: Run) -> None:
    (tmp_path / "notes.txt").write_text("not a database at all, but long enough to be looked at" * 20)
    with pytest.raises(StoreUnavailable, match=r"not a database.*name another file"):
        run(open_store(f"sqlite:///{tmp_path}/notes.txt"))


def test_nobody_at_the_servers_place_is_said_so(run: Run) -> None:
    with pytest.raises(StoreUnavailable, match=r"127.0.0.1:9/redrive: .*try again when the server answers"):
        run(open_store("postgresql://ada:s3cret@127.0.0.1:9/redrive"))


def test_a_file_that_somebody_else_writes_for_too_long_is_unavailable_and_then_fine(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "redrive.db"

    async def scenario() -> None:
        async with await open_store(f"sqlite:///{path}") as store:
            lease = await collecting_lease(store)
            impatient = SqliteDatabase(str(path), "here", busy_timeout_ms=50)
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"locked.*try again"):
                async with impatient.write() as tx:
                    await tx.run("DELETE FROM leases")
            async with impatient.read() as reading:
                assert await reading.value("SELECT count(*) FROM leases") == 1
            other.execute("ROLLBACK")
            other.close()
            await impatient.close()
            await store.batches.store([make_arrival(1)], lease=lease, batch_id="b", now_ms=NOW_MS)

    run(scenario())


def test_a_full_disk_leaves_nothing_half_done(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(f"sqlite:///{tmp_path}/redrive.db") as store:
            await collect(store, make_arrival(1))
            lease = await collecting_lease(store)
            database = database_of(store)
            assert isinstance(database, SqliteDatabase)
            async with database.write() as tx:
                pages = await tx.value("PRAGMA page_count")
                await tx.rows(f"PRAGMA max_page_count = {pages}")
            many = [make_arrival(n) for n in range(2, 400)]
            with pytest.raises(StoreUnavailable, match=r"full.*make room"):
                await store.batches.store(many, lease=lease, batch_id="b", now_ms=NOW_MS)
            assert (await counts_anew(store))["all", "", "pending"] == 1
            async with database.write() as tx:
                await tx.rows("PRAGMA max_page_count = 1000000")
            stored = await store.batches.store(many, lease=lease, batch_id="b", now_ms=NOW_MS)
            assert len(stored.inserted) == 398

    run(scenario())


def test_a_transaction_that_raises_has_changed_nothing(store: Store, run: Run) -> None:
    async def scenario() -> None:
        database = database_of(store)

        async def half_done() -> None:
            async with database.write() as tx:
                await tx.run("INSERT INTO stopped_queues VALUES ('/', 'q', 'r', 1)")
                raise KeyError

        with pytest.raises(KeyError):
            await half_done()
        assert await store.batches.stopped_queues() == {}

    run(scenario())


def test_a_mistake_of_ours_is_no_unavailable_store(store: Store, run: Run) -> None:
    async def scenario() -> None:
        with pytest.raises(Exception, match="nonsense") as raised:
            async with database_of(store).write() as tx:
                await tx.run("DELETE FROM nonsense")
        assert not isinstance(raised.value, StoreUnavailable)

    run(scenario())


@pytest.mark.slow
def test_the_event_loop_goes_on_while_sqlite_works(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(f"sqlite:///{tmp_path}/redrive.db") as store, database_of(store).read() as tx:
            long = (
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000) SELECT sum(i) FROM n"
            )
            slow = asyncio.create_task(tx.value(long))
            turns = 0
            while not slow.done():
                await asyncio.sleep(0.001)
                turns += 1
            assert turns > 1

    run(scenario())


def test_a_read_that_nobody_waits_for_any_more_is_stopped(tmp_path: Path, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(f"sqlite:///{tmp_path}/redrive.db") as store:

            async def endless() -> None:
                async with database_of(store).read() as tx:
                    await tx.value(
                        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"
                    )

            reads = [asyncio.create_task(endless()) for _ in range(3)]
            await asyncio.sleep(0.05)
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)
            assert await store.leases.held() == ()

    began_s = time.monotonic()
    run(scenario())
    assert time.monotonic() - began_s < 60


@pytest.mark.slow
def test_a_server_that_was_killed_and_came_back_is_used_again(own_postgres: Callable[[], Postgres], run: Run) -> None:
    server = own_postgres()
    url = server.url(server.create_database("killed"))

    async def scenario() -> None:
        async with await open_store(url) as store:
            lease = await collecting_lease(store)
            await store.batches.store([make_arrival(1)], lease=lease, batch_id="1", now_ms=NOW_MS)
            await asyncio.to_thread(server.kill)
            with pytest.raises(StoreUnavailable):
                await store.batches.store([make_arrival(2)], lease=lease, batch_id="2", now_ms=NOW_MS)
            with pytest.raises(StoreUnavailable):
                await store.letters.get(make_arrival(1).id)
            await asyncio.to_thread(server.start)
            stored = await _persist(store, lease_owner="collector")
            assert stored == (make_arrival(2).id,)
            assert (await counts_anew(store))["all", "", "pending"] == 2

    async def _persist(store: Store, *, lease_owner: str) -> tuple[str, ...]:
        deadline_s = time.monotonic() + 30
        while True:
            try:
                lease = await collecting_lease(store, lease_owner)
                stored = await store.batches.store([make_arrival(2)], lease=lease, batch_id="2", now_ms=NOW_MS)
                return stored.inserted
            except StoreUnavailable:
                if time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.05)

    run(scenario())


def test_a_statement_for_postgresql_is_said_in_sqlites_words() -> None:
    said = for_sqlite(
        "SELECT a FROM b WHERE c = ANY($2::bigint[]) AND d <> ALL($1::text[]) AND e IS DISTINCT FROM $3 "
        "AND f IS NOT DISTINCT FROM $10 FOR UPDATE OF b SKIP LOCKED"
    )
    assert said == (
        "SELECT a FROM b WHERE c IN (SELECT value FROM json_each(?2)) AND d NOT IN (SELECT value FROM json_each(?1)) "
        "AND e IS NOT ?3 AND f IS ?10"
    )
    assert sqlite_arguments(([1, 2], ["é"], "x", None)) == ("[1, 2]", '["\\u00e9"]', "x", None)


def test_who_is_refused_the_log_because_another_opens_the_new_file_too_tries_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes that opened a new file at the same moment: one in sixty was refused at once by SQLite, which does
    not wait with this statement."""

    class Refusing(sqlite3.Connection):
        refusals = 2

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            opened.append(self)

        def execute(self, *statement: Any) -> sqlite3.Cursor:
            if self.refusals:
                self.refusals -= 1
                refusal = sqlite3.OperationalError("database is locked")
                refusal.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise refusal
            return super().execute(*statement)

    opened: list[Refusing] = []

    async def scenario() -> None:
        async with await open_store(f"sqlite:///{tmp_path}/redrive.db"):
            assert opened
            assert all(connection.refusals == 0 for connection in opened)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Refusing))
    run(scenario())


def test_a_file_that_was_removed_or_replaced_takes_no_commit(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        url = f"sqlite:///{tmp_path}/redrive.db"
        async with await open_store(url) as store:
            await collect(store, make_arrival(1))
            (tmp_path / "redrive.db").rename(tmp_path / "moved.db")
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await collect(store, make_arrival(2))
            (tmp_path / "redrive.db").write_bytes(b"")
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await collect(store, make_arrival(2))
            (tmp_path / "moved.db").rename(tmp_path / "redrive.db")
            await collect(store, make_arrival(3))
            assert await store.letters.count(Filter(), now_ms=NOW_MS) == 2

    run(scenario())


@pytest.mark.slow
def test_a_server_that_would_forget_commits_is_told_not_to(postgres_url: str, run: Run) -> None:
    async def scenario() -> None:
        async with await open_store(postgres_url) as store, database_of(store).write() as tx:
            name = await tx.value("SELECT current_database()")
            await tx.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        async with await open_store(postgres_url) as store:
            async with database_of(store).read() as tx:
                assert await tx.value("SHOW synchronous_commit") == "off"
            async with database_of(store).write() as writing:
                assert await writing.value("SHOW synchronous_commit") == "on"

    run(scenario())
