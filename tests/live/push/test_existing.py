"""`redrive push --existing reject` on real RabbitMQ: no message is rejected to nowhere, and looking changes nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rig import Vhost

from redrive import wire
from redrive.client import Client, Confirmed
from redrive.inspection import find_dead_letter_exchange
from tests.unit.inspection.queue_scene import QUEUES, check_vanishing

DLX = "x-dead-letter-exchange"
QUESTION = "may not configure queue plain, so whether it has a dead-letter exchange can't be seen"


def push(url: str, queue: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "redrive", "push", queue, "--existing", "reject", "--to", "http://127.0.0.1:1/"]
    return subprocess.Popen(
        [*command, "--url", url, "--log-level", "error", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def refused(url: str, queue: str, *arguments: str) -> str:
    process = push(url, queue, *arguments)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert len(said.splitlines()) == 1
    return said


def declared(vhost: Vhost, **queues: dict[str, Any]) -> None:
    """The queues, with a message in each, and an exchange `dlx` that leads to the queue `dead`."""

    async def run() -> None:
        async with Client(vhost.amqp_url) as client:
            channel, publisher = await client.channel(), await client.publisher()
            await channel.declare_exchange("dlx", "fanout")
            await channel.declare_queue("dead")
            await channel.bind_queue("dead", "dlx")
            for name, arguments in queues.items():
                await channel.declare_queue(name, arguments=arguments)
                properties = wire.Properties.of(message_id=name, delivery_mode=2)
                assert await publisher.publish("", name, b"{}", properties) == Confirmed()

    asyncio.run(run())


def depths(vhost: Vhost, *names: str) -> dict[str, int]:
    async def run() -> dict[str, int]:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            return {name: (await channel.declare_queue(name, passive=True)).messages_ready for name in names}

    return asyncio.run(run())


def check_rejected_to_dead(vhost: Vhost, url: str, queue: str, *arguments: str) -> None:
    process = push(url, queue, *arguments)
    try:
        deadline_s = time.monotonic() + 60
        while depths(vhost, queue, "dead") != {queue: 0, "dead": 1}:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert depths(vhost, queue, "dead") == {queue: 0, "dead": 1}


@contextmanager
def user(vhost: Vhost, **rights: str) -> Iterator[str]:
    """The URL of a user with these rights and no others."""
    name = f"push-{vhost.name}"[-80:]
    vhost.management.put("users", name, body={"password": "secret", "tags": ""})
    try:
        body = {"configure": "^$", "write": "^$", "read": "^$", **rights}
        vhost.management.put("permissions", vhost.name, name, body=body)
        yield vhost.amqp_url.replace("guest:guest@", f"{name}:secret@")
    finally:
        vhost.management.delete("users", name)


@pytest.mark.live
def test_what_the_arguments_name_is_found_and_nothing_is_made_or_changed(vhost: Vhost) -> None:
    async def run() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_queue("stream", arguments={"x-queue-type": "stream"})
            for name, (settings, _) in QUEUES.items():
                await channel.declare_queue(name, **settings)
            found = {name: await find_dead_letter_exchange(client, name) for name in (*QUEUES, "stream")}
            assert found == {**{name: exchange for name, (_, exchange) in QUEUES.items()}, "stream": None}
            for name, (settings, _) in QUEUES.items():
                await channel.declare_queue(name, **settings)  # refused if anything were different now

    asyncio.run(run())
    assert {one["name"] for one in vhost.management.get("queues", vhost.name)} == {*QUEUES, "stream"}


@pytest.mark.live
def test_the_question_can_not_make_a_queue_that_went_away(vhost: Vhost) -> None:
    asyncio.run(check_vanishing(vhost.amqp_url))
    assert vhost.management.get("queues", vhost.name) == []


@pytest.mark.live
def test_without_a_dead_letter_exchange_nothing_is_consumed(vhost: Vhost) -> None:
    declared(vhost, plain={}, astray={DLX: "gone"}, quorum={"x-queue-type": "quorum"})
    before = vhost.management.get("definitions", vhost.name)
    assert "queue plain has no dead-letter exchange" in refused(vhost.amqp_url, "plain")
    assert "queue quorum has no dead-letter exchange" in refused(vhost.amqp_url, "quorum")
    assert "dead-letters to exchange gone, which does not exist" in refused(vhost.amqp_url, "astray")
    assert "there is no queue missing" in refused(vhost.amqp_url, "missing", "--no-wait")
    assert depths(vhost, "plain", "quorum", "astray", "dead") == {"plain": 1, "quorum": 1, "astray": 1, "dead": 0}
    assert vhost.management.get("definitions", vhost.name) == before


@pytest.mark.live
def test_with_one_a_failed_message_goes_there(vhost: Vhost) -> None:
    declared(vhost, orders={DLX: "dlx", "x-message-ttl": 600_000, "x-max-length": 100})
    check_rejected_to_dead(vhost, vhost.amqp_url, "orders")


@pytest.mark.live
def test_one_that_a_policy_gives_has_to_be_said(vhost: Vhost) -> None:
    declared(vhost, plain={})
    policy = {"pattern": "^plain$", "definition": {"dead-letter-exchange": "dlx"}, "apply-to": "queues"}
    vhost.management.put("policies", vhost.name, "dead", body=policy)
    assert "add --has-dead-letter-exchange" in refused(vhost.amqp_url, "plain")
    assert depths(vhost, "plain") == {"plain": 1}
    check_rejected_to_dead(vhost, vhost.amqp_url, "plain", "--has-dead-letter-exchange")


@pytest.mark.live
def test_a_user_that_may_not_look_has_to_name_the_dead_letter_exchange(vhost: Vhost) -> None:
    declared(vhost, plain={DLX: "dlx"})
    with user(vhost, read="^plain$") as url:
        assert QUESTION in refused(url, "plain")
        assert depths(vhost, "plain") == {"plain": 1}
        check_rejected_to_dead(vhost, url, "plain", "--has-dead-letter-exchange")
