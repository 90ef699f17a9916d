"""FreeFlow: seven domains with three tiers each behind one direct retry exchange, and one DLQ for all."""

import itertools
from typing import Any

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

DOMAINS = ("user", "auth", "alarm", "document", "workflow", "notification", "audit")
TIERS_MS = {"30s": 30_000, "5m": 300_000, "30m": 1_800_000}
MAIN, RETRY, DLX, DLQ = "freeflow.events", "freeflow.events.retry", "freeflow.events.dlx", "freeflow.events.dlq"


def fails(name: str, message: Message) -> None:
    if name == "unrecoverable":
        raise Park("no such user")
    if name != "passing" or message.attempt < 3:
        raise ConnectionError(f"the database is away for {name}")


def wait_arguments(domain: str, ttl_ms: int) -> dict[str, Any]:
    return {"x-message-ttl": ttl_ms, "x-dead-letter-exchange": MAIN, "x-dead-letter-routing-key": f"{domain}.retry"}


@pytest.mark.live
def test_the_topology_and_the_flow_are_the_documents(vhost: Vhost) -> None:
    assert redrive(vhost, "apply", str(document("freeflow")), "--yes").returncode == 0
    queues = queues_of(vhost)
    waits = {f"freeflow.{domain}.retry.{tier}": (domain, ttl) for domain in DOMAINS for tier, ttl in TIERS_MS.items()}
    for name, (domain, ttl_ms) in waits.items():
        assert queues[name] == ("classic", wait_arguments(domain, ttl_ms))
    mains = {f"freeflow.{domain}" for domain in DOMAINS}
    assert set(queues) == {*waits, *mains, DLQ}
    assert {queues[one][1]["x-dead-letter-exchange"] for one in mains} == {DLX}
    assert exchanges_of(vhost) == {MAIN: "topic", RETRY: "direct", DLX: "fanout"}
    assert bindings_of(vhost) == {
        *((MAIN, f"freeflow.{domain}", f"{domain}.*") for domain in DOMAINS),
        *((RETRY, f"freeflow.{d}.retry.{tier}", f"{d}.{tier}") for d, tier in itertools.product(DOMAINS, TIERS_MS)),
        (DLX, DLQ, ""),
    }

    shorten_waits(vhost, r"^freeflow\..*\.retry\.", 400)
    service, others = RecordingService(fails), RecordingService(lambda *_: None)
    services = {f"freeflow.{domain}": others for domain in DOMAINS} | {"freeflow.user": service}

    def publishing() -> None:
        publish(vhost.amqp_url, MAIN, "user.created", "poison", "passing", "unrecoverable")
        # A consumer of somebody else's does as the document says.
        headers = {"x-retry-count": 1, "x-original-routing-key": "document.uploaded", "x-original-exchange": MAIN}
        publish(vhost.amqp_url, RETRY, "document.5m", "foreign", headers=headers)

    def is_over() -> bool:
        runs = service.runs
        return len(runs.get("poison", ())) == 4 and len(runs.get("passing", ())) == 3 and "foreign" in others.runs

    run_services(vhost.amqp_url, str(document("freeflow")), services, publishing, is_over, timeout_s=30)
    assert service.attempts("poison") == [1, 2, 3, 4]
    assert service.attempts("passing") == [1, 2, 3]
    assert service.attempts("unrecoverable") == [1]
    for run in itertools.chain(*service.runs.values()):
        assert (run.exchange, run.routing_key) == (MAIN, "user.created")
    for retries, run in enumerate(service.runs["poison"][1:], start=1):
        assert run.headers["x-retry-count"] == retries
        assert run.headers["x-original-routing-key"] == "user.created"
        assert run.headers["x-original-exchange"] == MAIN
        first, *_ = run.headers["x-death"]
        assert (first["queue"], first["reason"]) == (f"freeflow.user.retry.{list(TIERS_MS)[retries - 1]}", "expired")
    # What a foreign consumer sent to the retry exchange came back to its own domain, once, under its own key.
    assert {name: [run.routing_key for run in runs] for name, runs in others.runs.items()} == {
        "foreign": ["document.uploaded"]
    }
    assert others.attempts("foreign") == [2]

    dead = {one.properties.message_id: one.properties.headers for one in drain(vhost.amqp_url, DLQ)}
    assert set(dead) == {"poison", "unrecoverable"}
    assert (dead["poison"]["x-retry-count"], dead["unrecoverable"]["x-retry-count"]) == (3, 0)
    for headers in dead.values():
        assert headers["x-original-queue"] == "freeflow.user"
        assert headers["x-original-routing-key"] == "user.created"
        assert headers["x-original-exchange"] == MAIN
    assert_other_queues_empty(vhost)


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_the_tiers_are_30_seconds_5_minutes_and_30_minutes(profile: str) -> None:
    """In virtual time: nobody waits 35 minutes and 30 seconds."""
    service, dead, took_s = run_in_virtual_time(
        "freeflow", profile, "freeflow.user", MAIN, "user.created", "poison", fails=fails, over=DLQ
    )
    assert [round(one) for one in service.elapsed_s("poison")] == [0, 30, 330, 2130]
    assert round(took_s) == 2130
    assert dead["poison"].properties.headers["x-final-retry-count"] == 3
