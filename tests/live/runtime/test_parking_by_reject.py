"""`park: reject`, the documents' own form: where the broker itself puts a dead message, and what it then says; and what
a tiered retry says while it waits."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from rig.brokers import Vhost

from redrive import App
from redrive.client import Client
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain, wait_ready
from tests.live.runtime.flows import FLOWS, LITERAL, Flow, Recorder, compiled, decisions, parking_of, send
from tests.unit.client.scenario import Notes, run_scenario, wait_until

OF_A_PUBLISHED_PARKING = (
    "x-final-error",
    "x-final-status-code",
    "x-final-retry-count",
    "x-redrive-reason",
    "x-redrive-stack",
    "x-redrive-parked-at",
)


def play(vhost: Vhost, flow: Flow, kinds: list[str], **ended: int) -> Recorder:
    """Until the consumer has decided so often in each way."""
    recorder, notes = Recorder(), Notes()

    async def scenario() -> None:
        app = App(compiled(flow))
        app.consumer(flow.queue)(recorder.handle)
        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with running(app, url=vhost.amqp_url, observer=notes):
            await asyncio.to_thread(send, vhost.amqp_url, flow, kinds)
            await wait_until(lambda: decisions(notes) == ended, timeout_s=25)

    run_scenario(scenario(), timeout_s=60)
    return recorder


def deaths_of(one: Held) -> list[dict[str, Any]]:
    named = ("queue", "reason", "exchange", "routing-keys", "count")
    return [{name: death[name] for name in named} for death in one.properties.headers["x-death"]]


@pytest.mark.live
@pytest.mark.parametrize("name", list(LITERAL))
def test_a_rejected_message_is_in_the_dlq_with_the_brokers_words_and_none_of_an_end(vhost: Vhost, name: str) -> None:
    flow = LITERAL[name]
    recorder = play(vhost, flow, ["fail", "park", "broken", "fine"], ack=1, park=3, retry=flow.attempts - 1)
    assert recorder.attempts("fail") == list(range(1, flow.attempts + 1))
    wait_ready(vhost.amqp_url, parking_of(flow), 3)
    held = {one.properties.message_id: one for one in drain(vhost.amqp_url, parking_of(flow))}
    assert set(held) == {"fail", "park", "broken"}
    # Its last run was a retry: it came back through the main exchange (tiered), or from its own queue's end (requeue).
    last = ("freeflow.events", "user.retry") if name == "tiered" else ("", "bookings")
    for kind, one in held.items():
        headers = one.properties.headers
        exchange, key = last if kind == "fail" else (flow.exchange, flow.key)
        rejected = {"queue": flow.queue, "reason": "rejected", "exchange": exchange, "routing-keys": [key], "count": 1}
        assert deaths_of(one)[0] == rejected
        dlx = "freeflow.events.dlx" if name == "tiered" else "bookly.events.dlx"
        assert (one.exchange, one.routing_key) == (dlx, key if name == "tiered" else "bookings.dlq")
        assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == first_death(flow, name, kind)
        assert [written for written in OF_A_PUBLISHED_PARKING if written in headers] == []
        assert one.properties.correlation_id == "flow"
        assert one.body == (b"{" if kind == "broken" else json.dumps({"kind": kind}).encode())
    for kind in ("park", "broken"):
        assert "x-retry-count" not in held[kind].properties.headers, "it has never been retried"
    check_last_retry(held["fail"], flow)
    for queue in (one.name for one in compiled(flow).topology.queues):
        if queue != "freeflow.audit":
            assert drain(vhost.amqp_url, queue) == [], f"something is left in {queue}"


def first_death(flow: Flow, name: str, kind: str) -> tuple[str, str]:
    """A tiered retry has died of age in its tier before."""
    if name == "tiered" and kind == "fail":
        return "freeflow.user.retry.400ms", "expired"
    return flow.queue, "rejected"


def check_last_retry(one: Held, flow: Flow) -> None:
    """All that is known is what the last retry's copy said: of the runs before the last."""
    headers = one.properties.headers
    assert headers["x-retry-count"] == flow.attempts - 1
    assert headers["x-original-queue"] == flow.queue
    assert headers["x-original-exchange"] == flow.exchange
    assert headers["x-original-routing-key"] == flow.key
    assert [run["number"] for run in headers["x-redrive-history"]] == list(range(1, flow.attempts))


@pytest.mark.live
def test_a_tiered_retry_carries_the_documents_three_headers_while_it_waits(vhost: Vhost) -> None:
    flow = replace(FLOWS["tiered"], text=FLOWS["tiered"].text.replace("300ms", "50s"))
    recorder = play(vhost, flow, ["fail"], retry=2)
    assert recorder.attempts("fail") == [1, 2]
    (waiting,) = drain(vhost.amqp_url, "freeflow.user.retry.50s")
    headers = waiting.properties.headers
    assert headers["x-retry-count"] == 2
    assert headers["x-original-routing-key"] == "user.created"
    assert headers["x-original-exchange"] == "freeflow.events"
    assert headers["x-original-queue"] == "freeflow.user"
    assert "x-death" not in headers, "3.10 would count on in it"
    assert (waiting.exchange, waiting.routing_key) == ("freeflow.events.retry", "user.50s")
    assert waiting.properties.expiration is None, "the tier's own TTL is the delay"
    assert (waiting.body, waiting.properties.message_id) == (b'{"kind": "fail"}', "fail")
    # The first tier has let it go; the audit's queue has the message, and its one return as user.retry.
    assert drain(vhost.amqp_url, "freeflow.user.retry.200ms") == []
    assert [one.routing_key for one in drain(vhost.amqp_url, "freeflow.audit")] == ["user.created", "user.retry"]
