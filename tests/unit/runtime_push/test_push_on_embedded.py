"""Every message of a pushed queue ends where its service's answers say, on the embedded broker."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redrive import wire
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions, Pusher, PushTarget, is_signed
from redrive.topology import compile_declaration, read_declaration
from redrive.wiring import Existing, PushedQueue, declare_missing, push_app, running
from tests.unit.client.scenario import Notes
from tests.unit.runtime_push.scripted import (
    CASES,
    TOO_SLOW_S,
    Seen,
    body_of,
    check_parked,
    check_requests,
    node_service,
    python_service,
)
from tests.unit.runtime_push.services import ClosingService, Request, Service, Wire, always

pytestmark = pytest.mark.slow

SECRET = "a secret both sides know"
DECLARED = """
queues:
  orders: {retry: [30s, 5m]}
  rejecting: {retry: false, arguments: {x-dead-letter-exchange: "", x-dead-letter-routing-key: dead}}
  dead: {retry: false}
  plain: {retry: false}
services: [wms-stock]
"""


def signed_by_us(header: str, body: bytes) -> bool:
    return is_signed(header, body, SECRET.encode(), now_s=int(time.time()))


@asynccontextmanager
async def declared_broker(
    folder: Path, *, time: str = "automatic"
) -> AsyncIterator[tuple[EmbeddedBroker, Client, str]]:
    file = folder / "redrive.yaml"
    file.write_text(DECLARED)
    async with EmbeddedBroker("4.3", time=time) as broker:
        compiled = compile_declaration(read_declaration(DECLARED, file=str(file)))
        await declare_missing(compiled, lambda _: Client(broker.url))
        async with Client(broker.url) as client:
            yield broker, client, str(file)


@asynccontextmanager
async def pushing(
    broker: EmbeddedBroker,
    target: PushTarget,
    queue: str,
    *,
    file: str = "",
    existing: Existing | None = None,
    **options_of_push: Any,
) -> AsyncIterator[Notes]:
    notes = Notes()
    options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000), draw=lambda: 0.0, grace_s=5)
    async with Pusher(target) as pusher:
        app = push_app(pusher, PushedQueue(name=queue, file=file, existing=existing, **options_of_push))
        async with running(app, url=broker.url, observer=notes, options=options):
            yield notes


async def publish(
    client: Client, queue: str, name: str, body: bytes, timestamp: wire.Timestamp | None = None, **headers: object
) -> None:
    publisher = await client.publisher()
    properties = wire.Properties.of(
        message_id=name,
        delivery_mode=2,
        content_type="application/json",
        timestamp=timestamp,
        headers=headers or None,
    )
    assert await publisher.publish("", queue, body, properties) == Confirmed()
    await publisher.close()


async def until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the broker is asked, and a deadline bounds the wait
            await asyncio.sleep(0.005)


async def taken(client: Client, queue: str) -> dict[str, dict[str, object]]:
    channel = await client.channel()
    found = {}
    while (got := await channel.get_message(queue, no_ack=True)) is not None:
        found[str(got.properties.message_id)] = dict(got.properties.headers)
    await channel.close()
    return found


def services() -> list[object]:
    has_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
    return ["python", pytest.param("node", marks=[has_node, pytest.mark.slow])]


@pytest.mark.parametrize("language", services())
def test_every_message_ends_where_its_services_answers_say(language: str, tmp_path: Path) -> None:
    async def run() -> None:
        opened: AbstractAsyncContextManager[tuple[str, Seen]] = (
            python_service(signed_by_us) if language == "python" else node_service(SECRET)
        )
        async with declared_broker(tmp_path) as (broker, client, file), opened as (url, seen):
            for name, case in CASES.items():
                await publish(client, "orders", name, body_of(case))
            target = PushTarget(url=url, total_s_max=TOO_SLOW_S[language], secrets=(SECRET.encode(),))
            async with pushing(broker, target, "orders", file=file):
                parks = sum(case.parked is not None for case in CASES.values())

                def all_ended() -> bool:
                    depths = broker.depths()
                    return depths["orders.parked"] == parks == sum(depths.values())

                await until(all_ended)
            depths = {queue: count for queue, count in broker.depths().items() if count}
            assert depths == {"orders.parked": parks}
            check_parked(await taken(client, "orders.parked"), CASES)
        check_requests(seen, CASES)

    asyncio.run(run())


def test_a_message_no_service_can_be_reached_for_is_retried_and_parked(tmp_path: Path) -> None:
    async def run() -> None:
        async with Service(always(204)) as gone:
            url = gone.url
        async with declared_broker(tmp_path) as (broker, client, file):
            await publish(client, "orders", "m-1", b"{}")
            async with pushing(broker, PushTarget(url=url), "orders", file=file):
                await until(lambda: broker.depths()["orders.parked"] == 1)
            headers = (await taken(client, "orders.parked"))["m-1"]
            assert str(headers["x-final-error"]).startswith("Unreachable: can't connect to http://127.0.0.1:")
            assert headers["x-final-retry-count"] == 2
            assert sum(broker.depths().values()) == 0

    asyncio.run(run())


def test_as_many_requests_are_open_at_once_as_the_target_allows_and_never_more(tmp_path: Path) -> None:
    open_max = 6

    async def run() -> None:
        # Nobody is answered before so many are there: with fewer at once it would never go on.
        gate = asyncio.Barrier(open_max)
        open_now, seen, in_hand = 0, [], []

        async def behave(_request: Request, wire: Wire) -> None:
            nonlocal open_now
            open_now += 1
            seen.append(open_now)
            await gate.wait()
            in_hand.append(sum(place.state == "unacked" for name in names for place in broker.whereabouts(name)))
            open_now -= 1
            await wire.answer(204)

        names = [f"m-{number}" for number in range(3 * open_max)]
        async with declared_broker(tmp_path) as (broker, client, file), Service(behave) as service:
            for name in names:
                await publish(client, "orders", name, b"{}")
            target = PushTarget(url=service.url, concurrency=open_max, total_s_max=20)
            async with pushing(broker, target, "orders", file=file) as notes:
                await until(lambda: len(seen) == 3 * open_max and not sum(broker.depths().values()), timeout_s=10)
            assert max(seen) == open_max
            assert max(in_hand) == open_max, "no more messages are taken than requests may be open"
            assert sorted(request.headers["x-redrive-message-id"] for request in service.requests) == sorted(names)
            assert {fields["decision"] for name, fields in notes.heard if name == "runtime.decided"} == {"ack"}

    asyncio.run(run())


def test_an_outage_parks_nothing_because_the_queue_pauses(tmp_path: Path) -> None:
    async def run() -> None:
        names = {f"m-{number}" for number in range(30)}
        async with Service(always(204)) as gone:
            target = PushTarget(url=gone.url, concurrency=10)
        async with declared_broker(tmp_path, time="real") as (broker, client, file):
            for name in sorted(names):
                await publish(client, "orders", name, b"{}")
            async with pushing(broker, target, "orders", file=file, pause_after=20) as notes:
                await until(lambda: any(name == "runtime.paused" for name, _ in notes.heard))
                # A message that is being given back is there twice until its original is acked.
                await until(lambda: sum(broker.depths().values()) == 30)
                waiting = broker.depths()
                assert waiting["orders.parked"] == 0
                assert waiting["orders"] >= 10, "the first twenty failures in a row pay, nobody else"
                async with Service(always(204), port=gone.port) as back:
                    await until(lambda: any(name == "runtime.resumed" for name, _ in notes.heard))
                    await until(lambda: broker.depths()["orders"] == 0 and len(back.requests) >= waiting["orders"])
            seen = {request.headers["x-redrive-message-id"] for request in back.requests}
            left = {name for name in names if [one.queue for one in broker.whereabouts(name)] == ["orders.wait.30s"]}
            assert (seen | left, seen & left) == (names, set())

    asyncio.run(run())


def test_an_early_message_of_a_service_queue_is_pushed_when_its_time_has_come(tmp_path: Path) -> None:
    async def run() -> None:
        seen_at_s: list[float] = []

        async def behave(_request: Request, wire: Wire) -> None:
            seen_at_s.append(broker.now_s)
            await wire.answer(204)

        # A local pause is real time, during which a broker in virtual time would stand still.
        async with declared_broker(tmp_path, time="real") as (broker, client, file), Service(behave) as service:
            published_s = broker.now_s
            await publish(client, "wms.queue.wms-stock", "m-1", b'{"sku": 1, "processAfterDelayMs": 700}')
            await publish(client, "wms.queue.wms-stock", "m-2", b"{}")
            # Milliseconds where AMQP has seconds, as JavaScript's Date.now() gives them.
            mistaken = wire.Timestamp(int(published_s * 1000))
            await publish(client, "wms.queue.wms-stock", "m-3", b'{"processAfterDelayMs": 700}', mistaken)
            async with pushing(broker, PushTarget(url=service.url), "wms.queue.wms-stock", file=file):
                await until(lambda: len(seen_at_s) == 3)
                await until(lambda: sum(broker.depths().values()) == 0)
            assert min(seen_at_s[1:]) - published_s >= 0.7
            seen = [request.headers["x-redrive-message-id"] for request in service.requests]
            assert (seen[0], sorted(seen)) == ("m-2", ["m-1", "m-2", "m-3"])
            assert {request.headers["x-redrive-attempt"] for request in service.requests} == {"1"}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("existing", "queue", "ends"), [("reject", "rejecting", {"dead": 1}), ("again", "plain", {"plain": 1})]
)
def test_a_queue_no_file_declares_keeps_its_failed_messages(
    existing: Existing, queue: str, ends: dict[str, int], tmp_path: Path
) -> None:
    async def run() -> None:
        async with declared_broker(tmp_path) as (broker, client, _), Service(always(500)) as service:
            await publish(client, queue, "m-1", b"{}")
            async with pushing(broker, PushTarget(url=service.url), queue, existing=existing):
                await until(lambda: len(service.requests) >= (1 if existing == "reject" else 2))
            assert {name: count for name, count in broker.depths().items() if count} == ends
            assert [place.queue for place in broker.whereabouts("m-1")] == list(ends)

    asyncio.run(run())


def test_a_retried_message_carries_its_own_headers_and_key_every_time(tmp_path: Path) -> None:
    async def run() -> None:
        async def fail_once(_request: Request, wire: Wire) -> None:
            await wire.answer(503 if len(service.requests) == 1 else 204)

        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        async with declared_broker(tmp_path) as (broker, client, file), Service(fail_once) as service:
            await publish(client, "orders", "m-1", json.dumps({"n": 1}).encode(), tenant="größe", traceparent=trace)
            async with pushing(broker, PushTarget(url=service.url), "orders", file=file):
                await until(lambda: sum(broker.depths().values()) == 0 and len(service.requests) == 2)
        first, second = (request.headers for request in service.requests)
        for headers in (first, second):
            assert headers["x-redrive-header-tenant"] == "gr%C3%B6%C3%9Fe"
            assert headers["traceparent"] == trace
            assert headers["x-redrive-routing-key"] == "orders"
            assert headers["content-type"] == "application/json"
        assert (first["x-redrive-attempt"], second["x-redrive-attempt"]) == ("1", "2")
        assert second["x-redrive-header-x-retry-count"] == "1"
        assert service.requests[0].body == service.requests[1].body == b'{"n": 1}'

    asyncio.run(run())


@pytest.mark.parametrize("asked", [False, True])
def test_a_service_that_says_503_pauses_its_queue_only_if_that_was_asked_for(asked: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"pause_after": 3} if asked else {}

    async def run() -> None:
        async with declared_broker(tmp_path) as (broker, client, file), Service(always(503)) as service:
            for number in range(30):
                await publish(client, "orders", f"m-{number}", b"{}")
            async with pushing(broker, PushTarget(url=service.url), "orders", file=file, **options) as notes:
                await until(lambda: notes.count("runtime.paused") if asked else broker.depths()["orders.parked"] == 30)
                assert bool(notes.count("runtime.paused")) is asked
            assert sum(broker.depths().values()) == 30

    asyncio.run(run())


@pytest.mark.parametrize("named", [True, False], ids=["with an id", "without an id"])
@pytest.mark.parametrize("queue", ["wms.queue.wms-stock", "orders"])
def test_eleven_attempts_are_eleven_requests_with_one_key_though_connections_break(
    queue: str, named: bool, tmp_path: Path
) -> None:
    runs, parking = (11, "wms.dlq.wms-stock") if queue.startswith("wms") else (3, "orders.parked")

    async def run() -> None:
        async with (
            declared_broker(tmp_path) as (broker, client, file),
            ClosingService("on the body", status=503) as service,
        ):
            publisher = await client.publisher()
            for _ in range(2):  # one after the other, so that connections are kept from one attempt to the next
                properties = wire.Properties.of(message_id="a" if named else None, delivery_mode=2)
                assert await publisher.publish("", queue, b"{}", properties) == Confirmed()
                asked = len(service.keys)
                async with pushing(broker, PushTarget(url=service.url), queue, file=file) as notes:
                    await until(partial(is_decided, notes, runs))
                assert len(service.keys) - asked == runs
                keys = set(service.keys[asked:])
                assert None not in keys
                assert len(keys) == 1
            assert len(set(service.keys)) == (1 if named else 2), "messages without an id are told apart all the same"
            assert 2 in service.posts, "no connection was used again"
            assert len(await held_in(client, parking)) == 2

    asyncio.run(run())


def is_decided(notes: Notes, runs: int) -> bool:
    return notes.count("runtime.decided") >= runs


async def held_in(client: Client, queue: str) -> list[bytes]:
    channel = await client.channel()
    found = []
    while (got := await channel.get_message(queue, no_ack=True)) is not None:
        found.append(got.body)
    await channel.close()
    return found


@pytest.mark.parametrize("literal", [True, False])
def test_the_documents_own_425_and_4xx_can_be_had(literal: bool, tmp_path: Path) -> None:
    """event-bus: a 425 is a nack, which keeps x-death, and any other 4xx goes through the retry queue."""
    options: dict[str, Any] = {"crashes_max": None, "other_4xx": "retry"} if literal else {}
    queue = "wms.queue.wms-stock"
    times: dict[str, int] = {}

    async def answer(request: Request, wire: Wire) -> None:
        name = request.headers["x-redrive-message-id"]
        times[name] = times.get(name, 0) + 1
        await wire.answer(425 if name == "early" and times[name] == 4 else 404 if name == "bad" else 503)

    async def run() -> None:
        async with declared_broker(tmp_path) as (broker, client, file), Service(answer) as service:
            now = wire.Timestamp(1_700_000_000)
            await publish(client, queue, "early", b"{}", now)
            await publish(client, queue, "bad", b"{}", now)
            async with pushing(broker, PushTarget(url=service.url), queue, file=file, **options):
                await until(lambda: broker.depths()["wms.dlq.wms-stock"] == 2)
            dead = await taken(client, "wms.dlq.wms-stock")
        assert times == {"early": 12, "bad": 11 if literal else 1}
        assert dead["early"]["x-final-retry-count"] == 10
        assert dead["bad"]["x-final-retry-count"] == (10 if literal else 0)
        if literal:
            for headers in dead.values():
                assert rejections(headers, queue) == headers["x-final-retry-count"]
                assert "x-redrive-attempts-before" not in headers
        else:
            assert rejections(dead["early"], queue) == 7, "a copy begins anew"

    asyncio.run(run())


def rejections(headers: dict[str, Any], queue: str) -> int:
    deaths = headers.get("x-death", [])
    return sum(one["count"] for one in deaths if (one["queue"], one["reason"]) == (queue, "rejected"))
