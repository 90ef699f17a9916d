"""dramatiq with its default middleware and eight threads; it reads no format but its own (see bench/runtime.py)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import dramatiq  # type: ignore[import-not-found,unused-ignore]
from dramatiq.brokers.rabbitmq import RabbitmqBroker  # type: ignore[import-not-found,unused-ignore]

from bench.amqp.clients.contract import Case, Progress, run

ACTOR = "bench"


async def idle(case: Case) -> float:
    """W0."""
    broker = RabbitmqBroker(url=case.url)
    assert broker.connection.is_open
    broker.close()
    return 0.0


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    loop = asyncio.get_running_loop()
    lock = threading.Lock()
    left = case.messages
    broker = RabbitmqBroker(url=case.url)
    dramatiq.set_broker(broker)
    # The queue is the harness's: dramatiq would declare it with arguments of its own, and as classic.
    broker.queues.add(case.source)

    def work(**_order: Any) -> None:
        nonlocal left
        with lock:
            if left == case.messages:
                loop.call_soon_threadsafe(progress.begin)
            left -= 1
        loop.call_soon_threadsafe(progress.settle)

    dramatiq.actor(work, actor_name=ACTOR, queue_name=case.source)
    worker = dramatiq.Worker(broker, queues={case.source}, worker_threads=8)
    worker.start()
    try:
        return await progress.wait_settled()
    finally:
        await asyncio.to_thread(worker.stop)
        broker.close()


if __name__ == "__main__":
    run("dramatiq", {"W0": idle, "W2": consume})
