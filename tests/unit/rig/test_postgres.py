"""The rig's PostgreSQL: up, down, killed, and each test's database its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from rig.postgres import Postgres, find_programs

pytestmark = pytest.mark.slow


def ask(url: str, *statements: str) -> Any:
    """What the last statement gives."""

    async def run() -> Any:
        connection = await asyncpg.connect(url, timeout=30)
        try:
            for statement in statements:
                answer = await connection.fetchval(statement)
            return answer
        finally:
            await connection.close(timeout=10)

    return asyncio.run(run())


def test_a_database_is_fresh_and_the_server_is_no_root(postgres: Postgres, postgres_url: str) -> None:
    ask(postgres_url, "CREATE TABLE kept (n int)")
    assert ask(postgres_url, "SELECT count(*) FROM kept") == 0
    with postgres.fresh_database() as other:
        assert ask(other, "SELECT to_regclass('kept')") is None
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        ask(other, "SELECT 1")
    assert os.stat(f"/proc/{postgres.pid}").st_uid != 0


def test_what_was_committed_survives_a_kill_and_a_restart(own_postgres: Callable[[], Postgres]) -> None:
    server = own_postgres()
    url = server.url(server.create_database())
    ask(url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
    first = server.pid
    server.kill()
    assert not server.is_running
    with pytest.raises(OSError):
        ask(url, "SELECT 1")
    server.start()
    ask(url, "INSERT INTO kept VALUES (2)")
    server.restart()
    assert ask(url, "SELECT sum(n) FROM kept") == 3
    assert server.pid != first


def test_the_newest_of_debians_versions_is_taken(tmp_path: Path) -> None:
    for version in ("9", "15", "13"):
        (tmp_path / version / "bin").mkdir(parents=True)
    for version in ("9", "13"):
        (tmp_path / version / "bin" / "initdb").touch()
    assert find_programs(tmp_path) == tmp_path / "13" / "bin"
