"""`redrive dlq list`, `show`, `stats`, `groups`: what people read, and what machines do."""

import asyncio
import json
import os
import re
import stat
from pathlib import Path

import pytest

from redrive.records import NewOperation, OperationKind, Selection
from redrive.stores import open_store
from redrive.stores.letters import letters
from redrive.stores.search import walk as searching
from tests.unit.cli.dlq_stage import Letter, filled, redrive

LETTERS = (
    Letter(number=1),
    Letter(number=2, queue="bills", error=None, type=None, service=None),
    Letter(number=3, error="ValueError: \x1b[31mno such order\nsecond line", body=b"\x00\xff\x1b[2J"),
)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return filled(tmp_path, LETTERS)


def test_a_list_has_the_newest_first_and_no_control_character(database: str) -> None:
    ran = redrive("dlq", "list", "--database", database)
    assert (ran.code, ran.err) == (0, "")
    head, *rows = ran.out.splitlines()
    assert head.split() == ["ID", "STATUS", "DEAD", "QUEUE", "TYPE", "ERROR", "TRIES", "REDRIVEN"]
    assert [row.split()[0] for row in rows] == [LETTERS[2].id, LETTERS[1].id, LETTERS[0].id]
    assert r"ValueError: \x1b[31mno such order" in rows[0]
    assert "expired" in rows[1]
    assert "\x1b" not in ran.out


def test_a_list_as_json_has_the_documented_shape(database: str) -> None:
    found = redrive("dlq", "list", "--database", database, "--format", "json", "--limit", "1").json
    assert set(found) == {"letters", "next", "partial"}
    (letter,) = found["letters"]
    assert letter["id"] == LETTERS[2].id
    assert letter["error"] == {
        "type": "ValueError",
        "message": "\x1b[31mno such order\nsecond line",
        "status_code": None,
    }
    assert letter["dead_at"] == "2026-11-15T09:00:03.000Z"
    assert letter["status"] == "pending"
    following = redrive("dlq", "list", "--database", database, "--format", "json", "--cursor", found["next"]).json
    assert [one["id"] for one in following["letters"]] == [LETTERS[1].id, LETTERS[0].id]
    assert following["next"] is None
    assert following["letters"][0]["error"] is None


def test_a_list_goes_on_until_everything_was_looked_at(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LOOKED_AT_MAX", 1)
    monkeypatch.setattr(searching, "LONG", 0)
    monkeypatch.setattr(searching, "WINDOWS", (1, 1))
    monkeypatch.setattr(searching, "WINDOW_LOOKS", 1)
    chosen = ("dlq", "list", "--database", database, "--filter", f"-id:{LETTERS[2].id}")
    found = redrive(*chosen, "--format", "json").json
    assert [one["id"] for one in found["letters"]] == [LETTERS[1].id, LETTERS[0].id]
    assert (found["next"], found["partial"]) == (None, False)
    assert "stopped" not in redrive(*chosen).err


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (("--queue", "orders"), [3, 1]),
        (("--queue", "bills.parked"), [2]),
        (("--queue", "bill*"), [2]),
        (("--filter", "error:Timeout"), [1]),
        (("--filter", "-error:Timeout", "--queue", "orders"), [3]),
        (("--status", "PENDING"), [3, 2, 1]),
        (("--status", "failed"), []),
        (("--group", "bills-expired"), [2]),
        (("--all", "--oldest-first"), [1, 2, 3]),
        ((LETTERS[1].id[-5:],), [2]),
        ((LETTERS[0].id, LETTERS[2].id), [3, 1]),
    ],
)
def test_a_list_is_narrowed_down(database: str, options: tuple[str, ...], numbers: list[int]) -> None:
    ran = redrive("dlq", "list", "--database", database, "--format", "json", *options)
    assert [one["message_id"] for one in ran.json["letters"]] == [f"m{number}" for number in numbers]


def test_nothing_found_is_said_and_fine(tmp_path: Path, database: str) -> None:
    none = redrive("dlq", "list", "--database", database, "--queue", "nowhere")
    assert (none.code, none.out, none.err) == (0, "", "No dead letters match.\n")
    (tmp_path / "empty").mkdir()
    empty = redrive("dlq", "list", "--database", filled(tmp_path / "empty", ()))
    assert empty.err == "No dead letters. `redrive collect` brings them in.\n"


