"""Deciding by their contents which dead letters answer a filter: off the event loop, and within bounds.

A body may be large and a filter may ask for much of it. So contents are looked into by one thread for the whole
process, a piece at a time for whoever waits; and it lets go of Python's lock sooner than usual, since a thread that
computes holds up the event loop nearly as a loop that computes does. Work is counted (`Meter`), and what would take too
long is refused: a part of an answer must never pass for all of it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from redrive.records import BodyPath, Content, Filter, HeaderIs
from redrive.stores.checking import Check, passes
from redrive.stores.database import Database
from redrive.stores.errors import FilterTooDear
from redrive.stores.opening import opened
from redrive.wire import may_be_envelope

PIECE_COST = 20_000_000
"""Work after which others have their turn, in bytes read; some 30 ms."""
LETTER_COST_MAX = 300_000_000
"""More for one dead letter is too much; about a second."""
CONTENT_COST = 4_000
"""What it costs to look at any content, however small."""

_SLICE_COST = 200_000
_SWITCH_S = 0.0003
"""After so long whoever waits for Python's lock gets it; of itself Python takes 5 ms. What others do takes the lock
several times, and waits as long for it each time. To sleep instead would work too, but on a busy machine a thread that
sleeps for a moment is away for many."""
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-filter")


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
    return filter is not None and any(isinstance(term, BodyPath | HeaderIs) for term in filter.terms)


@asynccontextmanager
async def within(budget: Budget, database: Database, *filters: Filter | None) -> AsyncIterator[None]:
    """A block that answers filters as a whole, in time. Those that look into contents take turns, before they take a
    connection: they all wait for one thread, and nobody else should wait for their connections. Raises FilterTooDear.
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
        raise FilterTooDear(f"it takes longer than {budget.seconds:g} s to answer") from None


async def evaluate(contents: Sequence[Content | None], checks: tuple[Check, ...]) -> tuple[list[bool], int]:
    """Which of the first contents pass, as many as make a piece of work, at least one; and what they cost. Where there
    is none nothing passes. Raises FilterTooDear."""
    meter = _Meter()
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_THREAD, _evaluate, contents, checks, meter)
    except BaseException:
        meter.is_over = True
        raise


class _Over(Exception):
    """Nobody waits for the answer any more."""


class _Meter:
    def __init__(self) -> None:
        self.spent = 0
        self.is_over = False
        self._of_letter = 0
        self._of_slice = 0

    def begin_letter(self) -> None:
        self._of_letter = 0

    def spend(self, cost: int) -> None:
        self.spent += cost
        self._of_letter += cost
        self._of_slice += cost
        if self._of_letter > LETTER_COST_MAX:
            raise FilterTooDear("it looks at too many values of one dead letter")
        if self._of_slice >= _SLICE_COST:
            self._of_slice = 0
            if self.is_over:
                raise _Over


def _evaluate(contents: Iterable[Content | None], checks: tuple[Check, ...], meter: _Meter) -> tuple[list[bool], int]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return _look_into(contents, checks, meter)
    finally:
        sys.setswitchinterval(before_s)


def _look_into(contents: Iterable[Content | None], checks: tuple[Check, ...], meter: _Meter) -> tuple[list[bool], int]:
    answers: list[bool] = []
    for content in contents:
        meter.begin_letter()
        if content is not None:
            # Reading what is written there comes first: headers are decoded as a whole.
            meter.spend(CONTENT_COST + len(content.properties))
            if may_be_envelope(content.properties):
                content = opened(content)
                meter.spend(len(content.properties))
        answers.append(content is not None and passes(content, checks, meter))
        if meter.spent >= PIECE_COST:
            break
    return answers, meter.spent
