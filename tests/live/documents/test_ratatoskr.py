"""Ratatoskr: quorum queues throughout, three retries of 30 s through the default exchange, a DLQ behind a fanout
exchange; and the same on queues that Ratatoskr itself declared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pika
import pytest
from rig.brokers import Vhost

from redrive import Message, Park
from tests.live.client.accounts import drain
from tests.live.documents.document_apps import (
    RecordingService,
    assert_other_queues_empty,
    bindings_of,
    document,
    exchanges_of,
    publish,
    queues_of,
    redrive,
    run_in_virtual_time,
    run_services,
    shorten_waits,
)

EXCHANGE, KEY = "ratatoskr.events", "my-service.created"
MAIN, RETRY, DLQ = "my-service.events", "my-service.events.retry", "my-service.events.dlq"
DOCUMENTED: dict[str, dict[str, Any]] = {
    MAIN: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": RETRY},
    RETRY: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": MAIN, "x-message-ttl": 30_000},
    DLQ: {},
}
ADDED = {"x-delivery-limit", "x-dead-letter-strategy", "x-overflow"}


def fails(name: str, message: Message) -> None:
    if name == "invalid":
        raise Park("validation failed")
    if name == "poison" or message.attempt < 3:
        raise ConnectionError(f"no answer for {name}")


def check_flow(vhost: Vhost, file: str) -> list[str]:
    """Three retries, then the DLQ; what is warned of."""
    shorten_waits(vhost, r"^my-service\.events\.retry$", 500)
    service = RecordingService(fails)
    notes = run_services(
        vhost.amqp_url,
        file,
        {MAIN: service},
        lambda: publish(vhost.amqp_url, EXCHANGE, KEY, "poison", "passing", "invalid"),
        lambda: len(service.runs.get("poison", ())) == 4 and len(service.runs.get("passing", ())) == 3,
        timeout_s=30,
    )
    assert service.attempts("poison") == [1, 2, 3, 4]
    assert service.attempts("passing") == [1, 2, 3]
    assert service.attempts("invalid") == [1]
    for runs in service.runs.values():
        assert {(run.exchange, run.routing_key) for run in runs} == {(EXCHANGE, KEY)}
    dead = {one.properties.message_id: one.properties.headers for one in drain(vhost.amqp_url, DLQ)}
    assert {name: headers["x-retry-count"] for name, headers in dead.items()} == {"poison": 3, "invalid": 0}
    deaths = [one for one in dead["poison"]["x-death"] if (one["queue"], one["reason"]) == (MAIN, "rejected")]
    assert [one["count"] for one in deaths] == [3]
    assert_other_queues_empty(vhost)
    return [str(fields["reason"]) for name, fields in notes.heard if name == "runtime.not_guaranteed"]


def documented(queues: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Without what is added to the document's arguments."""
    return {
        name: (kind, {key: value for key, value in arguments.items() if key not in ADDED})
        for name, (kind, arguments) in queues.items()
    }


@pytest.mark.live
def test_the_topology_and_the_flow_are_the_documents(vhost: Vhost) -> None:
    file = str(document("ratatoskr"))
    assert redrive(vhost, "apply", file, "--yes").returncode == 0
    assert documented(queues_of(vhost)) == {name: ("quorum", said) for name, said in DOCUMENTED.items()}
    assert exchanges_of(vhost) == {EXCHANGE: "topic", DLQ: "fanout"}
    assert bindings_of(vhost) == {(EXCHANGE, MAIN, "my-service.#"), (DLQ, DLQ, "")}
    assert check_flow(vhost, file) == []


@pytest.mark.live
def test_queues_that_it_declared_itself_are_taken_and_what_they_do_not_keep_is_said(
    vhost: Vhost, tmp_path: Path
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    for name, arguments in DOCUMENTED.items():
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **arguments})
    channel.exchange_declare(DLQ, "fanout", durable=True)
    channel.queue_bind(DLQ, DLQ)
    connection.close()
    before = queues_of(vhost)

    refused = redrive(vhost, "apply", str(document("ratatoskr")), "--yes")
    assert refused.returncode == 2
    assert "Nothing was changed." in refused.stdout
    assert "say retry: {at_least_once: false, safe_limits: false} for queue my-service.events." in refused.stdout

    file = tmp_path / "redrive.yaml"
    options = "attempts: 4, at_least_once: false, safe_limits: false}"
    file.write_text(document("ratatoskr").read_text(encoding="utf-8").replace("attempts: 4}", options))
    taken = redrive(vhost, "apply", str(file), "--yes")
    assert (taken.returncode, taken.stderr) == (0, ""), taken.stdout
    assert queues_of(vhost) == before
    (warned,) = check_flow(vhost, str(file))
    assert "it dead-letters at most once" in warned
    assert ("it has a delivery limit of 20" in warned) == (vhost.label != "3.10")


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_the_delay_is_30_seconds(profile: str) -> None:
    service, dead, took_s = run_in_virtual_time(
        "ratatoskr", profile, MAIN, EXCHANGE, KEY, "poison", fails=fails, over=DLQ
    )
    assert [round(one) for one in service.elapsed_s("poison")] == [0, 30, 60, 90]
    assert round(took_s) == 90
    assert dead["poison"].properties.headers["x-retry-count"] == 3