@pytest.mark.parametrize("command", [("list",), ("stats",), ("resolve", "--all", "--yes", "--why", "done")])
def test_a_database_that_is_not_there_is_not_an_empty_one(tmp_path: Path, command: tuple[str, ...]) -> None:
    missing = tmp_path / "elsewhere.db"
    ran = redrive("dlq", *command, "--database", f"sqlite:///{missing}")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "there is no such database; say where it is with --database" in ran.err
    assert not missing.exists()


def test_a_wrong_filter_is_shown_with_a_caret_under_the_place(database: str) -> None:
    ran = redrive("dlq", "list", "--database", database, "--filter", "queue:a quue:b")
    assert (ran.code, ran.out) == (2, "")
    sentence, shown, caret = ran.err.splitlines()
    assert sentence.startswith("error: filter, column 9: there is no field quue; did you mean `queue`?")
    assert shown == "  queue:a quue:b"
    assert caret == "          ^^^^^^"


def test_show_tells_everything_and_nothing_of_it_drives_the_terminal(database: str) -> None:
    ran = redrive("dlq", "show", LETTERS[2].id[:16], "--database", database)
    assert (ran.code, ran.err) == (0, "")
    for text in (
        f"dead letter {LETTERS[2].id}",
        "status     pending",
        "queue      orders",
        r"error      ValueError: \x1b[31mno such order\x0asecond line",
        "  at place",
        r"  at run\x1b[2J",
        "  message_id: m3",
        "00000000  00 ff 1b 5b 32 4a",
    ):
        assert text in ran.out
    assert "\x1b" not in ran.out


def test_show_prints_json_bodies_readably_and_headers_with_their_types(tmp_path: Path) -> None:
    letter = Letter(
        number=5,
        body=b'{"b": [1.0000000000000000001, "\\u001b[2J"], "b": 2}',
        headers={"tenant": "a\x07", "tries": 3, "deep": {"x": [True]}},
    )
    ran = redrive("dlq", "show", letter.id, "--database", filled(tmp_path, [letter]))
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["tenant", "text", r"a\x07"] in lines
    assert ["tries", "int", "3"] in lines
    assert ["deep", "table", '{"x":', "[true]}"] in lines
    assert '    "b": [' in ran.out
    # A picture of the body, not of what a parser made of it.
    assert "1.0000000000000000001" in ran.out
    assert '    "b": 2' in ran.out
    assert "\x1b" not in ran.out


def test_every_header_is_named_to_a_role_that_sees_no_values(tmp_path: Path) -> None:
    letter = Letter(number=5, headers={"tenant": "acme", "tries": 3})
    ran = redrive("dlq", "show", letter.id, "--as-role", "viewer", "--database", filled(tmp_path, [letter]))
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["tenant", "-", "(hidden)"] in lines
    assert ["tries", "-", "(hidden)"] in lines


@pytest.mark.parametrize(
    ("why", "line"), [("the shop is back", "who       ada: the shop is back"), ("", "who       ada")]
)
def test_an_operation_is_shown_with_who_asked_for_it_and_why(database: str, why: str, line: str) -> None:
    async def create() -> None:
        async with await open_store(database) as store:
            chosen = Selection(ids=(LETTERS[0].id,))
            new = NewOperation(kind=OperationKind.REDRIVE, selection=chosen, who="ada", why=why)
            await store.operations.create(new, id="op", now_ms=store.clock_ms())

    asyncio.run(create())
    ran = redrive("dlq", "operations", "show", "op", "--database", database)
    assert ran.code == 0
    assert line in ran.out.splitlines()


def test_show_as_json_is_lossless(tmp_path: Path) -> None:
    letter = Letter(number=5, body=b"\xff\x00", headers={"tries": 3})
    database = filled(tmp_path, [letter])
    found = redrive("dlq", "show", letter.id, "--database", database, "--format", "json").json
    assert found["body"] == {"encoding": "base64", "content": "/wA="}
    assert found["headers"] == {"tries": 3}
    assert found["properties"] == {"content_type": "application/json", "message_id": "m5"}
    assert found["life"][0]["event"] == "collected"
    assert found["stack"] == "  at place\n  at run\x1b[2J"


