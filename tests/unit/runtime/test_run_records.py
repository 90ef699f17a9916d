"""What a process leaves behind of the messages it had in its handlers, however it ended."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from redrive import wire
from redrive.client import Delivery
from redrive.runtime.run_records import LastRun, RunRecord, RunRecords, message_key, read_crash_report

KEY = message_key("orders", "a", b"x")


def delivery(tag: int, *, message_id: str | None = None, header_bytes: int = 0) -> Delivery:
    properties = wire.Properties.of(
        message_id=message_id, headers={"large": "x" * header_bytes} if header_bytes else None
    )
    return cast(Delivery, wire.Delivery(1, "c", tag, False, ("", "orders"), properties.raw, b"{}"))


def test_a_run_that_has_not_ended_outlives_its_process_with_queue_id_and_tag(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run-1", {"orders": 10, "invoices": 10})
    begin, end = record.recorder("orders")
    begin_invoice, _ = record.recorder("invoices")
    ended = begin(delivery(1, message_id="ended"))
    begin(delivery(2, message_id="first"))
    end(ended)
    begin(delivery(3))
    begin(delivery(4, message_id="of a large header", header_bytes=2000))
    begin_invoice(delivery(7, message_id="last"))
    report = read_crash_report(record.path, code=-9)
    assert report is not None
    assert not report.had_started
    assert [(one.queue, one.message_id, one.delivery_tag) for one in report.unfinished] == [
        ("invoices", "last", 7),
        ("orders", "of a large header", 4),
        ("orders", None, 3),
        ("orders", "first", 2),
    ]
    record.mark_started()
    report = read_crash_report(record.path, code=-9)
    assert report is not None
    assert report.had_started


def test_more_runs_than_there_is_room_for_go_unrecorded_and_none_is_mixed_up(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run-1", {"orders": 2})
    begin, end = record.recorder("orders")
    slots = [begin(delivery(tag)) for tag in (1, 2, 3)]
    for slot in slots:
        end(slot)
    begin(delivery(4))
    report = read_crash_report(record.path, code=0)
    assert report is not None
    assert [one.delivery_tag for one in report.unfinished] == [4]


def test_what_is_no_record_is_none(tmp_path: Path) -> None:
    assert read_crash_report(tmp_path / "nowhere", code=1) is None
    (tmp_path / "other").write_bytes(b"something else" * 1000)
    assert read_crash_report(tmp_path / "other", code=1) is None
    (tmp_path / "empty").write_bytes(b"")
    assert read_crash_report(tmp_path / "empty", code=1) is None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (2, LastRun.ITS_OWN),
        (0, LastRun.ITS_OWN),
        (-signal.SIGSEGV, LastRun.ITS_OWN),
        (-signal.SIGABRT, LastRun.ITS_OWN),
        (-signal.SIGKILL, LastRun.STOPPED),
        (-signal.SIGTERM, LastRun.STOPPED),
    ],
)
def test_the_last_run_is_found_with_how_its_process_ended_and_only_once(
    tmp_path: Path, code: int, told: LastRun
) -> None:
    records = RunRecords(tmp_path)
    record = records.create({"orders": 1}, path=records.new_path())
    assert record is not None
    record.begin_exclusive(KEY)
    read_crash_report(record.path, code=code)
    assert asyncio.run(records.find_last_run(message_key("orders", "b", b"x"))) is LastRun.UNSEEN
    assert asyncio.run(records.find_last_run(KEY)) is told
    assert asyncio.run(records.find_last_run(KEY)) is LastRun.UNSEEN


def test_a_message_that_was_received_and_had_not_begun_is_recorded_so(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    record = records.create({"orders": 1})
    assert record is not None
    for number in range(300):
        record.hold(message_key("orders", str(number), b"x"))
    record.hold(KEY)
    assert asyncio.run(records.find_last_run(KEY)) is LastRun.NOT_BEGUN
    assert asyncio.run(records.find_last_run(KEY)) is LastRun.UNSEEN
    record.begin_exclusive(KEY)
    record.end_exclusive()
    assert asyncio.run(records.find_last_run(KEY)) is LastRun.UNSEEN


def test_an_exclusive_run_that_blocked_the_event_loop_is_its_own_fault_though_the_process_lives(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    record = records.create({"orders": 1})
    assert record is not None
    record.mark_blocked()  # nothing runs alone
    record.begin_exclusive(KEY)
    record.mark_blocked()
    assert asyncio.run(records.find_last_run(KEY)) is LastRun.ITS_OWN


def test_a_process_that_nobody_watched_has_been_stopped_as_far_as_is_known(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from redrive.runtime import RunRecords;"
        " record = RunRecords(Path(sys.argv[1])).create({'orders': 1});"
        " record.begin_exclusive(bytes.fromhex(sys.argv[2])); os._exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path), KEY.hex()], check=False).returncode == 3
    assert asyncio.run(RunRecords(tmp_path).find_last_run(KEY)) is LastRun.STOPPED


def test_records_of_the_living_stay_and_those_of_the_long_dead_go(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    living = records.create({"orders": 1})
    ended = records.create({"orders": 1})
    dead = tmp_path / "run-dead"
    dead.write_bytes(b"")
    assert living is not None
    assert ended is not None
    for path in (living.path, dead):
        os.utime(path, (time.time() - 7200,) * 2)
    ended.close()
    assert records.create({"orders": 1}) is not None
    assert living.path.exists()
    assert not dead.exists()
    assert not ended.path.exists()


def test_a_folder_that_others_can_reach_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    found = RunRecords.find()
    assert found is not None
    assert found.folder.stat().st_mode & 0o777 == 0o700
    record = found.create({"orders": 1})
    assert record is not None
    assert record.path.stat().st_mode & 0o777 == 0o600
    found.folder.chmod(0o755)
    assert RunRecords.find() is None
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "nowhere"))
    assert RunRecords.find() is None
