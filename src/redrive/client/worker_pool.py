"""A pool of tasks that run coroutine handlers, instead of a task for each message.

A handler must run in a task (timeouts and cancellation need one), but making a task costs more than receiving the
message. So a few worker tasks stay and take items in turn: a handler that does not wait for anything costs one call.
Only while handlers wait are more workers made, up to one for each item that may be in progress.

Before a worker runs a handler, it wakes another worker, in case the handler waits. If the handler did not wait, the
other worker finds nothing to do and sleeps again. If it did, the other wakes as many as there are items.

Handlers that run in one worker share its context: a context variable that a handler leaves set is seen by a later one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class WorkerPool(Generic[_Item]):
    """Runs `handle` for every item given to `put`, each in one of at most `workers_max` tasks."""

    def __init__(
        self,
        handle: Callable[[_Item], Awaitable[None]],
        *,
        workers_max: int,
        on_failure: Callable[[_Item, BaseException], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._handle = handle
        self._workers_max = workers_max
        self._on_failure = on_failure
        self._loop = loop
        self._items: deque[_Item] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        """A dict for its order: which worker is cancelled first must not depend on hashes."""
        self._coming = 0
        """Workers that were woken or made and have not run yet."""
        self._running = 0
        self._closed = False

    @property
    def running(self) -> int:
        """Handlers that have begun and not ended."""
        return self._running

    @property
    def waiting(self) -> int:
        """Items that no worker has taken yet."""
        return len(self._items)

    def put(self, item: _Item) -> None:
        """Gives an item to the next worker."""
        self._items.append(item)
        if not self._coming:
            self._wake(1)

    def clear(self) -> list[_Item]:
        """Removes and returns the items that no worker has taken yet."""
        items = list(self._items)
        self._items.clear()
        return items

    async def close(self, timeout_s: float | None = None) -> None:
        """Cancels the running handlers and ends the workers; one that does not end in time runs on.

        A handler may call this: it is not cancelled, and its worker ends after it.
        """
        self._closed = True
        self._items.clear()
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _wake(self, count: int) -> None:
        """Wakes so many workers, and makes new ones where no more are idle."""
        while count > 0:
            if self._idle:
                waiter = self._idle.pop()
                if waiter.done():
                    continue
                waiter.set_result(None)
            elif len(self._tasks) < self._workers_max and not self._closed:
                task = self._loop.create_task(self._work())
                self._tasks[task] = None
                task.add_done_callback(self._ended)
            else:
                return
            self._coming += 1
            count -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A worker ends with `close`; if it ends otherwise, the others take the items that are left."""
        self._tasks.pop(task, None)
        if self._items and not self._coming:
            self._wake(1)

    async def _work(self) -> None:
        items = self._items
        me = asyncio.current_task()
        assert me is not None
        while True:
            self._coming -= 1
            # Handlers of other workers wait, so every item left needs a worker.
            if self._running and len(items) > 1:
                self._wake(len(items) - 1 - self._coming)
            while items:
                item = items.popleft()
                if items and not self._coming:
                    self._wake(1)
                self._running += 1
                try:
                    await self._handle(item)
                except asyncio.CancelledError as error:
                    if me.cancelling():
                        raise
                    self._on_failure(item, error)  # something the handler waited for was cancelled, not this worker
                except Exception as error:  # noqa: BLE001 - the handler boundary: a bad handler stops no other
                    self._on_failure(item, error)
                finally:
                    self._running -= 1
            if self._closed:
                return
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._coming -= 1  # else no other worker would be woken for the item
                raise
