"""The file pipeline: each queue retries by itself after 15 s, three runs in all, then its own DLQ; re-drive by its
admin endpoints. In real time."""

import json
from pathlib import Path

import pytest
from rig.brokers import Vhost
from rig.dlq_operator import Operator
from rig.serve_process import serving

from redrive import Message
from tests.live.client.accounts import ready
from tests.live.documents.document_apps import (
    RecordingService,
    assert_other_queues_empty,
    bindings_of,
    document,
    exchanges_of,
    publish,
    queues_of,
    run_services,
)

BOUND = {
    "q.upload.commands": ("domain.commands", "commands.upload.#", "commands.file.reprocess.*"),
    "q.validator": ("domain.events", "files.uploaded.*"),
    "q.thumbnail": ("domain.events", "files.validated.*"),
    "q.extractor": ("domain.events", "files.validated.*"),
    "q.projection": ("domain.events", "#"),
    "q.notification": ("domain.events", "processing.#", "files.rejected.*"),
    "q.audit": ("domain.events", "#"),
}
KEY = "files.validated.png"
SLACK_S = 4.5


def check_topology(vhost: Vhost) -> None:
    queues, exchanges, bindings = queues_of(vhost), exchanges_of(vhost), bindings_of(vhost)
    wanted_exchanges, wanted_bindings = {"domain.events": "topic", "domain.commands": "topic"}, set()
    for name, (source, *keys) in BOUND.items():
        wanted_exchanges |= {f"retry.{name}": "direct", f"dlq.{name}": "direct"}
        wanted_bindings |= {(source, name, key) for key in keys}
        wanted_bindings |= {(f"retry.{name}", f"{name}.retry", "retry"), (f"dlq.{name}", f"{name}.dlq", "parking")}
        to_retry = {"x-dead-letter-exchange": f"retry.{name}", "x-dead-letter-routing-key": "retry"}
        assert queues[name] == ("classic", to_retry)
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name, "x-message-ttl": 15_000}
        assert queues[f"{name}.retry"] == ("classic", back)
        assert queues[f"{name}.dlq"] == ("classic", {})
    assert len(queues) == 21
    assert exchanges == wanted_exchanges
    assert bindings == wanted_bindings


@pytest.mark.live
def test_retries_parking_and_redrive_are_the_documents(vhost: Vhost, tmp_path: Path) -> None:
    file = str(document("file-pipeline"))
    operator = Operator(vhost, tmp_path)
    operator.fine("apply", file, "--wait", "60s", "--yes")
    check_topology(vhost)
    is_mended = False

    def fails(name: str, message: Message) -> None:
        if not is_mended and (name == "poison" or message.attempt == 1):
            raise TimeoutError("no thumbnail of it")

    thumbnail, others = (
        RecordingService(fails),
        {name: RecordingService(lambda *_: None) for name in BOUND if name != "q.thumbnail"},
    )
    names = ("poison", "passing")
    notes = run_services(
        vhost.amqp_url,
        file,
        {"q.thumbnail": thumbnail, **others},
        lambda: publish(vhost.amqp_url, "domain.events", KEY, *names, correlation_id="c-1", type="FileValidated"),
        lambda: len(thumbnail.runs.get("poison", ())) == 3 and len(thumbnail.runs.get("passing", ())) == 2,
        timeout_s=60,
    )
    assert thumbnail.attempts("poison") == [1, 2, 3]
    assert thumbnail.attempts("passing") == [1, 2]
    for number, at_s in enumerate(thumbnail.elapsed_s("poison")):
        assert 15 * number <= at_s <= 15 * number + SLACK_S
    for runs in thumbnail.runs.values():
        assert {(run.exchange, run.routing_key) for run in runs} == {("domain.events", KEY)}
    # A retry of one consumer is no second event for another.
    seen = {name: {one: service.attempts(one) for one in names} for name, service in others.items()}
    once: dict[str, list[int]] = {one: [1] for one in names}
    never: dict[str, list[int]] = {one: [] for one in names}
    assert seen == {
        "q.extractor": once,
        "q.projection": once,
        "q.audit": once,
        **dict.fromkeys(("q.validator", "q.notification", "q.upload.commands"), never),
    }
    told = [fields for name, fields in notes.heard if name == "runtime.decided" and fields["queue"] == "q.thumbnail"]
    told = [one for one in told if one["decision"] in ("retry", "park")]
    assert len(told) == 4
    for one in told:
        assert (one["correlation_id"], one["routing_key"], one["message_type"]) == ("c-1", KEY, "FileValidated")
    assert sorted(int(str(one["attempt"])) for one in told) == [1, 1, 2, 3]
    assert_other_queues_empty(vhost, "q.thumbnail.dlq")
    assert ready(vhost.amqp_url, "q.thumbnail.dlq") == 1

    is_mended = True
    thumbnail.runs.clear()
    with serving(tmp_path, operator.environment, file) as served:
        queues = served.wait(
            "/admin/dlq/queues",
            lambda told: {one["queue"]: one for one in told["queues"]}["q.thumbnail.dlq"]["stored"]["PENDING"] == 1,
        )["queues"]
        assert {one["queue"] for one in queues} == {f"{name}.dlq" for name in BOUND}
        (peeked,) = served.ask("/admin/dlq/queues/q.thumbnail.dlq/messages?limit=20").json["messages"]
        assert (peeked["messageId"], json.loads(peeked["payload"])) == ("poison", {"id": "poison"})
        redriven = served.post("/admin/dlq/queues/q.thumbnail.dlq/re-drive", {"limit": 10})
        assert (redriven.status, redriven.json["redriven"]) == (202, 1), redriven.text
        # Through retry.q.thumbnail, so it waits out its 15 s before it runs again.
        assert operator.depths("q.thumbnail", "q.thumbnail.retry") == {"q.thumbnail": 0, "q.thumbnail.retry": 1}
        run_services(
            vhost.amqp_url, file, {"q.thumbnail": thumbnail}, lambda: None, lambda: bool(thumbnail.runs), timeout_s=40
        )
        assert served.stop() == 0
    (run,) = thumbnail.runs["poison"]
    assert (run.attempt, run.exchange, run.routing_key) == (1, "domain.events", KEY)
    assert run.headers["x-redriven-id"] == peeked["id"]
    assert run.headers["x-redriven-count"] == 1
    assert run.headers["x-redriven-by"] == "admin"
    assert str(run.headers["x-redriven-at"]).endswith("Z")
    assert_other_queues_empty(vhost)
