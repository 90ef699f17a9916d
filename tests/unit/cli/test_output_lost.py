"""Where the output can't be written, what was done is said all the same, and no secret stays that nobody knows."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.records import Filter
from redrive.stores import open_store
from tests.unit.stores.made_letters import NOW_MS, make_letter, put


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'letters.db'}"

    async def fill() -> None:
        async with await open_store(url) as store:
            await put(store, [make_letter(number, collected_at_ms=1) for number in range(3)])

    asyncio.run(fill())
    return url


def run_with_a_full_disk(*arguments: str) -> tuple[int, str]:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.slow)])
def test_what_was_deleted_is_said_on_stderr(database: str, form: str) -> None:
    code, said = run_with_a_full_disk("dlq", "delete", "--all", "--yes", "--database", database, "--format", form)
    assert code == 1
    assert "can't write the output: No space left on device" in said
    assert ("3 dead letters deleted" if form == "text" else '"done": 3') in said

    async def count() -> int:
        async with await open_store(database) as store:
            return await store.letters.count(Filter(), now_ms=NOW_MS)

    assert asyncio.run(count()) == 0


def test_what_only_looks_could_not(database: str) -> None:
    code, said = run_with_a_full_disk("dlq", "list", "--database", database)
    assert (code, "can't write the output" in said) == (2, True)


@pytest.mark.parametrize("form", ["text", pytest.param("json", marks=pytest.mark.slow)])
def test_a_token_that_could_not_be_shown_is_revoked(database: str, form: str) -> None:
    arguments = ("token", "create", "ada", "--role", "admin", "--database", database, "--format", form)
    code, said = run_with_a_full_disk(*arguments)
    assert (code, "it is revoked" in said, "rd_" in said) == (2, True, False)

    async def states() -> list[str]:
        async with await open_store(database) as store:
            return [one.state(store.clock_ms()) for one in await store.tokens.all()]

    assert asyncio.run(states()) == ["revoked"]
