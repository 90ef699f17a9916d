"""An embedded broker in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redrive.embedded import EmbeddedBroker


@contextmanager
def broker_in_a_thread(profile: str, **options: Any) -> Iterator[tuple[EmbeddedBroker, asyncio.AbstractEventLoop]]:
    """The broker and its loop, while the block runs. From here only `url`, `life` and `whereabouts` are safe to use."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def made() -> EmbeddedBroker:
        broker = EmbeddedBroker(profile, **options)
        await broker.start()
        return broker

    broker = asyncio.run_coroutine_threadsafe(made(), loop).result(10)
    try:
        yield broker, loop
    finally:
        asyncio.run_coroutine_threadsafe(broker.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
