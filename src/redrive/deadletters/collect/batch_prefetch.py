"""The next hand, taken while the last one is stored: the broker and the database then work at the same time.

At most one is taken ahead, so two hands are out at once. Which of their messages are stored is in the database as ever
(`rounds`); a hand taken ahead that is not wanted any more is given back, by nack.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from redrive.core import RedriveError
from redrive.deadletters.collect.arrivals import BatchExplainer
from redrive.deadletters.collect.batches import HAND_S_MAX, BatchTaker, CollectBatch

AHEAD_IDLE_S = 0.5
"""How long it waits for a first message: there was more a moment ago."""
_DROP_S_MAX = AHEAD_IDLE_S + HAND_S_MAX + 1.0


@dataclass(frozen=True, slots=True)
class TakenBatch:
    """A hand, and what is known of its messages already."""

    hand: CollectBatch
    explaining: BatchExplainer


class BatchPrefetch:
    """Takes hands, and sometimes the next one before it is asked for."""

    def __init__(self, taker: BatchTaker, new_explaining: Callable[[], BatchExplainer]) -> None:
        self._taker = taker
        self._new_explaining = new_explaining
        self._task: asyncio.Task[TakenBatch] | None = None

    @property
    def is_taking(self) -> bool:
        """Whether a hand is out, or about to be, that nobody has asked for yet."""
        return self._task is not None

    def begin(self, stop: asyncio.Event) -> None:
        """Takes the next hand from now on. The store must know that it may be lost."""
        assert self._task is None
        self._task = asyncio.create_task(self._take(at_least=0, idle_s=AHEAD_IDLE_S, stop=stop))

    async def take(self, *, at_least: int, idle_s: float, stop: asyncio.Event) -> TakenBatch:
        """The hand that was taken ahead, or one taken now (`BatchTaker.take`)."""
        if self._task is None:
            return await self._take(at_least=at_least, idle_s=idle_s, stop=stop)
        await asyncio.wait({self._task})  # not the task itself: who is cancelled here must still be able to drop it
        task, self._task = self._task, None
        return task.result()

    async def drop(self) -> None:
        """Gives back what was taken ahead, if anything was."""
        task, self._task = self._task, None
        if task is not None:
            # Shielded: if we are cancelled again meanwhile, the hand would stay out for as long as the client lives.
            await asyncio.shield(_give_back(task))

    def _take(self, *, at_least: int, idle_s: float, stop: asyncio.Event) -> Coroutine[Any, Any, TakenBatch]:
        return _taken(self._taker, self._new_explaining(), at_least=at_least, idle_s=idle_s, stop=stop)


async def _taken(
    taker: BatchTaker, explaining: BatchExplainer, *, at_least: int, idle_s: float, stop: asyncio.Event
) -> TakenBatch:
    hand = await taker.take(at_least=at_least, idle_s=idle_s, stop=stop, on_delivery=explaining.explain_early)
    return TakenBatch(hand, explaining)


async def _give_back(task: asyncio.Task[TakenBatch]) -> None:
    await asyncio.wait({task}, timeout=_DROP_S_MAX)  # soon: it is closed when it is full, or after a moment
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled() or isinstance(task.exception(), RedriveError):
        return  # the channel is closed, and all of it back in the queue
    await task.result().hand.give_back()
