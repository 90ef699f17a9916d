"""Reads queues with another client (pika), so that our client is not judged by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pika

READY_S_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A message as pika got it."""

    body: bytes
    properties: Any
    exchange: str
    routing_key: str
    redelivered: bool


def drain(url: str, queue: str) -> list[Held]:
    """Takes everything that is ready in a queue, in order."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        held: list[Held] = []
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return held
            held.append(
                Held(
                    body=body,
                    properties=properties,
                    exchange=method.exchange,
                    routing_key=method.routing_key,
                    redelivered=method.redelivered,
                )
            )
    finally:
        connection.close()


def bodies(url: str, queue: str) -> list[bytes]:
    return [held.body for held in drain(url, queue)]


def ready(url: str, queue: str) -> int:
    """How many messages are ready."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
    finally:
        connection.close()


def wait_ready(url: str, queue: str, count: int) -> None:
    """Waits until exactly so many messages are ready: a requeue takes a moment."""
    deadline = time.monotonic() + READY_S_MAX
    while (found := ready(url, queue)) != count:
        assert time.monotonic() < deadline, f"{queue} has {found} messages ready, expected {count}"
        time.sleep(0.05)


def fill(url: str, queue: str, count: int, *, arguments: Mapping[str, Any] | None = None, body: bytes = b"") -> None:
    """Declares a durable queue with `count` persistent messages in it, numbered unless there is a body."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=dict(arguments or {}))
        channel.confirm_delivery()
        for number in range(count):
            properties = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", queue, body or b"%d" % number, properties, mandatory=True)
    finally:
        connection.close()


async def wait_for(condition: Callable[[], Any], *, timeout_s: float = 30.0) -> Any:
    """Asks in a thread until the answer is truthy, and returns it: for the management API, which lags."""
    async with asyncio.timeout(timeout_s):
        while not (answer := await asyncio.to_thread(condition)):  # noqa: ASYNC110 - the broker can't be awaited
            await asyncio.sleep(0.05)
    return answer
