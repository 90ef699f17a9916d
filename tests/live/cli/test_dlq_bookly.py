"""Bookly's operations from the command line on real brokers: the message's place is checked each time."""

from pathlib import Path

import pytest
from rig import Vhost
from rig.dlq_operator import Operator

FILE = "examples/bookly/redrive.yaml"
QUEUES = ("availability", "availability.dlq")


def with_dead_letters(vhost: Vhost, folder: Path, *message_ids: str) -> Operator:
    """Bookly with dead letters, collected."""
    operator = Operator(vhost, folder)
    operator.fine("apply", FILE, "--yes")
    operator.publish("bookly.events", "availability.checked", *message_ids)
    operator.let_fail(FILE, "availability", dlq="availability.dlq", parked=len(message_ids))
    operator.fine("collect", FILE, "--once")
    assert operator.depths(*QUEUES) == {"availability": 0, "availability.dlq": 0}
    assert sorted(one["message_id"] for one in operator.letters()) == sorted(message_ids)
    return operator


@pytest.mark.live(versions=("3.10", "4.3"))
def test_stats_list_retry_resolve_and_remove(vhost: Vhost, tmp_path: Path) -> None:
    operator = with_dead_letters(vhost, tmp_path, "a", "b", "c")

    stats = operator.json("dlq", "stats")
    assert stats["by_status"]["pending"] == stats["total"] == 3
    assert stats["by_topic"] == {"availability.checked": {"pending": 3}}
    assert stats["by_service"] == {"availability-service": {"pending": 3}}

    letters = {one["message_id"]: one for one in operator.letters("--status", "PENDING")}
    assert letters["a"]["error"]["type"] == "TimeoutError"
    assert letters["a"]["attempts"] == 4
    assert operator.letters("--status", "FAILED") == []

    assert operator.fine("dlq", "retry", letters["a"]["id"]) == "1 of 1 dead letter sent.\n"
    (copy,) = operator.taken("availability")
    assert (copy.properties.message_id, copy.body) == ("a", b'{"id": "a"}')
    assert copy.properties.header("x-redriven-id") == letters["a"]["id"]
    assert copy.properties.header("x-redriven-by") == "ada"
    assert operator.letters("--status", "retrying")[0]["message_id"] == "a"

    operator.fine("dlq", "resolve", letters["b"]["id"], "--by", "admin", "--resolution", "Data corrected manually")
    (resolved,) = operator.letters("--status", "RESOLVED")
    assert (resolved["message_id"], resolved["resolved_by"]) == ("b", "admin")

    operator.fine("dlq", "delete", letters["c"]["id"], "--yes")
    assert sorted((one["message_id"], one["status"]) for one in operator.letters()) == [
        ("a", "retrying"),
        ("b", "resolved"),
    ]
    assert operator.depths(*QUEUES) == {"availability": 0, "availability.dlq": 0}
    done = [(one["action"], one["who"]) for one in operator.json("dlq", "audit")["entries"]]
    assert done[:3] == [("letters.deleted", "ada"), ("letters.resolved", "admin"), ("redrive.created", "ada")]


@pytest.mark.live
def test_a_message_that_nobody_can_decode_stays_in_its_group_when_it_is_redriven(vhost: Vhost, tmp_path: Path) -> None:
    operator = Operator(vhost, tmp_path)
    operator.fine("apply", FILE, "--yes")
    operator.publish("bookly.events", "availability.checked", "a", body=b"{not json")
    groups = []
    for returns in (0, 1):
        operator.let_fail(FILE, "availability", dlq="availability.dlq", parked=1)
        operator.fine("collect", FILE, "--once")
        (letter,) = operator.letters()
        assert (letter["message_id"], letter["reason"], letter["returns"]) == ("a", "undecodable", returns)
        groups.append(letter["group"])
        if not returns:
            operator.fine("dlq", "retry", letter["id"])
    assert groups[0] == groups[1]
    assert [one["id"] for one in operator.json("dlq", "groups")["groups"]] == [groups[0]]
    assert operator.depths(*QUEUES) == {"availability": 0, "availability.dlq": 0}


@pytest.mark.live(versions=("3.10", "4.3"))
def test_auto_retry_runs_until_the_attempts_are_spent(vhost: Vhost, tmp_path: Path) -> None:
    operator = with_dead_letters(vhost, tmp_path, "a")
    operator.fine(
        "dlq", "auto-retry", "on", "--queue", "availability", "--attempts", "2", "--first", "1ms", "--max", "1ms"
    )
    for returns in (1, 2):
        assert operator.fine("dlq", "auto-retry", "run", "--once").startswith("1 sent back")
        operator.wait_depths({"availability": 1, "availability.dlq": 0})
        assert [one["status"] for one in operator.letters()] == ["retrying"]
        operator.let_fail(FILE, "availability", dlq="availability.dlq", parked=1)
        operator.fine("collect", FILE, "--once")
        (letter,) = operator.letters()
        assert (letter["returns"], letter["redrives"]) == (returns, returns)
    assert letter["status"] == "failed"
    assert operator.fine("dlq", "auto-retry", "run", "--once").startswith("0 sent back")
    assert operator.depths(*QUEUES) == {"availability": 0, "availability.dlq": 0}
