"""`redrive dlq redrive`, `retry`, `operations`, `queues`, `peek` on an embedded broker."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.records import Filter, NewOperation, OperationKind, Selection, make_id
from redrive.stores import open_store
from tests.unit.cli.dlq_stage import NOW_MS, Scene, publish, scene_in, taken

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with scene_in(tmp_path) as made:
        yield made


def test_a_redrive_shows_its_target_asks_and_sends_to_the_failed_queue(scene: Scene) -> None:
    scene.park(3)
    scene.collect()
    arguments = ("dlq", "redrive", "--queue", "orders", "--limit", "2")
    nobody = scene.run(*arguments)
    assert nobody.code == 2
    assert nobody.out.splitlines()[1].split() == ["queue", "orders", "2", "0", "0"]
    assert "warning: queue orders: nobody consumes it" in nobody.err
    assert "Nothing was changed" in nobody.err
    assert scene.statuses() == ["pending"] * 3
    ran = scene.run(*arguments, typed=b"y\n", is_terminal=True)
    assert ran.code == 0
    assert "Redrive 2 dead letters?" in ran.err
    assert ran.out.endswith("2 of 2 dead letters sent.\n")
    assert scene.statuses() == ["retrying", "retrying", "pending"]
    first, second = taken(scene.broker.url, "orders")
    assert (first.properties.message_id, second.properties.message_id) == ("m0", "m1")
    assert first.properties.header("x-redriven-by") == "ada"
    assert first.properties.header("x-redriven-id") == scene.letters()[0]["id"]
    assert first.properties.header("x-redriven-count") == 1
    assert first.properties.header("x-retry-count") is None


def test_dead_letters_of_another_vhost_are_left_alone_and_named(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    ran = scene.run("dlq", "redrive", "--all", "--yes", "--url", scene.broker.url.removesuffix("%2F") + "other")
    assert (ran.code, ran.out) == (0, "")
    assert "1 dead letter would match in other vhosts than other; name the vhost in --url." in ran.err
    assert scene.statuses() == ["pending"]


def test_a_dry_run_and_its_json_change_nothing(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    plan = scene.run("dlq", "redrive", "--all", "--dry-run", "--format", "json")
    assert plan.code == 0
    assert (plan.json["total"], plan.json["by_queue"], plan.json["left_alone"]) == (2, {"orders": 2}, {})
    assert plan.json["targets"] == [
        {
            "exchange": "",
            "routing_key": "orders",
            "copies": 2,
            "exists": True,
            "consumers": 0,
            "messages_ready": 0,
        }
    ]
    assert [one["code"] for one in plan.json["findings"]] == ["no-consumers"]
    assert scene.statuses() == ["pending"] * 2
    assert scene.broker.depths() == {}


def test_a_missing_target_refuses_the_whole(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    for target in (("--to-queue", "nowhere"), ("--to-exchange", "nowhere.{queue}", "--routing-key", "x")):
        ran = scene.run("dlq", "redrive", "--all", "--yes", *target)
        assert ran.code == 2
        assert "it does not exist" in ran.err
        assert "Nothing was changed." in ran.err
    assert scene.statuses() == ["pending"]
    assert scene.run("dlq", "operations", "--format", "json").json["operations"] == []


def test_the_file_pipeline_redrives_through_its_retry_exchange(scene: Scene) -> None:
    scene.park(3, "bills", "bills.dlq")
    scene.collect()
    ran = scene.run(
        *("dlq", "redrive", "--queue", "bills.dlq", "--limit", "2", "--yes", "--format", "json"),
        *("--to-exchange", "retry.{queue}", "--routing-key", "retry"),
    )
    assert ran.code == 0
    assert (ran.json["operation"]["state"], ran.json["operation"]["sent"], ran.json["not_sent"]) == ("done", 2, [])
    assert scene.broker.depths() == {"bills.retry": 2}
    assert scene.statuses() == ["retrying", "retrying", "pending"]


def test_bookly_retries_one_by_its_id_and_a_resolved_one_only_after_it_is_reopened(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    first, second = (one["id"] for one in scene.letters())
    ran = scene.run("dlq", "retry", first[-7:], "--why", "supplier is back")
    assert (ran.code, ran.out) == (0, "1 of 1 dead letter sent.\n")
    assert scene.broker.depths() == {"orders": 1}
    scene.run("dlq", "resolve", second, "--resolution", "by hand")
    refused = scene.run("dlq", "retry", second)
    assert (refused.code, refused.out) == (1, "")
    assert "Nothing to send: 1 resolved left alone." in refused.err
    assert "redrive dlq reopen" in refused.err
    scene.run("dlq", "reopen", second)
    assert scene.run("dlq", "retry", second).code == 0
    assert scene.broker.depths() == {"orders": 2}
    busy = scene.run("dlq", "delete", second, "--yes")
    assert busy.code == 1
    assert "it is retrying" in busy.err


def test_one_that_dies_again_comes_back_to_its_dead_letter(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    scene.run("dlq", "redrive", "--all", "--yes")
    (copy,) = taken(scene.broker.url, "orders")
    publish(scene.broker.url, "", "orders.parked", 1, headers=dict(copy.properties.headers))
    assert scene.collect().out == "1 dead letter collected, 1 of them came back.\n"
    (letter,) = scene.letters()
    assert (letter["status"], letter["redrives"], letter["returns"]) == ("pending", 1, 1)


def test_everything_goes_back_to_its_queue_as_it_was_and_is_not_collected_again(scene: Scene) -> None:
    scene.park(2)
    before = [(one.header, one.body) for one in taken(scene.broker.url, "orders.parked")]
    scene.park(2)
    scene.collect()
    nobody = scene.run("dlq", "return", "--all")
    assert nobody.code == 2
    assert nobody.out.splitlines()[1].split() == ["queue", "orders.parked", "2", "0", "0"]
    assert nobody.err == "Return 2 dead letters? Nothing was changed: no terminal to ask on; add --yes.\n"
    ran = scene.run("dlq", "return", "--all", "--yes")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "2 of 2 dead letters returned.")
    assert scene.broker.depths() == {"orders.parked": 2}
    again = scene.collect()
    assert again.code == 1
    assert "warning: orders.parked: ada returned dead letters to orders.parked" in again.err
    assert scene.broker.depths() == {"orders.parked": 2}
    queues = scene.run("dlq", "queues", "--format", "json").json["queues"]
    assert [one["dlq"] for one in queues if one["stopped"]] == ["orders.parked"]
    assert [(one.header, one.body) for one in taken(scene.broker.url, "orders.parked")] == before
    scene.park(1)
    assert scene.run("collect", scene.file, "--once", "--resume-queue", "orders.parked").code == 0
    assert scene.broker.depths() == {}


def test_an_idempotency_key_makes_twice_once(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    arguments = ("dlq", "redrive", "--queue", "orders", "--idempotency-key", "k1", "--yes", "--format", "json")
    first, again = scene.run(*arguments), scene.run(*arguments)
    assert first.code == again.code == 0
    assert first.json["operation"]["id"] == again.json["operation"]["id"]
    assert scene.broker.depths() == {"orders": 2}
    other = scene.run("dlq", "redrive", "--queue", "bills", "--idempotency-key", "k1", "--yes")
    assert other.code == 2
    assert "the idempotency key 'k1' belongs to operation" in other.err


def test_ctrl_c_pauses_cleanly_and_resume_goes_on(scene: Scene) -> None:
    scene.park(30)
    scene.collect()
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "dlq", "redrive", "--all", "--rate", "4/s", "--yes", "--format", "json"],
        env={**os.environ, **scene.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline_s = time.monotonic() + 60
    while not scene.broker.depths().get("orders") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in err
    operation = json.loads(out)["operation"]
    assert operation["state"] == "paused"
    assert (operation["rate_per_s"], operation["ramp"]) == (4, [])  # what was asked for, and nothing else
    assert 0 < operation["sent"] < 30
    assert scene.broker.depths() == {"orders": operation["sent"]}
    listed = scene.run("dlq", "operations")
    assert [line.split()[:3] for line in listed.out.splitlines()[1:]] == [[operation["id"], "redrive", "paused"]]
    cancelled_rest = scene.run("dlq", "operations", "show", operation["id"][-8:], "--item-state", "queued")
    assert "paused" in cancelled_rest.out
    # The rate is the operation's: what is left would take seconds.
    assert scene.run("dlq", "operations", "cancel", operation["id"]).code == 0
    ended = scene.run("dlq", "operations", "resume", operation["id"], "--format", "json")
    assert ended.code == 1
    assert ended.json["operation"]["state"] == "cancelled"
    assert scene.statuses().count("pending") == 30 - operation["sent"]


def test_a_paused_operation_is_resumed_to_its_end(scene: Scene) -> None:
    scene.park(12)
    scene.collect()
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "dlq", "redrive", "--all", "--rate", "3/s", "--yes"],
        env={**os.environ, **scene.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 60
    while not scene.broker.depths().get("orders") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    (operation,) = scene.run("dlq", "operations", "--format", "json").json["operations"]
    assert f"Go on with: redrive dlq operations resume {operation['id']}" in err
    ran = scene.run("dlq", "operations", "resume", operation["id"])
    assert (ran.code, ran.out) == (0, "12 of 12 dead letters sent.\n")
    assert sorted(str(one.properties.message_id) for one in taken(scene.broker.url, "orders")) == sorted(
        f"m{number}" for number in range(12)
    )


def doubt(database: str) -> None:
    """Sends everything, with a runner that is gone before it knows how that ended."""

    async def leave() -> None:
        async with await open_store(database) as store:
            new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(filter=Filter()), who="gone")
            operation = await store.operations.create(new, id=make_id(NOW_MS, 1), now_ms=NOW_MS)
            for owner, now_ms in (("first", NOW_MS), ("second", NOW_MS + 1000)):
                lease = await store.leases.acquire(f"operation:{operation.id}", owner, ttl_ms=60_000)
                assert lease is not None
                await store.operations.claim(operation.id, lease, now_ms=now_ms)
                await store.operations.take(operation.id, lease, limit=100, now_ms=now_ms)
                await store.leases.renew(lease, ttl_ms=0)  # it is gone, and its time has run out

    asyncio.run(leave())


def test_a_doubtful_one_is_settled_by_hand(scene: Scene) -> None:
    scene.park(3)
    scene.collect()
    doubt(scene.environment["REDRIVE_DATABASE"])
    assert scene.statuses() == ["in_doubt"] * 3
    none = scene.run("dlq", "redrive", "--queue", "orders", "--yes")
    assert (none.code, none.out) == (0, "")
    assert "Doubtful ones are sent when their IDs are given, or with --include-in-doubt." in none.err
    arrived, lost, again = (one["id"] for one in scene.letters())
    assert scene.run("dlq", "resolve", arrived, "--resolution", "it is in orders").code == 0
    assert scene.run("dlq", "reopen", lost, "--why", "it is not in orders").code == 0
    assert scene.run("dlq", "retry", again).code == 0
    assert scene.statuses() == ["resolved", "pending", "retrying"]
    (copy,) = taken(scene.broker.url, "orders")
    assert copy.properties.header("x-redriven-id") == again
    assert copy.properties.header("x-redrive-possible-duplicate") is True


def test_auto_retry_sends_what_is_due(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    assert scene.run("dlq", "auto-retry", "run", "--once").out.startswith("0 sent back")
    scene.run("dlq", "auto-retry", "on", "--queue", "orders", "--first", "1ms")
    ran = scene.run("dlq", "auto-retry", "run", "--once")
    assert (ran.code, ran.out) == (0, "2 sent back; 0 resolved: they have not come back.\n")
    assert scene.broker.depths() == {"orders": 2}


def test_queues_have_live_depth_and_stored_counts(scene: Scene) -> None:
    scene.park(2)
    scene.run("collect", scene.file, "--once")
    scene.park(1)
    found = scene.run("dlq", "queues", "--file", scene.file, "--format", "json").json
    assert found["problem"] is None
    queues = {one["dlq"]: one for one in found["queues"]}
    assert set(queues) == {"orders.parked", "bills.dlq"}
    assert queues["orders.parked"]["queue"] == "orders"
    assert queues["orders.parked"]["messages"] == 1
    assert queues["orders.parked"]["stored"]["pending"] == 2
    assert queues["bills.dlq"]["messages"] == 0


def test_queues_without_a_management_api_are_asked_over_amqp(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    scene.park(3)
    ran = scene.run("dlq", "queues", "--management-url", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[1].split() == ["orders.parked", "3", "0", "2"]


def test_queues_without_a_broker_are_those_of_the_database(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    ran = scene.run("dlq", "queues", "--management-url", "http://127.0.0.1:1", "--url", "amqp://127.0.0.1:1/")
    assert ran.code == 0
    assert "warning: depths are not known: " in ran.err
    assert ran.out.splitlines()[1].split() == ["orders.parked", "?", "?", "2"]


def test_a_peek_leaves_everything_where_it_is(scene: Scene) -> None:
    scene.park(3, "bills", "bills.dlq")
    for _ in range(3):
        found = scene.run("dlq", "peek", "bills.dlq", "--limit", "2", "--format", "json").json
        assert [one["properties"]["message_id"] for one in found["messages"]] == ["m0", "m1"]
        assert found["left"] == 1
    text = scene.run("dlq", "peek", "bills.dlq")
    assert "3 messages shown, 0 behind." in text.err
    assert ["x-original-queue", "text", "bills"] in [line.split() for line in text.out.splitlines()]
    assert scene.broker.depths() == {"bills.dlq": 3}


def test_a_broker_that_is_not_there_is_one_sentence(scene: Scene) -> None:
    scene.park(1)
    scene.collect()
    for command in (("dlq", "redrive", "--all", "--yes"), ("collect", "--match", "x", "--once")):
        ran = scene.run(*command, "--url", "amqp://ada:secret@127.0.0.1:1/")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == "error: 127.0.0.1:1: the connection was refused; does a broker run there?\n"
    assert scene.statuses() == ["pending"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--all", "--rate", "fast"), "'fast' is no rate; write it like 50/s or 300/m"),
        (("--all", "--to-queue", "a", "--to-exchange", "b"), "--to-queue says already where"),
        (("--all", "--routing-key", "b"), "--routing-key needs --to-exchange"),
        (("--all", "--to-exchange", "{que}"), "has a placeholder other than {queue}"),
        ((), "say which dead letters: IDs, --queue Q, --group ID, --filter 'TEXT', or --all"),
    ],
)
def test_a_wrong_redrive_is_refused_in_a_sentence(scene: Scene, options: tuple[str, ...], sentence: str) -> None:
    scene.park(1)
    scene.collect()
    ran = scene.run("dlq", "redrive", "--yes", *options)
    assert ran.code == 2
    assert sentence in ran.err
    assert scene.statuses() == ["pending"]
    assert scene.broker.depths() == {}


def test_what_lies_in_a_queue_that_nobody_consumes_waits_and_is_not_resolved(scene: Scene) -> None:
    scene.park(2)
    scene.collect()
    scene.run("dlq", "auto-retry", "on", "--first", "1ms", "--settle", "1ms")
    scene.run("dlq", "auto-retry", "run", "--once")
    assert scene.broker.depths() == {"orders": 2}
    again = scene.run("dlq", "auto-retry", "run", "--once")
    assert again.out == "0 sent back; 0 resolved: they have not come back.\n"
    assert scene.statuses() == ["waiting", "waiting"]
    assert {one["status_reason"] for one in scene.letters()} == {"nobody consumes orders, and messages lie there"}
