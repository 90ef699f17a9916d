"""Runs one scenario with pika on the real broker and on the embedded one, in virtual time there."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pika
from rig.brokers import Vhost

from tests.unit.embedded.threaded import broker_in_a_thread

Wait = Callable[[float], None]
Scenario = Callable[[Any, Wait], Any]


def on_both(vhost: Vhost, scenario: Scenario) -> tuple[Any, Any]:
    """What a scenario sees on the real broker, and on the embedded one in virtual time."""
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_url)) as connection:
        real = scenario(connection, time.sleep)
    with broker_in_a_thread(vhost.profile, time="manual", idle_s=0.0002) as (broker, loop):

        def advance(seconds: float) -> None:
            asyncio.run_coroutine_threadsafe(broker.advance(seconds), loop).result(10)

        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            return real, scenario(connection, advance)


def listen(connection: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        connection.process_data_events(time_limit=0.05)