def test_the_body_alone_is_written_byte_for_byte(tmp_path: Path) -> None:
    body = bytes(range(256)) * 300
    letter = Letter(number=5, body=body)
    ran = redrive("dlq", "show", letter.id, "--body", "--database", filled(tmp_path, [letter]))
    assert ran.raw == body


@pytest.mark.parametrize("text", ["zzz", "", "'; drop table letters; --", "%"])
def test_an_unknown_id_is_one_sentence(database: str, text: str) -> None:
    ran = redrive("dlq", "show", text, "--database", database)
    address = database
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: there is no dead letter {text} in {address}; look for it with: redrive dlq list\n"


def test_a_beginning_that_several_ids_have_names_them(database: str) -> None:
    ran = redrive("dlq", "show", LETTERS[0].id[:6], "--database", database)
    assert ran.code == 2
    assert all(one.id in ran.err for one in LETTERS)
    assert "give more of the id" in ran.err


def test_stats_count_by_everything(database: str) -> None:
    found = redrive("dlq", "stats", "--database", database, "--format", "json").json
    assert found["total"] == 3
    assert found["by_status"] == {
        "pending": 3,
        "retrying": 0,
        "waiting": 0,
        "in_doubt": 0,
        "failed": 0,
        "resolved": 0,
    }
    assert found["by_queue"] == {"orders": {"pending": 2}, "bills": {"pending": 1}}
    assert found["by_dlq"] == {"orders.parked": {"pending": 2}, "bills.parked": {"pending": 1}}
    assert found["by_topic"] == {"orders.new": {"pending": 2}, "bills.new": {"pending": 1}}
    assert found["by_group"] == {
        "orders-TimeoutError": {"pending": 1},
        "orders-ValueError": {"pending": 1},
        "bills-expired": {"pending": 1},
    }
    assert found["by_service"]["shop"] == {"pending": 2}
    assert found["by_type"]["OrderPlaced"] == {"pending": 2}
    assert {"bucket_ms", "over_time", "partial"} < set(found)
    narrowed = redrive("dlq", "stats", "--database", database, "--queue", "bills", "--format", "json").json
    assert narrowed["total"] == 1


def test_stats_for_people_are_tables(database: str) -> None:
    ran = redrive("dlq", "stats", "--database", database, "--top", "1")
    assert ran.out.startswith("3 dead letters\n")
    assert "… and 1 more" in ran.out
    assert ["orders", "2", "2"] in [line.split() for line in ran.out.splitlines()]


def test_groups_are_listed_said_something_about_and_noted(database: str) -> None:
    listed = redrive("dlq", "groups", "--database", database, "--order", "last_seen").out.splitlines()
    assert listed[1].split()[:4] == ["orders-ValueError", "open", "1", "1"]
    said = redrive(
        "dlq", "groups", "acknowledge", "orders-ValueError", "--why", "supplier down", "--database", database
    )
    assert (said.code, said.out) == (0, "orders-ValueError is acknowledged.\n")
    # The database of the command above counts for the one below.
    noted = redrive("dlq", "groups", "--database", database, "note", "orders-ValueError", "ticket 4711")
    assert noted.code == 0
    shown = redrive("dlq", "groups", "show", "orders-ValueError", "--database", database, "--format", "json").json
    assert shown["state"] == "acknowledged"
    said_now = shown["said"]
    assert (said_now["state"], said_now["who"], said_now["why"]) == ("acknowledged", "ada", "supplier down")
    shown_text = redrive("dlq", "groups", "show", "orders-ValueError", "--database", database).out
    assert re.search(r"^said +acknowledged, \S.* ada: supplier down$", shown_text, re.MULTILINE)
    assert [(note["who"], note["text"]) for note in shown["notes"]] == [("ada", "ticket 4711")]
    assert "ada: ticket 4711" in redrive("dlq", "groups", "show", "orders-ValueError", "--database", database).out
    only = redrive("dlq", "groups", "--state", "OPEN", "--database", database, "--format", "json").json
    assert [one["id"] for one in only["groups"]] == ["bills-expired", "orders-TimeoutError"]
    audit = redrive("dlq", "audit", "--database", database, "--format", "json").json["entries"]
    assert ("ada", "group.acknowledged", "supplier down") in [(one["who"], one["action"], one["why"]) for one in audit]
    unknown = redrive("dlq", "groups", "resolve", "nope", "--why", "x", "--database", database)
    assert (unknown.code, unknown.err) == (
        2,
        f"error: there is no group nope in {database}; look for it with: redrive dlq groups\n",
    )


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://x/y", "error: "),
        ("redrive.db", "error: a database URL looks like sqlite:///FILE"),
        ("sqlite:////nowhere/at/all/x.db", "error: sqlite:////nowhere/at/all/x.db: "),
        ("postgresql://ada:secret@127.0.0.1:1/x", "error: postgresql://ada@127.0.0.1:1/x: "),
    ],
)
def test_a_database_that_can_not_be_had_is_one_sentence(url: str, sentence: str) -> None:
    ran = redrive("dlq", "list", "--database", url)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(sentence)
    assert ran.err.count("\n") == 1
    assert "secret" not in ran.err


