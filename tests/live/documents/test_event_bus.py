"""event-bus: a fanout exchange per prefix; for each service a queue, a retry loop of 5 s and a DLQ; in real time."""

import pytest
from rig.brokers import Vhost

from redrive import Message
from redrive.core import Answered
from tests.live.client.accounts import drain
from tests.live.documents.document_apps import (
    RecordingService,
    assert_other_queues_empty,
    bindings_of,
    compiled,
    document,
    exchanges_of,
    publish,
    queues_of,
    redrive,
    run_services,
)

PREFIXES = {"wms-cincout": "wms", "xyz-service": "xyz", "noprefix": "default"}
MAIN, KEY = "wms.main-exchange", "stock.changed"
QUEUE, RETRY_QUEUE, DLQ = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
RETRY_EXCHANGE, NEIGHBOUR = "wms.retry-exchange.wms-cincout", "wms.queue.wms-stock"
EARLY = "503 but once early"
SLACK_S = 4.5
"""What a busy machine may take longer than it should, over ten retries."""


def rejections(headers: object) -> int:
    """What RabbitMQ itself counted in x-death: how often the service's queue rejected it."""
    assert isinstance(headers, dict)
    return sum(one["count"] for one in headers["x-death"] if (one["queue"], one["reason"]) == (QUEUE, "rejected"))


def make_service() -> RecordingService:
    """Each message is named after its answer."""

    def answer(name: str, _message: Message) -> Answered:
        if name == "exception":
            raise RuntimeError("no such warehouse")
        if name == "503 but once early" and len(service.runs[name]) == 3:
            return Answered(status=425, detail="too early")
        return Answered(status=int(name[:3]), detail=f"said {name}")

    service = RecordingService(answer)
    return service


@pytest.mark.live
def test_the_topology_is_the_documents(vhost: Vhost) -> None:
    assert redrive(vhost, "apply", str(document("event-bus")), "--yes").returncode == 0
    queues, exchanges, bindings = queues_of(vhost), exchanges_of(vhost), bindings_of(vhost)
    for service, prefix in PREFIXES.items():
        queue, retry_exchange = f"{prefix}.queue.{service}", f"{prefix}.retry-exchange.{service}"
        retry_queue = f"{prefix}.retry-queue.{service}"
        assert queues[queue] == (
            "classic",
            {"x-dead-letter-exchange": retry_exchange, "x-dead-letter-routing-key": "retry"},
        )
        assert queues[retry_queue] == (
            "classic",
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 5_000},
        )
        assert queues[f"{prefix}.dlq.{service}"] == ("classic", {})
        assert exchanges[f"{prefix}.main-exchange"] == "fanout"
        assert exchanges[retry_exchange] == "direct"
        assert {(f"{prefix}.main-exchange", queue, ""), (retry_exchange, retry_queue, "retry")} <= bindings
    assert (len(queues), len(exchanges), len(bindings)) == (9, 6, 6)


@pytest.mark.live
def test_ten_retries_of_5_seconds_then_the_dlq_and_only_the_failed_service_sees_them(vhost: Vhost) -> None:
    """All answers at once, so that it takes a minute and not ten."""
    plan = compiled("services: [wms-cincout, wms-stock]")
    failing = ("503", "500", "429", "409", "exception", EARLY)
    service, neighbour = make_service(), RecordingService(lambda *_: None)
    done = {"200", "404"}

    def publishing() -> None:
        publish(vhost.amqp_url, MAIN, KEY, *failing, *done)

    def is_over() -> bool:
        return all(len(service.runs.get(one, ())) == 11 + (one == EARLY) for one in failing)

    services = {QUEUE: service, NEIGHBOUR: neighbour}
    notes = run_services(vhost.amqp_url, plan, services, publishing, is_over, timeout_s=90, declare=True)
    assert service.attempts(EARLY) == [1, 2, 3, *range(3, 12)], "a 425 is no attempt"
    assert 50.5 <= service.elapsed_s(EARLY)[-1] <= 51.5 + SLACK_S
    for name in failing[:-1]:
        assert service.attempts(name) == list(range(1, 12))
        assert {run.routing_key for run in service.runs[name]} == {KEY}
        times = service.elapsed_s(name)
        assert 50 <= times[-1] <= 50 + SLACK_S, times
        for number, at_s in enumerate(times):
            assert 5 * number <= at_s <= 5 * number + SLACK_S, times
    assert service.attempts("200") == [1]
    assert service.attempts("404") == [1]
    assert {name: neighbour.attempts(name) for name in (*failing, *done)} == {name: [1] for name in (*failing, *done)}

    dead = {one.properties.message_id: one for one in drain(vhost.amqp_url, DLQ)}
    assert set(dead) == {*failing, "404"}
    for name in failing:
        headers = dead[name].properties.headers
        assert headers["x-original-queue"] == QUEUE
        assert headers["x-final-retry-count"] == 10
        # A 425 goes back as a copy, and x-death begins anew with it: the copy says how many were before.
        before = headers.get("x-redrive-attempts-before", 0)
        assert before == (2 if name == EARLY else 0)
        assert rejections(headers) + before == headers["x-final-retry-count"], headers["x-death"]
        if name == "exception":
            assert headers["x-final-error"] == "RuntimeError: no such warehouse"
            assert "x-final-status-code" not in headers
        else:
            assert headers["x-final-status-code"] == int(name[:3])
    assert dead["404"].properties.headers["x-final-status-code"] == 404
    assert dead["404"].properties.headers["x-final-retry-count"] == 0
    told = [fields for name, fields in notes.heard if name == "runtime.decided" and fields.get("tag")]
    assert {fields["tag"] for fields in told} == {"RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"}
    assert len(told) == len(failing)
    assert notes.count("runtime.paused") == 0
    assert_other_queues_empty(vhost)


@pytest.mark.live
def test_a_plain_move_out_of_the_dlq_goes_on_counting(vhost: Vhost) -> None:
    """The document's manual retry: x-death is preserved, so the one run it still has is the last."""
    plan = compiled("services: [wms-cincout]")
    service = make_service()
    death = {"count": 10, "reason": "rejected", "queue": QUEUE, "exchange": MAIN, "routing-keys": [KEY]}
    headers = {"x-death": [death], "x-original-queue": QUEUE, "x-final-retry-count": 10, "x-final-status-code": 503}

    def publishing() -> None:
        publish(vhost.amqp_url, "", QUEUE, "503", headers=headers)

    run_services(
        vhost.amqp_url, plan, {QUEUE: service}, publishing, lambda: "503" in service.runs, timeout_s=20, declare=True
    )
    (dead,) = drain(vhost.amqp_url, DLQ)
    assert len(service.runs["503"]) == 1
    assert dead.properties.headers["x-final-retry-count"] == 10
    assert_other_queues_empty(vhost)
