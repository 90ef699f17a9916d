"""`redrive audit`: listed, exported for its owner alone, verified with exit codes that a job can use."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from redrive.stores import Store, open_store
from tests.unit.cli.dlq_stage import Ran, redrive
from tests.unit.stores.arrivals import database_of


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Four entries: tokens made by a command."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    for name in ("ada", "bob", "cyd", "dan"):
        assert redrive("token", "create", name, "--role", "viewer", "--database", url).code == 0
    return url


def audit(database: str, *arguments: str) -> Ran:
    return redrive("audit", *arguments, "--database", database)


def spoil(database: str, statement: str) -> None:
    async def work() -> None:
        async with await open_store(database) as store, database_of(store).write() as tx:
            assert isinstance(store, Store)
            await tx.run(statement)

    asyncio.run(work())


def test_a_command_s_entries_have_the_login_besides_the_name_it_says(database: str) -> None:
    entries = audit(database, "list", "--format", "json").json["entries"]
    assert [one["place"] for one in entries] == [4, 3, 2, 1]
    assert {one["who"] for one in entries} == {"ada"}
    assert all(one["token"].startswith("cli:") and len(one["token"]) > 4 for one in entries)
    assert entries[0]["detail"]["name"] == "dan"
    chosen = audit(database, "list", "--token", "nobody", "--format", "json").json["entries"]
    assert chosen == []


def test_a_whole_chain_is_0_and_prints_its_head(database: str) -> None:
    ran = audit(database, "verify")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "The chain is whole: 4 entries.")
    head = ran.out.splitlines()[1].removeprefix("head ")
    told = audit(database, "verify", "--head", head, "--format", "json").json
    assert told == {"is_whole": True, "entries": 4, "head": head, "findings": [], "more": False}


@pytest.mark.parametrize("what", ["UPDATE audit SET who = 'eve' WHERE place = 2", "DELETE FROM audit WHERE place=2"])
def test_a_broken_chain_is_1_and_says_where(database: str, what: str) -> None:
    spoil(database, what)
    ran = audit(database, "verify")
    assert ran.code == 1
    assert "entry 2 " in ran.err
    assert audit(database, "verify", "--format", "json").json["is_whole"] is False


def test_an_export_is_for_its_owner_and_finds_what_was_cut_off(database: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    ran = audit(database, "export", "-o", str(file))
    assert ran.code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["place"] for one in lines] == [1, 2, 3, 4]
    assert ran.err.strip() == f"head 4:{lines[-1]['hash']}"
    assert audit(database, "export").out.splitlines() == file.read_text().splitlines()
    spoil(database, "DELETE FROM audit WHERE place = 4")
    spoil(database, f"UPDATE audit_head SET place = 3, hash = x'{lines[2]['hash']}'")  # noqa: S608
    assert audit(database, "verify").code == 0
    ran = audit(database, "verify", "--export", str(file))
    assert ran.code == 1
    assert "the last 1 entry is missing: there were 4" in ran.err


def test_what_can_t_be_is_2_and_one_sentence(database: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("{}\n")
    for arguments in (("--head", "x"), ("--export", str(tmp_path / "none")), ("--export", str(tmp_path / "other"))):
        ran = audit(database, "verify", *arguments)
        assert (ran.code, len(ran.err.splitlines())) == (2, 1), ran.err