def test_the_database_comes_from_the_flag_else_the_environment_else_the_file(tmp_path: Path, database: str) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(json.dumps({"database": database, "queues": {"orders": {}}}))
    (tmp_path / "other").mkdir()
    other = filled(tmp_path / "other", ())
    assert len(redrive("dlq", "list", "--file", str(file), "--format", "json").json["letters"]) == 3
    from_environment = redrive("dlq", "list", "--file", str(file), "--format", "json", REDRIVE_DATABASE=other)
    assert from_environment.json["letters"] == []
    by_flag = redrive("dlq", "list", "--database", database, "--format", "json", REDRIVE_DATABASE=other)
    assert len(by_flag.json["letters"]) == 3


def test_show_as_a_role_is_what_the_api_shows_it(tmp_path: Path) -> None:
    secret = "4111111111111111"
    body = json.dumps({"customer": {"card": secret, "name": "Ada"}}).encode()
    database = filled(tmp_path, (Letter(number=1, error=f"Declined: card {secret}", body=body),))
    (letter,) = redrive("dlq", "list", "--database", database, "--format", "json").json["letters"]

    def show(*arguments: str) -> str:
        ran = redrive("dlq", "show", letter["id"], "--database", database, *arguments)
        assert ran.code == 0, ran.err
        return ran.out

    for form in ("text", "json"):
        assert secret in show("--as-role", "operator", "--format", form)
        hidden = show("--as-role", "operator", "--hide-body", "customer.card", "--format", form)
        assert secret not in hidden
        assert "Ada" in hidden
        blind = show("--as-role", "viewer", "--format", form)
        assert secret not in blind
        assert "Ada" not in blind
        assert "Ada" in show("--as-role", "viewer", "--payloads", "--format", form)
    body_only = json.loads(show("--as-role", "operator", "--hide-body", "customer.card", "--body"))
    assert body_only["customer"] == {"card": "[redacted]", "name": "Ada"}
    ran = redrive("dlq", "show", letter["id"], "--database", database, "--as-role", "viewer", "--body")
    assert (ran.code, ran.raw) == (2, b"")
    assert redrive("dlq", "show", letter["id"], "--database", database, "--hide-body", "a").code == 2


def test_a_filter_that_is_too_dear_is_one_sentence(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.stores.search.offload.LETTER_COST_MAX", 1)
    for command in (("list",), ("delete", "--yes")):
        ran = redrive("dlq", *command, "--database", database, "--filter", "-body.a.*.1:zz*")
        assert (ran.code, ran.out) == (2, "")
        (sentence,) = ran.err.splitlines()
        assert sentence.startswith(
            "error: the filter takes too long: it looks at too many values of one dead letter; narrow"
        )
    assert len(redrive("dlq", "list", "--database", database, "--format", "json").json["letters"]) == len(LETTERS)


def test_a_database_that_others_may_read_is_warned_about(tmp_path: Path) -> None:
    database = filled(tmp_path, (Letter(number=1),))
    path = Path(database.removeprefix("sqlite:///"))
    assert redrive("dlq", "list", "--database", database).err == ""
    path.chmod(0o644)
    ran = redrive("dlq", "list", "--database", database)
    assert (ran.code, "mode 0644" in ran.err, "chmod 600" in ran.err) == (0, True, True)


def test_an_export_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    database = filled(tmp_path, (Letter(number=1),))
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    file.chmod(0o666)
    before = os.umask(0)
    try:
        assert redrive("dlq", "export", "--all", "-o", str(file), "--database", database).code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
