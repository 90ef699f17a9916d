"""Every message of a pushed queue ends where its service's answers say, on real RabbitMQ, in real time."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from rig import Vhost

from redrive import wire
from redrive.client import Channel, Client, Confirmed
from redrive.runtime import Pusher, PushTarget, is_signed
from redrive.topology import compile_declaration, read_declaration
from redrive.wiring import PushedQueue, declare_missing, push_app, running
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

SECRET = "a secret both sides know"
DECLARED = """
exchanges: {shop: topic}
queues:
  orders: {from: {shop: ["orders.#"]}, retry: [200ms, 300ms]}
"""
QUEUES = ("orders", "orders.wait.200ms", "orders.wait.300ms", "orders.parked")


def signed_by_us(header: str, body: bytes) -> bool:
    return is_signed(header, body, SECRET.encode(), now_s=int(time.time()))


@pytest.mark.live
@pytest.mark.parametrize("language", ["python", "node"])
def test_every_message_ends_where_its_services_answers_say(language: str, vhost: Vhost, tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(DECLARED)
    parks = sum(case.parked is not None for case in CASES.values())

    async def run() -> None:
        opened: AbstractAsyncContextManager[tuple[str, Seen]] = (
            python_service(signed_by_us) if language == "python" else node_service(SECRET)
        )
        async with Client(vhost.amqp_url) as client, opened as (url, seen):
            compiled = compile_declaration(read_declaration(DECLARED, file=str(file)))
            await declare_missing(compiled, lambda _: Client(vhost.amqp_url))
            publisher = await client.publisher()
            for name, case in CASES.items():
                properties = wire.Properties.of(message_id=name, delivery_mode=2, content_type="application/json")
                assert await publisher.publish("shop", "orders.new", body_of(case), properties) == Confirmed()
            target = PushTarget(url=url, total_s_max=TOO_SLOW_S[language], secrets=(SECRET.encode(),))
            async with (
                Pusher(target) as pusher,
                running(push_app(pusher, PushedQueue(name="orders", file=str(file))), url=vhost.amqp_url),
            ):
                channel = await client.channel()
                async with asyncio.timeout(60):
                    while not is_all_told(seen) or await counted(channel) != (0, 0, 0, parks):  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
            # With nobody consuming any more, what was not acked would be back by now.
            assert await counted(channel) == (0, 0, 0, parks)
            check_parked(await taken(channel, "orders.parked"), CASES)
        check_requests(seen, CASES)

    asyncio.run(run())


def is_all_told(seen: Seen) -> bool:
    return all(seen.requests[name] >= case.requests for name, case in CASES.items())


async def counted(channel: Channel) -> tuple[int, ...]:
    """Messages ready in each queue."""
    return tuple([(await channel.declare_queue(name, passive=True)).messages_ready for name in QUEUES])


async def taken(channel: Channel, queue: str) -> dict[str, dict[str, object]]:
    found = {}
    while (got := await channel.get_message(queue, no_ack=True)) is not None:
        found[str(got.properties.message_id)] = dict(got.properties.headers)
    return found
