"""pika's AsyncioConnection, with callbacks: it has no asynchronous handlers, and its examples ack one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from bench.amqp.clients.contract import CONTENT_TYPE, PERSISTENT, RETRIES, Case, Progress, count_retries, run

Channel = Any  # pika brings no types


class Confirms:
    """What waits for its confirm: an action for each publish, run when its tag, or one after it, is confirmed."""

    def __init__(self, progress: Progress, after: Callable[[], None] | None = None) -> None:
        self._waiting: dict[int, Callable[[], None]] = {}
        self._tag = 0
        self._progress = progress
        self._after = after

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, action: Callable[[], None]) -> None:
        """The next publish on the channel has been made; `action` is run with its confirm."""
        self._tag += 1
        self._waiting[self._tag] = action

    def receive(self, frame: Any) -> None:
        """pika's callback for confirms."""
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self._progress.fail("a publish was refused")
            return
        if method.multiple:
            # Tags are entered in order, so those that are confirmed lie in front.
            for tag in list(self._waiting):
                if tag > method.delivery_tag:
                    break
                self._waiting.pop(tag)()
        else:
            self._waiting.pop(method.delivery_tag)()
        if self._after is not None:
            self._after()


async def idle(case: Case) -> float:
    """W0."""
    connection, _ = await open_channel(case)
    await close(connection)
    return 0.0


async def publish(case: Case) -> float:
    """W1: as many as the window lets, again after every confirm."""
    progress = Progress(case)
    connection, channel = await open_channel(case)
    properties = pika.BasicProperties(content_type=CONTENT_TYPE, delivery_mode=PERSISTENT)
    left = case.messages

    def fill() -> None:
        nonlocal left
        while left > 0 and len(confirms) < case.window:
            left -= 1
            channel.basic_publish("", case.source, case.body, properties)
            confirms.expect(progress.settle)

    confirms = Confirms(progress, fill)
    await select_confirms(channel, confirms, progress)
    progress.begin()
    fill()
    return await finish(connection, progress)


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    connection, channel = await open_channel(case)

    def on_message(channel: Channel, method: Any, _properties: Any, _body: bytes) -> None:
        progress.begin()
        channel.basic_ack(method.delivery_tag)
        progress.settle()

    start_consumer(channel, case, on_message)
    return await finish(connection, progress)


async def retry(case: Case) -> float:
    """W3."""
    return await _consume_publishing(case, lambda headers: count_retries(headers, case.source) < RETRIES)


async def move(case: Case) -> float:
    """W4."""
    return await _consume_publishing(case, lambda _headers: False)


async def _consume_publishing(case: Case, rejects: Callable[[Any], bool]) -> float:
    progress = Progress(case)
    connection, channel = await open_channel(case)
    confirms = Confirms(progress)
    await select_confirms(channel, confirms, progress)

    def on_message(channel: Channel, method: Any, properties: Any, body: bytes) -> None:
        progress.begin()
        tag = method.delivery_tag
        if rejects(properties.headers):
            channel.basic_reject(tag, requeue=False)
            return

        def settle() -> None:
            channel.basic_ack(tag)
            progress.settle()

        channel.basic_publish("", case.target, body, properties, mandatory=True)
        confirms.expect(settle)

    start_consumer(channel, case, on_message)
    return await finish(connection, progress)


async def open_channel(case: Case) -> tuple[AsyncioConnection, Channel]:
    """A connection and one channel on it."""
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[Channel] = loop.create_future()
    connection = AsyncioConnection(
        pika.URLParameters(case.url),
        on_open_callback=lambda made: made.channel(on_open_callback=opened.set_result),
        on_open_error_callback=lambda _made, error: opened.set_exception(RuntimeError(f"no connection: {error}")),
        custom_ioloop=loop,
    )
    return connection, await opened


async def select_confirms(channel: Channel, confirms: Confirms, progress: Progress) -> None:
    """Confirm mode; a message that comes back ends the run."""
    selected: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    channel.add_on_return_callback(lambda *_: progress.fail("a message was returned"))
    channel.confirm_delivery(confirms.receive, callback=selected.set_result)
    await selected


def start_consumer(channel: Channel, case: Case, on_message: Callable[[Channel, Any, Any, bytes], None]) -> None:
    """Consume when the prefetch is set."""
    channel.basic_qos(
        prefetch_count=case.prefetch, callback=lambda _frame: channel.basic_consume(case.source, on_message)
    )


async def finish(connection: AsyncioConnection, progress: Progress) -> float:
    """Wait for the last outcome, or for the connection to go before it, and close."""
    connection.add_on_close_callback(lambda _connection, reason: progress.fail(f"the connection went: {reason}"))
    seconds = await progress.wait_settled()
    await close(connection)
    return seconds


async def close(connection: AsyncioConnection) -> None:
    """Close in order: what was written before reaches the broker."""
    closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    connection.add_on_close_callback(lambda _connection, reason: closed.set_result(reason))
    connection.close()
    await closed


if __name__ == "__main__":
    run("pika", {"W0": idle, "W1": publish, "W2": consume, "W3": retry, "W4": move})
