"""Deciding by their contents which dead letters answer a filter: off the event loop, and within bounds.

A body may be large and a filter may ask for much of it. So contents are looked into by one thread for the whole
process, a piece at a time for whoever waits. What is small the thread does itself, as long as that is little in all;
the rest it gives to a process of its own (`filter_process`), because a thread that computes holds Python's lock, and
the event loop waits for that nearly as if it computed itself. Work is counted (`checking.look_into`), and what would
take too long is refused: a part of an answer must never pass for all of it.
"""

import asyncio
import atexit
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import takewhile
from weakref import WeakKeyDictionary

from redrive.records import BodyTerm, Filter, HeaderTerm, MessageContent
from redrive.stores.checking import Check, Limits, Looked, look_into
from redrive.stores.database import Database
from redrive.stores.errors import FilterTooExpensive
from redrive.stores.filter_process import FilterProcess, ProcessDied

PIECE_COST = 20_000_000
"""Work after which others have their turn, in bytes read; some 30 ms."""
LETTER_COST_MAX = 300_000_000
"""More for one dead letter is too much; about a second."""
HERE_BYTES_MAX = 64_000
"""A larger content is never looked into in this process."""
HERE_PIECE_COST = 2_000_000
HERE_COST_MAX = 40_000_000
"""What is looked into in this process may cost so much: some 60 ms, or 10,000 small letters. To start the other process
takes half a second, and few filters need it."""
HERE_COST_PER_S = 20_000_000
"""And then so much in a second, 3 % of the time."""

_SWITCH_S = 0.0003
"""After so long whoever waits for Python's lock gets it; of itself Python takes 5 ms. What others do takes the lock
several times, and waits as long for it each time. To sleep instead would work too, but on a busy machine a thread that
sleeps for a moment is away for many."""
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-filter")
_PROCESS = FilterProcess()
atexit.register(_PROCESS.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long something may take that must be answered as a whole, and how many bytes of contents it may read."""

    seconds: float
    content_bytes: int


LOOKING = Budget(seconds=10.0, content_bytes=1 << 30)
"""For whoever counts or looks at what would be."""
SELECTING = Budget(seconds=300.0, content_bytes=64 << 30)
"""For whoever changes or sends dead letters."""

_TURNS: "WeakKeyDictionary[Database, dict[Budget, asyncio.Semaphore]]" = WeakKeyDictionary()


def is_dear(filter: Filter | None) -> bool:
    """Whether contents must be looked into."""
    return filter is not None and any(isinstance(term, BodyTerm | HeaderTerm) for term in filter.terms)


@asynccontextmanager
async def within(budget: Budget, database: Database, *filters: Filter | None) -> AsyncIterator[None]:
    """A block that answers filters as a whole, in time. Those that look into contents take turns, before they take a
    connection: they all wait for one thread, and nobody else should wait for their connections.

    Raises FilterTooExpensive.
    """
    try:
        async with asyncio.timeout(budget.seconds) as limit:
            if not any(map(is_dear, filters)):
                yield
                return
            turns = _TURNS.setdefault(database, {})
            async with turns.setdefault(budget, asyncio.Semaphore(1)):
                yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FilterTooExpensive(f"it takes longer than {budget.seconds:g} s to answer") from None


async def evaluate(contents: Sequence[MessageContent | None], checks: tuple[Check, ...]) -> tuple[list[bool], int]:
    """Which of the first contents pass, as many as make a piece of work, at least one; and what they cost. Where there
    is none nothing passes. Raises FilterTooExpensive."""
    asked = _Asked()
    try:
        loop = asyncio.get_running_loop()
        looked = await loop.run_in_executor(_THREAD, _evaluate, contents, checks, asked.is_over)
    except BaseException:
        asked.has_ended = True
        raise
    return looked.answers, looked.cost


class _Asked:
    def __init__(self) -> None:
        self.has_ended = False

    def is_over(self) -> bool:
        return self.has_ended


class Allowance:
    """Work that may be done in this process: so much at once, and so much more in each second."""

    def __init__(self, cost_max: int, cost_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._cost_max = cost_max
        self._cost_per_s = cost_per_s
        self._clock = clock
        self._left = float(cost_max)
        self._at_s = clock()

    def has_left(self) -> bool:
        """Whether anything may be done here now."""
        now_s = self._clock()
        self._left = min(self._cost_max, self._left + (now_s - self._at_s) * self._cost_per_s)
        self._at_s = now_s
        return self._left > 0

    def take(self, cost: int) -> None:
        """So much was done. More than was left is owed."""
        self._left -= cost


_ALLOWANCE = Allowance(HERE_COST_MAX, HERE_COST_PER_S)


def _evaluate(
    contents: Sequence[MessageContent | None], checks: tuple[Check, ...], is_over: Callable[[], bool]
) -> Looked:
    """In the thread."""
    if _is_small(contents[0]) and _ALLOWANCE.has_left():
        small = list(takewhile(_is_small, contents))
        limits = Limits(piece_cost=HERE_PIECE_COST, letter_cost=min(HERE_PIECE_COST, LETTER_COST_MAX))
        looked = _look_here(small, checks, limits, is_over)
        _ALLOWANCE.take(looked.cost)
        if looked.answers:
            return looked
    limits = Limits(piece_cost=PIECE_COST, letter_cost=LETTER_COST_MAX)
    try:
        looked = _PROCESS.look_into(contents, checks, limits, is_over)
    except ProcessDied:
        raise FilterTooExpensive("the process that looks into dead letters has died of it") from None
    except MemoryError:
        raise FilterTooExpensive("it takes too much memory to look into one dead letter") from None
    except OSError:
        # There can be no process: no more of them are allowed, or there is no interpreter to run.
        looked = _look_here(contents, checks, limits, is_over)
    if looked.is_letter_too_dear:
        raise FilterTooExpensive("it looks at too many values of one dead letter")
    return looked


def _is_small(content: MessageContent | None) -> bool:
    return content is None or len(content.body) + len(content.properties) <= HERE_BYTES_MAX


def _look_here(
    contents: Sequence[MessageContent | None], checks: tuple[Check, ...], limits: Limits, is_over: Callable[[], bool]
) -> Looked:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return look_into(contents, checks, limits, is_over)
    finally:
        sys.setswitchinterval(before_s)
