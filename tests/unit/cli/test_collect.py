"""`redrive collect` on an embedded broker."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive.management import Management, QueueInfo
from redrive.stores import open_store
from tests.unit.cli.dlq_stage import NOW_MS, Scene, publish, scene_in

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_in(tmp_path) as made:
        yield made


def test_collecting_moves_everything_into_the_database(scene: Scene) -> None:
    scene.park(3)
    ran = scene.collect()
    assert (ran.code, ran.out) == (0, "3 dead letters collected.\n")
    assert scene.broker.depths() == {}
    assert [(one["queue"], one["dlq"], one["status"]) for one in scene.letters()] == [
        ("orders", "orders.parked", "pending")
    ] * 3
    again = scene.run("collect", "--match", "*.parked", "--once", "--format", "json")
    assert again.json == {"stored": 0, "came_back": 0, "copies": 0, "queues": {"orders.parked": 0}, "problems": {}}


def test_collecting_refuses_live_queues_and_says_when_there_is_nothing(scene: Scene) -> None:
    publish(scene.broker.url, "", "orders", 2)
    ran = scene.run("collect", scene.file, "--match", "orders", "--once")
    assert (ran.code, ran.out) == (2, "")
    assert "is a main queue: its messages are live" in ran.err
    none = scene.run("collect", "--match", "nothing.*", "--once")
    assert none.code == 2
    assert none.err.startswith("error: there is no dead-letter queue to collect")
    assert scene.broker.depths() == {"orders": 2}


def test_a_live_main_queue_is_not_drained_by_a_pattern(scene: Scene) -> None:
    scene.park(1)
    publish(scene.broker.url, "", "orders", 2)  # its consumers are away at the moment
    ran = scene.run("collect", "--match", "orders*", "--once", "--force")
    assert ran.code == 1
    assert "queue orders: " in ran.err
    assert scene.broker.depths() == {"orders": 2}
    assert "Collecting from orders.parked (1 message) of" in ran.err
    named = scene.run("collect", "--match", "orders", "--once")
    assert (named.code, scene.broker.depths()) == (2, {"orders": 2})
    nowhere = ("--management-url", "http://127.0.0.1:1")
    unseen = scene.run("collect", "--match", "orders", "--once", *nowhere)
    assert (unseen.code, scene.broker.depths()) == (2, {"orders": 2})
    insisted = scene.run("collect", "--match", "orders", "--once", "--force")
    assert (insisted.out, scene.broker.depths()) == ("2 dead letters collected.\n", {})


def test_without_a_file_and_names_it_asks_before_it_takes(scene: Scene) -> None:
    scene.park(2)
    nobody = scene.run("collect", "--once")
    assert (nobody.code, nobody.out) == (2, "")
    assert nobody.err.startswith("Would collect from bills.dlq (0 messages), orders.parked (2 messages) of amqp://")
    assert "Collecting from" not in nobody.err
    assert "no terminal to ask on; add --yes" in nobody.err
    no = scene.run("collect", "--once", typed=b"n\n", is_terminal=True)
    assert (no.code, scene.broker.depths()) == (2, {"orders.parked": 2})
    yes = scene.run("collect", "--once", typed=b"y\n", is_terminal=True)
    assert (yes.code, yes.out) == (0, "2 dead letters collected.\n")
    scene.park(1)
    assert scene.run("collect", "--once", "--yes").out == "1 dead letter collected.\n"


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [(("--match", "nothing.*"), b""), ((), b""), ((), b"n\n"), ((), b"\x03")],
    ids=["nothing to collect", "nobody to ask", "no", "what is typed ends"],
)
def test_what_is_refused_leaves_no_empty_database_behind(
    scene: Scene, tmp_path: Path, arguments: tuple[str, ...], typed: bytes
) -> None:
    scene.park(1)
    ran = scene.run("collect", "--once", *arguments, typed=typed, is_terminal=bool(typed))
    assert ran.code == 2
    assert not (tmp_path / "letters.db").exists()
    assert "there is no such database" in scene.run("dlq", "list").err


def test_how_many_messages_lie_there_is_asked_of_the_queues_themselves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stale(self: Management, vhost: str) -> AsyncIterator[QueueInfo]:
        async for one in asked(self, vhost):
            yield replace(one, messages=7)

    asked = Management.queues
    monkeypatch.setattr(Management, "queues", stale)
    scene.park(3)
    ran = scene.run("collect", "--match", "orders.parked", "--once")
    assert "Collecting from orders.parked (3 messages) of" in ran.err
    assert ran.out == "3 dead letters collected.\n"


def test_a_log_has_from_which_queues_is_collected(scene: Scene) -> None:
    scene.park(2)
    ran = scene.run("collect", scene.file, "--once", "--log-level", "info", "--log-format", "json")
    (entry,) = [
        one
        for line in ran.err.splitlines()
        if line.startswith("{") and (one := json.loads(line))["event"] == "collector.started"
    ]
    assert entry["queues"] == "bills.dlq (0), orders.parked (2)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_while_it_starts_hears_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection and says nothing
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}/"
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "collect", "--match", "a.dlq", "--url", url],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        taken, _ = silent.accept()
        with taken:
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_observed_queues_are_never_taken_from(scene: Scene) -> None:
    scene.park(2)
    scene.park(1, "bills", "bills.dlq")
    ran = scene.run("collect", scene.file, "--observe", "orders.*", "--once")
    assert (ran.code, ran.out) == (0, "1 dead letter collected.\n")
    assert scene.broker.depths() == {"orders.parked": 2}


def test_without_a_management_api_a_file_or_exact_names_must_do(scene: Scene) -> None:
    scene.park(2)
    nowhere = ("--management-url", "http://127.0.0.1:1", "--once")
    lost = scene.run("collect", *nowhere)
    assert lost.code == 2
    said = "the management API does not answer at http://127.0.0.1:1: connection refused; check --management-url"
    assert said in lost.err
    pattern = scene.run("collect", "--match", "*.parked", *nowhere)
    assert pattern.code == 2
    assert "is a pattern, and AMQP can't list queues" in pattern.err
    assert said in pattern.err
    assert scene.broker.depths() == {"orders.parked": 2}
    assert scene.run("collect", "--match", "orders.parked", *nowhere).out == "2 dead letters collected.\n"
    scene.park(1)
    assert scene.run("collect", scene.file, *nowhere).out == "1 dead letter collected.\n"
    assert scene.broker.depths() == {}
    assert len(scene.letters()) == 3


def test_a_queue_that_is_not_there_is_a_problem_of_once(scene: Scene) -> None:
    ran = scene.run(
        "collect", "--match", "gone.dlq", "--management-url", "http://127.0.0.1:1", "--once", "--format", "json"
    )
    assert ran.code == 1
    assert ran.json["problems"] == {"gone.dlq": "there is no queue gone.dlq"}


def test_a_queue_that_goes_on_is_in_the_audit_with_who_and_when(scene: Scene) -> None:
    scene.park(1)

    async def stop() -> None:
        async with await open_store(scene.environment["REDRIVE_DATABASE"]) as store:
            await store.batches.stop_queue("/", "orders.parked", "it nears its limit", now_ms=NOW_MS, who="ada")

    asyncio.run(stop())
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert scene.run("collect", scene.file, "--resume-queue", "orders.parked", "--as", "grace", "--once").code == 0
    entries = scene.run("dlq", "audit", "--action", "queue.resumed", "--format", "json").json["entries"]
    assert [(one["who"], one["subject"]) for one in entries] == [("grace", "orders.parked")]
    assert before <= datetime.fromisoformat(entries[0]["at"]) <= datetime.now(UTC)
    assert len(scene.letters()) == 1


def test_it_goes_on_until_a_signal_and_sends_back_what_is_due(scene: Scene) -> None:
    scene.run("dlq", "auto-retry", "on", "--first", "1ms", "--attempts", "1")
    scene.park(2)
    scene.collect()
    scene.park(1, "bills", "bills.dlq")
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "collect", scene.file, "--auto-retry", "--log-format", "text"],
        env={**os.environ, **scene.environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_s = time.monotonic() + 60
        while scene.broker.depths() != {"orders": 2} and time.monotonic() < until_s:
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(r"Collecting from bills.dlq \(\d messages?\), orders.parked \(\d messages?\) of amqp://", err)
    assert "Traceback" not in err
    assert scene.broker.depths() == {"orders": 2}
    assert [(one["queue"], one["status"]) for one in scene.letters()] == [
        ("orders", "retrying"),
        ("orders", "retrying"),
        ("bills", "pending"),
    ]
