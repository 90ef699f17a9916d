"""The worker's thread."""

import asyncio
import threading
import time

from redrive.admin import WorkerActivity, WorkerState
from redrive.serving.worker_thread import WorkerThread


def test_a_worker_that_died_is_not_said_to_collect() -> None:
    class Dying:
        state = WorkerState(activity=WorkerActivity.CONNECTING)

        async def run(self, stop: asyncio.Event) -> None:
            raise SystemExit

    worker = WorkerThread(lambda: Dying())  # type: ignore[arg-type,return-value]
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        worker.start()
        until_s = time.monotonic() + 10
        while worker.state().activity is not WorkerActivity.WAITING and time.monotonic() < until_s:
            time.sleep(0.01)
    finally:
        threading.excepthook = hook
    state = worker.state()
    assert (state.activity, state.is_ready) == (WorkerActivity.WAITING, False)
    assert "has ended" in state.text
