"""The file pipeline's endpoints by curl on real brokers: queues, peek, re-drive with a limit; each message's place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rig import Vhost
from rig.dlq_operator import Operator
from rig.serve_process import ROOT, Served, serving

QUEUES = ("q.thumbnail", "q.thumbnail.retry", "q.thumbnail.dlq")
KNOWN = {f"q.{one}.dlq" for one in ("upload.commands", "validator", "thumbnail", "extractor", "projection")} | {
    "q.notification.dlq",
    "q.audit.dlq",
}
PEEK = "/admin/dlq/queues/q.thumbnail.dlq/messages?limit=20"
REDRIVE = "/admin/dlq/queues/q.thumbnail.dlq/re-drive"


def depths(main: int, retry: int, dlq: int) -> dict[str, int]:
    return dict(zip(QUEUES, (main, retry, dlq), strict=True))


@contextmanager
def pipeline(vhost: Vhost, folder: Path, *arguments: str, messages: str = "abc") -> Iterator[tuple[Operator, Served]]:
    """The document's own file, with a delay that a test can wait for; dead letters; and a server."""
    file = folder / "redrive.yaml"
    file.write_text((ROOT / "examples" / "file-pipeline" / "redrive.yaml").read_text().replace("15s", "300ms"))
    operator = Operator(vhost, folder)
    operator.fine("apply", str(file), "--yes")
    operator.publish("", "q.thumbnail", *messages)
    operator.let_fail(str(file), "q.thumbnail", dlq="q.thumbnail.dlq", parked=len(messages))
    with serving(folder, operator.environment, str(file), *arguments) as served:
        yield operator, served


def check_copies(operator: Operator, entries: list[dict[str, Any]]) -> None:
    """These dead letters, and nothing else, lie in q.thumbnail, with the audit headers; they are taken."""
    copies = {str(one.properties.message_id): one for one in operator.taken("q.thumbnail")}
    assert set(copies) == {one["messageId"] for one in entries}
    for one in entries:
        copy = copies[one["messageId"]]
        assert copy.body.decode() == one["payload"]
        assert copy.properties.header("x-redriven-id") == one["id"]
        assert copy.properties.header("x-redriven-count") == 1
        assert copy.properties.header("x-redriven-by") == "admin"
        assert str(copy.properties.header("x-redriven-at")).endswith("Z")


@pytest.mark.live(versions=("3.10", "4.3"))
def test_queues_peek_and_redrive_of_what_is_collected(vhost: Vhost, tmp_path: Path) -> None:
    with pipeline(vhost, tmp_path) as (operator, served):
        queues = served.wait(
            "/admin/dlq/queues",
            lambda told: {one["queue"]: one for one in told["queues"]}["q.thumbnail.dlq"]["stored"]["PENDING"] == 3,
        )["queues"]
        assert {one["queue"] for one in queues} == KNOWN
        assert {one["sourceQueue"] for one in queues} == {name.removesuffix(".dlq") for name in KNOWN}
        operator.wait_depths(depths(0, 0, 0))

        seen = served.ask(PEEK)
        assert seen.status == 200, seen.text
        entries = seen.json["messages"]
        assert [(one["where"], one["status"]) for one in entries] == [("stored", "PENDING")] * 3
        assert {one["payload"] for one in entries} == {f'{{"id": "{name}"}}' for name in "abc"}
        assert operator.depths(*QUEUES) == depths(0, 0, 0)

        redriven = served.post(REDRIVE, {"limit": 2})
        assert redriven.status == 202, redriven.text
        told = redriven.json
        assert (told["total"], told["redriven"], told["state"]) == (2, 2, "done")
        assert told["target"] == {"exchange": "retry.{queue}", "routing_key": "retry"}
        assert served.ask(redriven.headers["location"]).json["sent"] == 2
        # They wait out their delay once more, then they are back in the queue they failed in.
        operator.wait_depths(depths(2, 0, 0))
        check_copies(operator, entries[:2])
        left = served.ask(PEEK).json["messages"]
        assert [one["id"] for one in left] == [entries[2]["id"]]

        assert served.post(REDRIVE, {"limit": 10}).json["redriven"] == 1
        operator.wait_depths(depths(1, 0, 0))
        check_copies(operator, entries[2:])
        nothing = served.post(REDRIVE, {"limit": 10})
        assert (nothing.status, nothing.json["operation"], nothing.json["total"]) == (202, None, 0)
        assert operator.depths(*QUEUES) == depths(0, 0, 0)
        assert served.stop() == 0


