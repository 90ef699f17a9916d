"""Every shape, end to end, on every version: each message runs as often as it should and ends where it should."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from rig.brokers import Vhost

from redrive import App, Message
from redrive.client import Client
from redrive.wiring import declare_missing, running
from tests.live.client.accounts import Held, drain
from tests.live.runtime.flows import EVERYWHERE, FLOWS, Flow, Recorder, compiled, decisions, parking_of, play, send
from tests.unit.client.scenario import Notes, run_scenario, wait_until


def check_flow(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    kinds = ["fail", "once", "fine", "park", "later", "broken", "requeue"]
    results: list[tuple[Recorder, Notes]] = []

    async def scenario() -> None:
        # Four are done in the end, three are dead.
        results.append(await play(vhost.amqp_url, flow, kinds, lambda seen: (seen["ack"], seen["park"]) == (4, 3)))

    run_scenario(scenario(), timeout_s=60)
    recorder, notes = results[0]
    assert recorder.attempts("fail") == list(range(1, flow.attempts + 1))
    assert recorder.attempts("once") == [1, 2]
    assert recorder.attempts("fine") == [1]
    assert recorder.attempts("park") == [1]
    assert recorder.attempts("later") == [1, 2]
    assert recorder.attempts("requeue") == [1, 1, 1]
    assert recorder.attempts("broken") == []
    assert recorder.keys == {(flow.exchange, flow.key)}
    check_parked(vhost, flow)
    for queue in (one.name for one in compiled(flow).topology.queues):
        if not (name == "tiered" and queue == "freeflow.audit"):
            assert drain(vhost.amqp_url, queue) == [], f"something is left in {queue}"
    tags = {fields.get("tag") for event, fields in notes.heard if event == "runtime.decided"}
    assert ("RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED" in tags) == (name == "service")


def check_parked(vhost: Vhost, flow: Flow) -> None:
    held: dict[str, Held] = {one.properties.message_id: one for one in drain(vhost.amqp_url, parking_of(flow))}
    assert set(held) == {"fail", "park", "broken"}
    reasons = {"fail": "attempts", "park": "park", "broken": "undecodable"}
    for kind, one in held.items():
        headers = one.properties.headers
        retries = flow.attempts - 1 if kind == "fail" else 0
        assert (headers["x-retry-count"], headers["x-final-retry-count"]) == (retries, retries)
        assert headers["x-redrive-reason"] == reasons[kind]
        assert headers["x-original-queue"] == flow.queue
        assert headers["x-original-exchange"] == flow.exchange
        assert headers["x-original-routing-key"] == flow.key
        assert one.properties.correlation_id == "flow"
        assert one.properties.delivery_mode == 2
        assert one.body == (b"{" if kind == "broken" else json.dumps({"kind": kind}).encode())
    assert held["fail"].properties.headers["x-final-error"] == "ValueError: no fail"
    assert held["park"].properties.headers["x-final-error"] == "Park: not ours"


@pytest.mark.live
@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_shape_runs_retries_and_parks_as_declared(vhost: Vhost, name: str) -> None:
    check_flow(vhost, name)


@pytest.mark.live(versions=("4.3",))
def test_native_runs_retries_and_parks_as_declared(vhost: Vhost) -> None:
    check_flow(vhost, "native")


@pytest.mark.live
def test_another_queues_tiered_retry_is_acked_unhandled_and_counted_as_skipped(vhost: Vhost) -> None:
    flow = FLOWS["tiered"]
    audited: list[str] = []
    notes = Notes()

    async def scenario() -> None:
        recorder = Recorder()
        app = App(compiled(flow))
        app.consumer("freeflow.user")(recorder.handle)

        @app.consumer("freeflow.audit")
        async def audit(body: bytes, message: Message) -> None:
            audited.append(message.routing_key)

        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with running(app, url=vhost.amqp_url, observer=notes):
            await asyncio.to_thread(send, vhost.amqp_url, flow, ["fail", "once"])
            await wait_until(lambda: decisions(notes)["park"] == 1 and decisions(notes)["skipped"] == 4, timeout_s=25)

    run_scenario(scenario(), timeout_s=60)
    assert audited == ["user.created", "user.created"]
    assert decisions(notes) == {"ack": 3, "retry": 4, "park": 1, "skipped": 4}


@pytest.mark.live
@pytest.mark.parametrize("name", ["ladder", "service", "requeue"])
def test_three_consumers_on_one_queue_make_exactly_as_many_attempts_as_one_would(vhost: Vhost, name: str) -> None:
    flow = FLOWS[name]
    kinds = [f"fail{number}" for number in range(30)]
    runs: Counter[str] = Counter()

    async def scenario() -> None:
        notes = Notes()
        await declare_missing(compiled(flow), lambda _: Client(vhost.amqp_url))
        async with AsyncExitStack() as stack:
            recorders = [Recorder() for _ in range(3)]
            for recorder in recorders:
                app = App(compiled(flow))
                app.consumer(flow.queue, prefetch=5, pause_after=None)(recorder.handle)
                await stack.enter_async_context(running(app, url=vhost.amqp_url, observer=notes))
            await asyncio.to_thread(send, vhost.amqp_url, flow, kinds)
            await wait_until(lambda: decisions(notes)["park"] == 30, timeout_s=30)
            for recorder in recorders:
                runs.update(kind for kind, _ in recorder.runs)
        assert decisions(notes) == {"retry": 30 * (flow.attempts - 1), "park": 30}

    run_scenario(scenario(), timeout_s=60)
    assert runs == dict.fromkeys(kinds, flow.attempts)
    parked = drain(vhost.amqp_url, parking_of(flow))
    assert sorted(one.properties.message_id for one in parked) == sorted(kinds)
    assert {one.properties.headers["x-final-retry-count"] for one in parked} == {flow.attempts - 1}
