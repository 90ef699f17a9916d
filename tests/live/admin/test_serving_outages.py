"""A server whose broker stops, whose database goes, that is told to stop in the middle: what it answers, and where
every message is afterwards."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import OwnNodes, Postgres, Vhost
from rig.dlq_operator import Operator
from rig.serve_process import Served, serving

from tests.live.admin.bookly_runbook import EMPTY, FILE, QUEUES, by_event

READING = ("/dlq/stats", "/dlq?status=PENDING", "/api/v1/messages", "/api/v1/queues", "/api/v1/audit")


def with_dead_letters(vhost: Vhost, folder: Path, *message_ids: str) -> Operator:
    operator = Operator(vhost, folder)
    operator.fine("apply", FILE, "--yes")
    operator.publish("bookly.events", "availability.checked", *message_ids)
    operator.let_fail(FILE, "availability", dlq="availability.dlq", parked=len(message_ids))
    return operator


def wait_collected(served: Served, count: int) -> None:
    served.wait("/dlq/stats", lambda stats: bool(stats["byStatus"]["PENDING"] == count))


@pytest.mark.live(versions=("4.3",), matrix=("3.10",))
def test_a_stopped_broker_leaves_reading_and_lets_redrives_wait(own_node: OwnNodes, tmp_path: Path) -> None:
    node = own_node()
    operator = with_dead_letters(Vhost(name="/", broker=node), tmp_path, "a", "b")
    with serving(tmp_path, operator.environment, FILE) as served:
        wait_collected(served, 2)
        entry = by_event(served)["a"]
        node.stop()

        for path in READING:
            assert served.ask(path).status == 200, path
        peeked = served.ask("/admin/dlq/queues/availability.dlq/messages?limit=20")
        assert (peeked.status, [one["where"] for one in peeked.json["messages"]]) == (200, ["stored"] * 2)
        assert "could not be peeked at" in peeked.json["note"]
        served.wait("/admin/dlq/queues", lambda told: not any(one["collecting"] for one in told["queues"]))
        retried = served.post(f"/dlq/{entry['id']}/retry")
        assert (retried.status, retried.json["status"]) == (202, "PENDING"), retried.text
        assert "waits for the broker" in retried.json["note"]
        assert served.post(f"/dlq/{entry['id']}/retry").status == 409
        assert served.ask("/readyz").status == 503
        assert served.ask("/healthz").status == 200
        operation = served.ask(retried.headers["location"]).json
        assert (operation["state"], operation["sent"], operation["left"]) == ("waiting", 0, 1)

        node.start()
        served.wait(retried.headers["location"], lambda told: bool(told["state"] == "done"))
        operator.wait_depths({"availability": 1, "availability.dlq": 0})
        (copy,) = operator.taken("availability")
        assert (copy.properties.message_id, copy.properties.header("x-redriven-id")) == ("a", entry["id"])
        served.wait("/readyz", lambda told: bool(told["status"] == "ready"))
        # What dies after the broker is back is collected again.
        operator.publish("bookly.events.dlx", "availability.dlq", "c")
        assert {name: one["status"] for name, one in by_event(served).items() if name != "c"} == {
            "a": "RETRYING",
            "b": "PENDING",
        }
        served.wait("/dlq", lambda told: "c" in {one["eventId"] for one in told["items"]})
        assert operator.depths(*QUEUES) == EMPTY
        node.stop()
        served.ask("/dlq/stats")
        assert served.stop() == 0


@pytest.mark.live(versions=("4.3",))
def test_without_its_database_it_says_so_and_does_nothing_by_halves(
    vhost: Vhost, own_postgres: Callable[[], Postgres], tmp_path: Path
) -> None:
    postgres = own_postgres()
    operator = with_dead_letters(vhost, tmp_path, "a", "b")
    environment = {**operator.environment, "REDRIVE_DATABASE": postgres.url(postgres.create_database("serve"))}
    with serving(tmp_path, environment, FILE) as served:
        wait_collected(served, 2)
        entry = by_event(served)["a"]
        postgres.stop()
        for path in ("/dlq/stats", f"/dlq/{entry['id']}", "/admin/dlq/queues"):
            answered = served.ask(path)
            assert (answered.status, answered.json["type"]) == (503, "urn:redrive:problem:store-unavailable"), path
            assert int(answered.headers["retry-after"]) > 0
            assert "not-for-logs" not in answered.text
        resolution = {"resolvedBy": "admin", "resolution": "Data corrected manually"}
        for answered in (
            served.post(f"/dlq/{entry['id']}/retry"),
            served.post(f"/dlq/{entry['id']}/resolve", resolution),
        ):
            assert answered.status == 503
        assert operator.depths(*QUEUES) == EMPTY
        assert served.ask("/readyz").status == 503

        postgres.start()
        wait_collected(served, 2)
        assert served.post(f"/dlq/{entry['id']}/retry").status == 202
        operator.wait_depths({"availability": 1, "availability.dlq": 0})
        (copy,) = operator.taken("availability")
        assert copy.properties.message_id == "a"
        assert served.stop() == 0
    assert "not-for-logs" not in served.log.read_text()


@pytest.mark.live(versions=("3.10", "4.3"))
def test_a_server_that_stops_in_the_middle_leaves_the_rest_to_the_next(vhost: Vhost, tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(400)]
    operator = Operator(vhost, tmp_path)
    operator.fine("apply", FILE, "--yes")
    operator.publish("bookly.events.dlx", "availability.dlq", *names)
    with serving(tmp_path, operator.environment, FILE) as served:
        wait_collected(served, len(names))
        token = served.token
        started = served.post("/api/v1/redrives", {"q": "", "rate_per_s": 100})
        assert started.status == 202, started.text
        where = started.headers["location"]
        served.wait(where, lambda told: bool(told["sent"] > 20))
        assert served.stop() == 0
    sent = operator.depths("availability")["availability"]
    assert 20 < sent < len(names)
    with serving(tmp_path, operator.environment, FILE) as following:
        assert following.token is None  # it is not made twice, nor shown again
        following.token = token
        told = following.wait(where, lambda told: bool(told["state"] == "done"))
        assert (told["sent"], told["in_doubt"], told["refused"]) == (len(names), 0, 0)
        operator.wait_depths({"availability": len(names), "availability.dlq": 0})
        copies = Counter(str(one.properties.message_id) for one in operator.taken("availability"))
        assert copies == Counter(names)
        assert following.stop() == 0
    log = served.log.read_text()
    assert token is not None
    assert token not in log