@pytest.mark.live(versions=("3.10", "4.3"))
def test_without_a_management_api_what_is_collected_is_shown_and_sent_all_the_same(
    vhost: Vhost, tmp_path: Path
) -> None:
    with pipeline(vhost, tmp_path, "--management-url", "http://127.0.0.1:1") as (operator, served):
        seen = served.wait(PEEK, lambda told: len(told["messages"]) == 3)
        assert [one["where"] for one in seen["messages"]] == ["stored"] * 3
        assert (seen["left"], "http://127.0.0.1:1" in seen["note"]) == (0, True)
        # Nothing is stored of this one: but it is collected, so that this is all there is.
        empty = served.ask("/admin/dlq/queues/q.audit.dlq/messages")
        assert (empty.status, empty.json["messages"], empty.json["left"]) == (200, [], 0)
        assert served.post(REDRIVE, {"limit": 10}).json["redriven"] == 3
        operator.wait_depths(depths(3, 0, 0))
        check_copies(operator, seen["messages"])
        warned = [one for one in served.logged() if one["event"] == "serve.management_unavailable"]
        assert len(warned) == 1
        assert served.stop() == 0


@pytest.mark.live(versions=("3.10", "4.3"))
def test_a_queue_that_nobody_collects_is_looked_at_and_left_as_it_is(vhost: Vhost, tmp_path: Path) -> None:
    with pipeline(vhost, tmp_path, "--no-collect") as (operator, served):
        for _ in range(25):
            seen = served.ask(PEEK)
            assert seen.status == 200, seen.text
            assert [one["where"] for one in seen.json["messages"]] == ["queue"] * 3
        assert {one["messageId"] for one in seen.json["messages"]} == set("abc")
        assert seen.json["left"] == 0
        assert operator.depths(*QUEUES) == depths(0, 0, 3)

        refused = served.post(REDRIVE, {"limit": 10})
        assert (refused.status, refused.json["type"]) == (409, "urn:redrive:problem:not-collected")
        assert "3 messages lie on the queue" in refused.json["detail"]
        assert operator.depths(*QUEUES) == depths(0, 0, 3)
        assert {one.properties.message_id for one in operator.taken("q.thumbnail.dlq")} == set("abc")


@pytest.mark.live(versions=("3.10", "4.3"))
def test_what_has_just_been_parked_is_collected_first_and_redriven(vhost: Vhost, tmp_path: Path) -> None:
    with pipeline(vhost, tmp_path, messages="") as (operator, served):
        served.wait("/readyz", lambda told: bool(told["worker"] == "collecting"))
        operator.publish("dlq.q.thumbnail", "parking", *"abcde")
        redriven = served.post(REDRIVE, {"limit": 10})
        assert (redriven.status, redriven.json["redriven"]) == (202, 5), redriven.text
        operator.wait_depths(depths(5, 0, 0))
        assert {one.properties.message_id for one in operator.taken("q.thumbnail")} == set("abcde")


@pytest.mark.live(versions=("4.0",))
def test_a_look_that_would_destroy_is_refused_unless_something_is_stored(vhost: Vhost, tmp_path: Path) -> None:
    operator = Operator(vhost, tmp_path)
    arguments = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    vhost.management.put("queues", vhost.name, "orders.dlq", body=arguments)
    operator.publish("", "orders.dlq", "a", "b")
    with serving(tmp_path, operator.environment, "--no-collect") as served:
        path = "/admin/dlq/queues/orders.dlq/messages?limit=20"
        for _ in range(25):
            refused = served.ask(path)
            assert (refused.status, refused.json["type"]) == (409, "urn:redrive:problem:peek-would-destroy")
        assert "collect it" in refused.json["detail"]
        assert operator.depths("orders.dlq") == {"orders.dlq": 2}
        operator.fine("collect", "--match", "orders.dlq", "--once")
        seen = served.ask(path)
        assert seen.status == 200
        assert [(one["where"], one["messageId"]) for one in seen.json["messages"]] == [("stored", "a"), ("stored", "b")]
        assert "not looked at" in seen.json["note"]


@pytest.mark.live(versions=("3.10", "4.3"))
def test_only_admins_and_only_known_queues(vhost: Vhost, tmp_path: Path) -> None:
    with pipeline(vhost, tmp_path, messages="") as (operator, served):
        operator_token = served.post("/api/v1/tokens", {"name": "olga", "role": "operator"}).json["token"]
        for path in ("/admin/dlq/queues", PEEK):
            assert served.ask(path, token=operator_token).status == 403
        assert served.post(REDRIVE, {"limit": 10}, token=operator_token).status == 403
        operator.publish("", "q.thumbnail", "live")
        for queue in ("q.thumbnail", "q.thumbnail.retry", "nothing", "..%2F..%2Fetc", "%2A.dlq", "%00"):
            for answered in (
                served.ask(f"/admin/dlq/queues/{queue}/messages?limit=20"),
                served.post(f"/admin/dlq/queues/{queue}/re-drive", {"limit": 10}),
            ):
                assert (answered.status, answered.json["type"]) == (404, "urn:redrive:problem:unknown-queue"), queue
        assert operator.depths(*QUEUES) == depths(1, 0, 0)
