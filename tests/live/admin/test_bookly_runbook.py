"""Bookly's runbook as it is written, by curl, on real brokers: after each line the message's place is checked."""

import socket
from pathlib import Path

import pytest
from rig import Vhost
from rig.serve_process import let_fail_until

from tests.live.admin.bookly_runbook import EMPTY, FILE, LIST, QUEUES, RESOLVE, RETRY, STATS, bookly, by_event


@pytest.mark.live(versions=("3.10", "4.3"))
def test_the_runbook_line_by_line(vhost: Vhost, tmp_path: Path) -> None:
    with bookly(vhost, tmp_path, "a", "b", "c") as (operator, served):
        operator.wait_depths(EMPTY)

        stats = served.sh(STATS)
        assert stats.status == 200
        assert stats.json["byStatus"] == {
            "PENDING": 3,
            "RETRYING": 0,
            "WAITING": 0,
            "IN_DOUBT": 0,
            "FAILED": 0,
            "RESOLVED": 0,
        }
        assert stats.json["byTopic"] == {"availability.checked": {"PENDING": 3}}
        assert stats.json["byService"] == {"availability-service": {"PENDING": 3}}
        assert stats.json["byEventType"] == {"event": {"PENDING": 3}}

        listed = served.sh(LIST)
        assert (listed.status, listed.json["items"]) == (200, [])
        entries = by_event(served, "?status=pending&topic=availability.*&service=availability-service&eventType=event")
        assert set(entries) == {"a", "b", "c"}
        assert entries["a"]["error"] == "TimeoutError: the hotel is away for a"
        assert operator.depths(*QUEUES) == EMPTY

        retried = served.sh(RETRY.replace("{dlqId}", entries["a"]["id"]))
        assert retried.status == 202, retried.text
        assert (retried.json["id"], retried.json["status"]) == (entries["a"]["id"], "RETRYING")
        assert retried.headers["location"] == f"/api/v1/redrives/{retried.json['operation']}"
        operator.wait_depths({"availability": 1, "availability.dlq": 0})
        (copy,) = operator.taken("availability")
        assert (copy.properties.message_id, copy.body) == ("a", b'{"id": "a"}')
        assert copy.properties.header("x-redriven-id") == entries["a"]["id"]
        assert copy.properties.header("x-redriven-count") == 1
        assert copy.properties.header("x-redriven-by") == "admin"
        again = served.sh(RETRY.replace("{dlqId}", entries["a"]["id"]))
        assert (again.status, again.json["type"]) == (409, "urn:redrive:problem:on-its-way")

        resolved = served.sh(RESOLVE.replace("{dlqId}", entries["b"]["id"]).replace("\\\n", ""))
        assert resolved.status == 200, resolved.text
        shown = {name: resolved.json[name] for name in ("status", "resolvedBy", "resolution")}
        assert shown == {"status": "RESOLVED", "resolvedBy": "admin", "resolution": "Data corrected manually"}

        removed = served.ask(f"/dlq/{entries['c']['id']}", "-X", "DELETE")
        assert (removed.status, removed.text) == (204, "")
        assert served.ask(f"/dlq/{entries['c']['id']}").status == 404

        assert {name: one["status"] for name, one in by_event(served).items()} == {"a": "RETRYING", "b": "RESOLVED"}
        assert operator.depths(*QUEUES) == EMPTY
        assert served.stop() == 0


@pytest.mark.live(versions=("3.10", "4.3"))
def test_events_whose_attempts_are_spent_are_listed_as_failed_and_go_back(vhost: Vhost, tmp_path: Path) -> None:
    with bookly(vhost, tmp_path) as (operator, served):
        operator.fine(
            "dlq", "auto-retry", "on", "--queue", "availability", "--attempts", "1", "--first", "1ms", "--max", "1ms"
        )
        operator.publish("bookly.events", "availability.checked", "a")
        let_fail_until(operator, FILE, "availability", lambda: by_event(served).get("a", {}).get("status") == "PENDING")
        operator.fine("dlq", "auto-retry", "run", "--once")
        let_fail_until(operator, FILE, "availability", lambda: by_event(served)["a"]["status"] == "FAILED")

        (failed,) = served.sh(LIST).json["items"]
        assert (failed["eventId"], failed["status"], failed["retryCount"]) == ("a", "FAILED", 1)
        assert operator.depths(*QUEUES) == EMPTY
        assert served.sh(RETRY.replace("{dlqId}", failed["id"])).status == 202
        operator.wait_depths({"availability": 1, "availability.dlq": 0})
        (copy,) = operator.taken("availability")
        assert copy.properties.header("x-redriven-count") == 2
        assert served.sh(LIST).json["items"] == []


@pytest.mark.live(versions=("4.3",))
def test_the_documents_own_port_works_where_it_is_free(vhost: Vhost, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 3000))
        except OSError:
            pytest.skip("port 3000 is taken on this machine")
    with bookly(vhost, tmp_path, port=3000) as (_, served):
        assert served.address == "http://127.0.0.1:3000"
        assert served.sh(STATS).json["total"] == 0
        assert served.sh(LIST).json == {"items": [], "nextCursor": None}
