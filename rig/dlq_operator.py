"""An operator at the command line, and the services whose messages die, on a real broker."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redrive import App, wire
from redrive.client import Channel, Client, Confirmed
from redrive.wiring import running
from rig import Vhost

ROOT = Path(__file__).parents[1]
WAIT_S_MAX = 60.0


class Operator:
    """Runs `redrive` as a program of its own on one vhost and one database."""

    def __init__(self, vhost: Vhost, folder: Path) -> None:
        self.url = vhost.amqp_url
        self.environment = {
            **os.environ,
            "NO_COLOR": "1",
            "REDRIVE_URL": vhost.amqp_url,
            "REDRIVE_MANAGEMENT_URL": vhost.management_url,
            "REDRIVE_DATABASE": f"sqlite:///{folder / 'letters.db'}",
            "REDRIVE_USER": "ada",
        }

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """A command, with nobody to ask."""
        return subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            env=self.environment,
        )

    def fine(self, *arguments: str) -> str:
        """What a command prints that must end well."""
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def json(self, *arguments: str) -> Any:
        """What it prints as JSON."""
        return json.loads(self.fine(*arguments, "--format", "json"))

    def letters(self, *options: str) -> list[dict[str, Any]]:
        """The dead letters in the store, the longest dead first."""
        found = self.json("dlq", "list", "--all", "--oldest-first", *options)["letters"]
        assert isinstance(found, list)
        return found

    def depths(self, *queues: str) -> dict[str, int]:
        """Messages ready in these queues, asked over AMQP: the management API's numbers are seconds old."""
        return asyncio.run(_with_channel(self.url, lambda channel: _depths(channel, queues)))

    def wait_depths(self, expected: dict[str, int]) -> None:
        """Until exactly so many are ready in each of these queues."""
        until_s = time.monotonic() + WAIT_S_MAX
        while (found := self.depths(*expected)) != expected:
            assert time.monotonic() < until_s, found
            time.sleep(0.1)

    def taken(self, queue: str) -> list[wire.Got]:
        """Everything in a queue, taken out of it."""

        async def take(channel: Channel) -> list[wire.Got]:
            found = []
            while (got := await channel.get_message(queue, no_ack=True)) is not None:
                found.append(got)
            return found

        return asyncio.run(_with_channel(self.url, take))

    def publish(self, exchange: str, key: str, *message_ids: str, body: bytes | None = None) -> None:
        """One message each, confirmed; its body is JSON with its id, unless another is given."""

        async def send() -> None:
            async with Client(self.url) as client:
                publisher = await client.publisher()
                for one in message_ids:
                    properties = wire.Properties.of(
                        message_id=one, type="event", delivery_mode=2, content_type="application/json"
                    )
                    sent = json.dumps({"id": one}).encode() if body is None else body
                    assert await publisher.publish(exchange, key, sent, properties) == Confirmed()

        asyncio.run(send())

    def let_fail(self, file: str, queue: str, *, dlq: str, parked: int) -> None:
        """Runs a consumer whose handler always fails, until so many are parked."""
        app = App(file)

        @app.consumer(queue)
        async def handle(body: dict[str, Any]) -> None:
            raise TimeoutError(f"the hotel is away for {body['id']}")

        async def run() -> None:
            async with running(app, url=self.url), Client(self.url) as client, asyncio.timeout(WAIT_S_MAX):
                channel = await client.channel()
                while (await _depths(channel, [dlq]))[dlq] != parked:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

        asyncio.run(run())


async def _with_channel(url: str, ask: Callable[[Channel], Awaitable[Any]]) -> Any:
    async with Client(url) as client:
        return await ask(await client.channel())


async def _depths(channel: Channel, queues: Any) -> dict[str, int]:
    return {name: (await channel.declare_queue(name, passive=True)).messages_ready for name in queues}
