"""`redrive dlq resolve`, `reopen`, `delete`, `edit`, `export`, `import`, `auto-retry`: what changes the store alone."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from redrive.records import ItemState, NewOperation, OperationKind, Selection, SendResult
from redrive.stores import open_store
from tests.unit.cli.dlq_stage import Letter, filled, redrive

LETTERS = (Letter(number=1), Letter(number=2), Letter(number=3, queue="bills"))


@pytest.fixture
def database(tmp_path: Path) -> str:
    return filled(tmp_path, LETTERS)


def statuses(database: str) -> dict[str, str]:
    found = redrive("dlq", "list", "--all", "--database", database, "--format", "json").json["letters"]
    return {one["message_id"]: one["status"] for one in found}


def test_bookly_resolves_one_with_who_and_what(database: str) -> None:
    ran = redrive(
        *("dlq", "resolve", LETTERS[0].id, "--by", "admin", "--resolution", "Data corrected", "--database", database)
    )
    assert (ran.code, ran.out) == (0, "1 dead letter resolved.\n")
    assert statuses(database) == {"m1": "resolved", "m2": "pending", "m3": "pending"}
    shown = redrive("dlq", "show", LETTERS[0].id, "--database", database, "--format", "json").json
    assert (shown["resolved_by"], shown["status_reason"]) == ("admin", "Data corrected")
    (entry,) = redrive("dlq", "audit", "--by", "admin", "--database", database, "--format", "json").json["entries"]
    assert (entry["action"], entry["count"], entry["why"]) == ("letters.resolved", 1, "Data corrected")


def test_a_resolution_needs_a_reason(database: str) -> None:
    ran = redrive("dlq", "resolve", LETTERS[0].id, "--database", database)
    assert ran.code == 2
    assert "--resolution" in ran.err
    assert statuses(database)["m1"] == "pending"


def test_many_are_asked_about_and_with_nobody_to_ask_nothing_changes(database: str) -> None:
    arguments = ("dlq", "resolve", "--queue", "orders", "--resolution", "old", "--database", database)
    nobody = redrive(*arguments)
    assert (nobody.code, nobody.out) == (2, "")
    assert nobody.err == "Resolve 2 dead letters? Nothing was changed: no terminal to ask on; add --yes.\n"
    no = redrive(*arguments, typed=b"n\n", is_terminal=True)
    assert no.code == 2
    assert "Resolve 2 dead letters?" in no.err
    assert set(statuses(database).values()) == {"pending"}
    yes = redrive(*arguments, typed=b"y\n", is_terminal=True)
    assert (yes.code, yes.out) == (0, "2 dead letters resolved.\n")
    assert statuses(database) == {"m1": "resolved", "m2": "resolved", "m3": "pending"}


def test_what_is_resolved_can_be_reopened_and_what_is_pending_says_so(database: str) -> None:
    redrive("dlq", "resolve", LETTERS[0].id, "--resolution", "x", "--database", database)
    again = redrive("dlq", "reopen", LETTERS[0].id, LETTERS[1].id, "--yes", "--database", database)
    assert again.code == 1
    assert again.out == "1 dead letter reopened.\n"
    assert again.err == f"warning: {LETTERS[1].id}: it is pending already\n"
    assert set(statuses(database).values()) == {"pending"}


def test_a_deleted_one_is_gone_but_for_the_audit(database: str) -> None:
    arguments = ("dlq", "delete", LETTERS[0].id, "--why", "spam", "--database", database)
    nobody = redrive(*arguments)
    assert nobody.code == 2
    assert len(statuses(database)) == 3
    ran = redrive(*arguments, "--yes", "--format", "json")
    assert (ran.code, ran.json) == (0, {"done": 1, "refused": {}, "not_done": {}})
    assert statuses(database) == {"m2": "pending", "m3": "pending"}
    (entry,) = redrive("dlq", "audit", "--action", "letters.deleted", "--database", database, "--format", "json").json[
        "entries"
    ]
    assert (entry["who"], entry["why"], entry["count"]) == ("ada", "spam", 1)


@pytest.mark.parametrize("command", ["resolve", "reopen", "delete"])
def test_nothing_chosen_is_no_way_to_say_all(database: str, command: str) -> None:
    reason = ("--resolution", "x") if command == "resolve" else ()
    ran = redrive("dlq", command, "--yes", *reason, "--database", database)
    assert ran.code == 2
    assert "say which dead letters: IDs, --queue Q, --group ID, --filter 'TEXT', or --all" in ran.err
    assert statuses(database) == {"m1": "pending", "m2": "pending", "m3": "pending"}


def test_ids_and_a_filter_together_are_refused(database: str) -> None:
    ran = redrive("dlq", "delete", LETTERS[0].id, "--queue", "orders", "--yes", "--database", database)
    assert ran.code == 2
    assert "IDs say already which" in ran.err
    assert len(statuses(database)) == 3


def test_an_edit_shows_its_difference_asks_and_keeps_the_original(database: str) -> None:
    arguments = (
        *("dlq", "edit", LETTERS[0].id, "--body", '{"order": 8}', "--header", "x-tenant=acme"),
        *("--header", "x-version:=2", "--why", "wrong order", "--database", database),
    )
    nobody = redrive(*arguments)
    assert nobody.code == 2
    assert '+{"order": 8}' in nobody.out.splitlines()
    assert redrive("dlq", "show", LETTERS[0].id, "--body", "--database", database).raw == b'{"order": 7}'
    ran = redrive(*arguments, "--yes")
    assert ran.code == 0
    assert "+header x-version: 2" in ran.out.splitlines()
    assert redrive("dlq", "show", LETTERS[0].id, "--body", "--database", database).raw == b'{"order": 8}'
    original = redrive("dlq", "show", LETTERS[0].id, "--body", "--original", "--database", database)
    assert original.raw == b'{"order": 7}'
    shown = redrive("dlq", "show", LETTERS[0].id, "--database", database, "--format", "json").json
    assert shown["headers"] == {"x-tenant": "acme", "x-version": 2}
    assert shown["edited"] is True


def test_an_edit_takes_a_body_of_any_bytes_from_a_file_or_stdin(database: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xff")
    change = ("--why", "x", "--yes", "--database", database)
    assert redrive("dlq", "edit", LETTERS[0].id, "--body-file", str(tmp_path / "body"), *change).code == 0
    assert redrive("dlq", "edit", LETTERS[1].id, "--body-file", "-", *change, typed=b"\xfe\n").code == 0
    assert redrive("dlq", "show", LETTERS[0].id, "--body", "--database", database).raw == b"\x00\xff"
    assert redrive("dlq", "show", LETTERS[1].id, "--body", "--database", database).raw == b"\xfe\n"


def test_an_edit_by_hand_keeps_the_end_of_the_body(database: str, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/7/9/' \"$1\"\n")  # and sed ends the last line
    editor.chmod(0o755)
    change = ("--editor", "--why", "x", "--yes", "--database", database)
    assert redrive("dlq", "edit", LETTERS[0].id, *change, EDITOR=str(editor)).code == 0
    assert redrive("dlq", "show", LETTERS[0].id, "--body", "--database", database).raw == b'{"order": 9}'
    unsaved = redrive("dlq", "edit", LETTERS[1].id, *change, EDITOR="true")
    assert (unsaved.code, unsaved.err) == (2, "error: the edit changes nothing\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "error: the edit changes nothing"),
        (("--header", "oops"), "--header is given as NAME=TEXT"),
        (("--header", "a:=oops"), "what follows is no JSON"),
        (("--property", "delivery_mode=1"), "--property knows content_type"),
        (("--body", "a", "--editor"), "give the body once"),
        (("--body-file", "/nowhere/body"), "error: /nowhere/body: can't be read"),
    ],
)
def test_a_wrong_edit_is_one_sentence(database: str, options: tuple[str, ...], sentence: str) -> None:
    ran = redrive("dlq", "edit", LETTERS[0].id, *options, "--why", "x", "--yes", "--database", database)
    assert ran.code == 2
    assert sentence in ran.err


def ungrouped(lines: bytes) -> list[dict[str, Any]]:
    """Exported letters without their groups, whose ids are those of one database."""
    told = [json.loads(line) for line in lines.splitlines()]
    return [{**one, "letter": {**one["letter"], "group_id": ""}, "group_title": ""} for one in told]


def test_an_export_imported_elsewhere_is_the_same(database: str, tmp_path: Path) -> None:
    redrive("dlq", "resolve", LETTERS[0].id, "--resolution", "x", "--database", database)
    file = tmp_path / "all.jsonl"
    written = redrive("dlq", "export", "-o", str(file), "--database", database)
    assert (written.code, written.err) == (0, "3 dead letters written.\n")
    assert [path.name for path in tmp_path.glob("*.part")] == []
    other = f"sqlite:///{tmp_path / 'other.db'}"
    first = redrive("dlq", "import", str(file), "--database", other, "--format", "json")
    assert first.json == {"imported": 3, "skipped": 0}
    again = redrive("dlq", "import", "--database", other, "--format", "json", typed=file.read_bytes())
    assert again.json == {"imported": 0, "skipped": 3}
    assert ungrouped(redrive("dlq", "export", "--database", other).raw) == ungrouped(file.read_bytes())
    assert statuses(other) == statuses(database)


def test_an_export_can_be_narrowed_and_a_broken_line_is_named(database: str, tmp_path: Path) -> None:
    lines = redrive("dlq", "export", "--queue", "bills", "--database", database).raw.splitlines()
    assert [json.loads(line)["letter"]["message_id"] for line in lines] == ["m3"]
    assert len(redrive("dlq", "export", "--limit", "2", "--database", database).raw.splitlines()) == 2
    other = f"sqlite:///{tmp_path / 'other.db'}"
    broken = redrive("dlq", "import", "--database", other, typed=lines[0] + b"\n{oops\n")
    assert broken.code == 2
    assert broken.err.startswith("error: line 2: it is no JSON")
    assert statuses(other) == {"m3": "pending"}


def test_auto_retry_is_off_until_a_rule_says_on(database: str) -> None:
    assert "auto-retry is off" in redrive("dlq", "auto-retry", "show", "--database", database).err
    on = redrive(
        "dlq", "auto-retry", "on", "--queue", "orders", "--attempts", "5", "--first", "10s", "--database", database
    )
    assert on.out == (
        "Auto-retry is on for queue orders: 5 attempts, the first after 10s, at most 1m apart; "
        "checked every 30s by `redrive serve` or `redrive collect --auto-retry`.\n"
    )
    redrive("dlq", "auto-retry", "on", "--queue", "orders", "--max", "5m", "--database", database)
    (rule,) = redrive("dlq", "auto-retry", "show", "--database", database, "--format", "json").json["rules"]
    assert rule == {
        "scope": "queue:orders",
        "enabled": True,
        "attempts": 5,
        "first_ms": 10_000,
        "max_ms": 300_000,
        "settle_ms": 600_000,
        "declared": False,
    }
    assert redrive("dlq", "auto-retry", "off", "--queue", "orders", "--database", database).code == 0
    assert "off" in redrive("dlq", "auto-retry", "show", "--database", database).out
    redrive("dlq", "auto-retry", "off", "--queue", "orders", "--forget", "--database", database)
    assert redrive("dlq", "auto-retry", "show", "--database", database, "--format", "json").json["rules"] == []


def test_a_rule_is_for_a_queue_or_a_group(database: str) -> None:
    ran = redrive("dlq", "auto-retry", "on", "--queue", "a", "--group", "b", "--database", database)
    assert ran.code == 2
    assert "say one of them" in ran.err


def test_a_duration_that_is_none_is_a_usage_error(database: str) -> None:
    ran = redrive("dlq", "auto-retry", "on", "--first", "soon", "--database", database)
    assert ran.code == 2
    assert "'soon' is not a duration" in ran.err


def spawned(*arguments: str, **io: Any) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "REDRIVE_USER": "ada"}
    return subprocess.Popen([sys.executable, "-m", "redrive", *arguments], env=environment, **io)


def _wait_until_it_reads(pid: int) -> None:
    """Python takes no notice of a signal in the moment between its last look and the read; no person hits it."""
    doing = Path(f"/proc/{pid}/syscall")
    until_s = time.monotonic() + 20
    while doing.exists() and not doing.read_text().startswith("0 0x0 ") and time.monotonic() < until_s:
        os.sched_yield()


@pytest.mark.slow
def test_one_ctrl_c_at_the_question_ends_it_and_changes_nothing(database: str) -> None:
    ours, theirs = pty.openpty()
    program = spawned(
        *("dlq", "delete", "--all", "--database", database),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    try:
        assert program.stderr is not None
        asked = b""
        while b"?" not in asked:
            asked += program.stderr.read(1)
        _wait_until_it_reads(program.pid)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)
    finally:
        program.kill()
        os.close(ours)
    assert b"Nothing was changed." in said
    assert program.returncode == 2
    assert statuses(database) == {"m1": "pending", "m2": "pending", "m3": "pending"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [("export", "--all"), ("list", "--all", "--format", "json"), ("show",)])
def test_a_reader_that_has_seen_enough_is_no_finding(database: str, command: tuple[str, ...]) -> None:
    arguments = (*command, LETTERS[0].id) if command == ("show",) else command
    reads, writes = os.pipe()
    os.close(reads)  # as `| head` does, only sooner
    program = spawned("dlq", *arguments, "--database", database, stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    _, said = program.communicate(timeout=30)
    assert (program.returncode, b"Traceback" in said, b"BrokenPipe" in said) == (0, False, False)
    assert b"written." not in said or b"not everything was written" in said


@pytest.mark.slow
def test_a_reader_that_left_does_not_hide_that_something_was_refused(database: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    program = spawned("dlq", "reopen", LETTERS[0].id, "--database", database, stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    program.communicate(timeout=30)
    assert program.returncode == 1  # it is pending already


def test_what_is_asked_for_and_left_is_counted_before_and_after_and_is_a_finding(database: str) -> None:
    async def send() -> None:
        async with await open_store(database) as store:
            now_ms = store.clock_ms()
            new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=(LETTERS[0].id,)), who="ada")
            operation = await store.operations.create(new, id="op", now_ms=now_ms)
            lease = await store.leases.acquire("operation:op", "test", ttl_ms=60_000)
            assert lease is not None
            await store.operations.claim(operation.id, lease, now_ms=now_ms)
            await store.operations.take(operation.id, lease, limit=1, now_ms=now_ms)
            sent = [SendResult(id=LETTERS[0].id, state=ItemState.SENT)]
            await store.operations.record(operation.id, lease, sent, now_ms=now_ms)

    asyncio.run(send())
    arguments = ("dlq", "delete", "--all", "--database", database)
    asked = redrive(*arguments, typed=b"y\n", is_terminal=True)
    left = "it is retrying: a copy may be on its way; end the waiting (--end-waiting) to change it all the same"
    assert f"warning: 1 dead letter would be left: {left}\n" in asked.err
    assert "Delete for good 2 dead letters?" in asked.err
    assert (asked.code, asked.out) == (1, "2 dead letters deleted.\n")
    assert asked.err.count(left) == 1  # it was said before, and is as it was said
    assert statuses(database) == {"m1": "retrying"}
    told = redrive(*arguments, "--yes", "--format", "json")
    assert (told.code, told.json) == (1, {"done": 0, "refused": {}, "not_done": {left: 1}})
    ended = redrive(*arguments, "--end-waiting", "--yes")
    assert (ended.code, ended.out) == (0, "1 dead letter deleted.\n")
    assert statuses(database) == {}
