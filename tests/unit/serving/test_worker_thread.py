"""The worker's thread."""

import asyncio
import threading

from redrive.admin import WorkerActivity
from redrive.serving.worker_thread import WorkerThread


def test_a_worker_that_died_is_not_said_to_collect() -> None:
    class Dying:
        state = None

        async def run(self, stop: asyncio.Event) -> None:
            raise SystemExit

    worker = WorkerThread(lambda: Dying())  # type: ignore[arg-type,return-value]
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        worker.start()
        worker._thread.join(10)
    finally:
        threading.excepthook = hook
    state = worker.state()
    assert (state.activity, state.is_ready) == (WorkerActivity.WAITING, False)
    assert "has ended" in state.text
