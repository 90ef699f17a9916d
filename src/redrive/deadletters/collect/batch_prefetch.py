"""The next batch, taken while the last one is stored: the broker and the database then work at the same time.

At most one batch is prefetched, so two batches are held at once. Which of their messages are stored is in the database
as ever (`collect_loop`). A prefetched batch that is no longer wanted is requeued, by nack.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from redrive.core import RedriveError
from redrive.deadletters.collect.arrivals import BatchExplainer
from redrive.deadletters.collect.batches import BATCH_S_MAX, BatchTaker, CollectBatch

PREFETCH_IDLE_S = 0.5
"""How long it waits for a first message: there was more a moment ago."""
_DROP_S_MAX = PREFETCH_IDLE_S + BATCH_S_MAX + 1.0


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """A batch, and what is known of its messages already."""

    batch: CollectBatch
    explainer: BatchExplainer


class BatchPrefetch:
    """Takes batches, and sometimes the next one before it is asked for."""

    def __init__(self, taker: BatchTaker, new_explainer: Callable[[], BatchExplainer]) -> None:
        self._taker = taker
        self._new_explainer = new_explainer
        self._task: asyncio.Task[TakenBatch] | None = None

    @property
    def is_active(self) -> bool:
        """Whether a batch is being prefetched, or is there and was not asked for yet."""
        return self._task is not None

    def begin(self, stop: asyncio.Event) -> None:
        """Starts to take the next batch. The store must know already that it may be lost."""
        assert self._task is None
        self._task = asyncio.create_task(self._take(at_least=0, idle_s=PREFETCH_IDLE_S, stop=stop))

    async def take(self, *, at_least: int, idle_s: float, stop: asyncio.Event) -> TakenBatch:
        """The prefetched batch, or one taken now (`BatchTaker.take`)."""
        if self._task is None:
            return await self._take(at_least=at_least, idle_s=idle_s, stop=stop)
        await asyncio.wait({self._task})  # not the task itself: a caller cancelled here must still be able to drop it
        task, self._task = self._task, None
        return task.result()

    async def drop(self) -> None:
        """Requeues the prefetched batch, if there is one."""
        task, self._task = self._task, None
        if task is not None:
            # Shielded: if we are cancelled again meanwhile, the batch would be held for as long as the client lives.
            await asyncio.shield(_requeue(task))

    def _take(self, *, at_least: int, idle_s: float, stop: asyncio.Event) -> Coroutine[Any, Any, TakenBatch]:
        return _take_explained(self._taker, self._new_explainer(), at_least=at_least, idle_s=idle_s, stop=stop)


async def _take_explained(
    taker: BatchTaker, explainer: BatchExplainer, *, at_least: int, idle_s: float, stop: asyncio.Event
) -> TakenBatch:
    batch = await taker.take(at_least=at_least, idle_s=idle_s, stop=stop, on_delivery=explainer.explain_early)
    return TakenBatch(batch, explainer)


async def _requeue(task: asyncio.Task[TakenBatch]) -> None:
    await asyncio.wait({task}, timeout=_DROP_S_MAX)  # soon: it is closed when it is full, or after a moment
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled() or isinstance(task.exception(), RedriveError):
        return  # the channel is closed, and all of it is in the queue again
    await task.result().batch.requeue()
