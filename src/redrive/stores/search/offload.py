"""Checks the contents of dead letters against a filter, off the event loop.

A body may be large, and a filter may ask for much of it. So one thread of the process checks contents, a piece at a
time for each caller. It checks small contents itself, as long as that is little work in all. It gives the rest to
another process (`filter_process`): a thread that computes holds Python's lock, and the event loop waits for that nearly
as if it computed itself. Work is counted (`content_checks.check_contents`), and what would take too long is
refused: a part of an answer must never pass for all of it.
"""

import asyncio
import atexit
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

from redrive.records import MessageContent
from redrive.stores.errors import FilterTooExpensive
from redrive.stores.search.content_checks import Check, CheckLimits, CheckResult, check_contents
from redrive.stores.search.filter_process import FilterProcess, ProcessDied

PIECE_COST = 20_000_000
"""Work after which other callers get their turn, in bytes read; some 30 ms."""
LETTER_COST_MAX = 300_000_000
"""More for one dead letter is too much; about a second."""
HERE_BYTES_MAX = 64_000
"""A larger content is never checked in this process."""
HERE_PIECE_COST = 2_000_000
HERE_COST_MAX = 40_000_000
"""What this process may spend on checks at first: some 60 ms, or 10,000 small letters. To start the other process takes
half a second, and few filters need it."""
HERE_COST_PER_S = 20_000_000
"""And what it may spend in each second after that: 3 % of the time."""

_SWITCH_S = 0.0003
"""How long the thread may keep Python's lock while another thread waits for it; Python's default is
5 ms. Other code takes the lock several times, and waits as long for it each time. To sleep instead would work too, but
on a busy machine a thread that sleeps for a moment is away for many."""
_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-filter")
_PROCESS = FilterProcess()
atexit.register(_PROCESS.close)


async def check_contents_offloaded(
    contents: Sequence[MessageContent | None], checks: tuple[Check, ...]
) -> tuple[list[bool], int]:
    """Whether each of the first contents passes, as many as make a piece of work, at least one; and what they cost. A
    missing content does not pass. Raises FilterTooExpensive."""
    asked = _Asked()
    try:
        loop = asyncio.get_running_loop()
        looked = await loop.run_in_executor(_THREAD, _check_in_thread, contents, checks, asked.is_over)
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
        """So much was done. What exceeds the allowance is owed."""
        self._left -= cost


_ALLOWANCE = Allowance(HERE_COST_MAX, HERE_COST_PER_S)


def _check_in_thread(
    contents: Sequence[MessageContent | None], checks: tuple[Check, ...], is_over: Callable[[], bool]
) -> CheckResult:
    """Runs in the thread."""
    if _is_small(contents[0]) and _ALLOWANCE.has_left():
        small = list(takewhile(_is_small, contents))
        limits = CheckLimits(piece_cost=HERE_PIECE_COST, letter_cost=min(HERE_PIECE_COST, LETTER_COST_MAX))
        looked = _check_here(small, checks, limits, is_over)
        _ALLOWANCE.take(looked.cost)
        if looked.answers:
            return looked
    limits = CheckLimits(piece_cost=PIECE_COST, letter_cost=LETTER_COST_MAX)
    try:
        looked = _PROCESS.check_contents(contents, checks, limits, is_over)
    except ProcessDied:
        raise FilterTooExpensive("the process that looks into dead letters died of it") from None
    except MemoryError:
        raise FilterTooExpensive("it takes too much memory to look into one dead letter") from None
    except OSError:
        # No process can be started: no more of them are allowed, or there is no interpreter to run.
        looked = _check_here(contents, checks, limits, is_over)
    if looked.is_letter_too_expensive:
        raise FilterTooExpensive("it looks at too many values of one dead letter")
    return looked


def _is_small(content: MessageContent | None) -> bool:
    return content is None or len(content.body) + len(content.properties) <= HERE_BYTES_MAX


def _check_here(
    contents: Sequence[MessageContent | None],
    checks: tuple[Check, ...],
    limits: CheckLimits,
    is_over: Callable[[], bool],
) -> CheckResult:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        return check_contents(contents, checks, limits, is_over)
    finally:
        sys.setswitchinterval(before_s)
