"""`redrive token`: made, listed and revoked in the database; a secret is printed once."""

import asyncio
from pathlib import Path

import pytest

from redrive.records import Role, read_token_text
from redrive.stores import Store, open_store
from tests.unit.cli.dlq_stage import Ran, redrive

DAY_MS = 86_400_000


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'letters.db'}"


def token(database: str, *arguments: str) -> Ran:
    return redrive("token", *arguments, "--database", database)


def test_a_token_is_printed_once_and_kept_as_a_hash(database: str, tmp_path: Path) -> None:
    ran = token(database, "create", "ada", "--role", "operator", "--queue", "orders*", "--queue", "bills")
    assert ran.code == 0
    text = ran.out.strip()
    assert "only time it is shown" in ran.err
    read = read_token_text(text)
    assert read is not None

    async def look() -> None:
        async with await open_store(database) as store:
            assert isinstance(store, Store)
            found = await store.tokens.find(read[0])
            assert found is not None
            kept, secret_hash = found
            assert (kept.name, kept.role, kept.queues, kept.created_by) == (
                *("ada", Role.OPERATOR, ("orders*", "bills"), "ada"),
            )
            assert kept.expires_at_ms == kept.created_at_ms + 90 * DAY_MS
            assert secret_hash == read[1]

    asyncio.run(look())
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert text.rsplit("_", 1)[1].encode() not in stored


def test_as_json_for_machines(database: str) -> None:
    made = token(database, "create", "bot", "--role", "viewer", "--payloads", "--expires", "never", "--format", "json")
    told = made.json
    assert (told["name"], told["role"], told["payloads"], told["expires_at"]) == ("bot", "viewer", True, None)
    assert read_token_text(told["token"]) is not None
    listed = token(database, "list", "--format", "json").json["tokens"]
    assert listed == [{name: value for name, value in told.items() if name != "token"}]


def test_the_list_shows_what_counts_and_all_of_it_on_request(database: str) -> None:
    for name in ("ada", "bob"):
        token(database, "create", name, "--role", "viewer")
    ran = token(database, "revoke", "ada", "--why", "left")
    assert (ran.code, "of ada is revoked" in ran.out) == (0, True)
    listed = token(database, "list")
    assert ("bob" in listed.out, "ada" in listed.out.replace(" ada\n", "\n")) == (True, False)
    shown = token(database, "list", "--all", "--format", "json").json["tokens"]
    assert [(one["name"], one["state"]) for one in shown] == [("ada", "revoked"), ("bob", "valid")]
    (entry,) = redrive("dlq", "audit", "--action", "token.revoked", "--database", database, "--format", "json").json[
        "entries"
    ]
    assert (entry["who"], entry["why"]) == ("ada", "left")


def test_an_id_revokes_too(database: str) -> None:
    made = token(database, "create", "ada", "--role", "admin", "--format", "json").json
    assert token(database, "revoke", made["id"]).code == 0
    assert token(database, "list", "--format", "json").json == {"tokens": []}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "ada"), "--role"),
        (("create", "ada", "--role", "god"), "'god' is not one of"),
        (("create", "", "--role", "admin"), "visible characters"),
        (("create", "ada", "--role", "admin", "--expires", "soon"), "not a duration"),
        (("create", "ada", "--role", "admin", "--expires", "99999999999d"), "expires in the future"),
        (("create", "ada", "--role", "admin", "--queue", ""), "255 bytes"),
        (("revoke", "zoe"), "there is no token zoe"),
    ],
)
def test_what_can_t_be_is_one_sentence(database: str, arguments: tuple[str, ...], said: str) -> None:
    token(database, "create", "first", "--role", "viewer")
    ran = token(database, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_name_that_is_taken_is_refused(database: str) -> None:
    token(database, "create", "ada", "--role", "viewer")
    ran = token(database, "create", "ada", "--role", "admin")
    assert (ran.code, ran.out) == (2, "")
    assert "there is or was a token named ada already" in ran.err


def test_without_tokens_the_list_says_how_to_make_one(database: str) -> None:
    token(database, "create", "ada", "--role", "viewer")
    token(database, "revoke", "ada")
    ran = token(database, "list")
    assert (ran.code, ran.out) == (0, "")
    assert "redrive token create" in ran.err


@pytest.mark.parametrize("path", [("token",), ("token", "create"), ("token", "list"), ("token", "revoke")])
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    ran = redrive(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"redrive {' '.join(path)}" in ran.out.split("Example", 1)[1]
