"""The process that looks into contents answers as this one would, gives way, and is gone when its parent is."""

import asyncio
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from redrive.records import BodyTerm, HeaderTerm, MessageContent
from redrive.stores import FilterTooExpensive
from redrive.stores.search import filter_process
from redrive.stores.search import offload as offload
from redrive.stores.search.content_checks import Check, CheckCancelled, CheckLimits, check_contents
from redrive.stores.search.filter_process import MEMORY_BYTES_MAX, NICE, FilterProcess, ProcessDied
from redrive.stores.search.offload import Allowance, check_contents_offloaded
from redrive.wire import Properties
from tests.unit.stores.expensive_checks import ENDLESS, EXPENSIVE, LARGE

LIMITS = CheckLimits(piece_cost=offload.PIECE_COST, letter_cost=offload.LETTER_COST_MAX)
SMALL_CHECK: tuple[Check, ...] = (BodyTerm(path=("order",), value="7"),)


@pytest.fixture
def process() -> Iterator[FilterProcess]:
    """One of its own, ended afterwards."""
    made = FilterProcess()
    yield made
    made.close()


@pytest.fixture
def own(process: FilterProcess, monkeypatch: pytest.MonkeyPatch) -> FilterProcess:
    """The process that `check_contents_offloaded` uses, not started yet, and everything allowed here that may be."""
    monkeypatch.setattr(offload, "_PROCESS", process)
    allow(monkeypatch, offload.HERE_COST_MAX)
    return process


def allow(monkeypatch: pytest.MonkeyPatch, cost: int) -> None:
    monkeypatch.setattr(offload, "_ALLOWANCE", Allowance(cost, 0))


def small(order: int) -> MessageContent:
    return MessageContent(properties=b"", body=json.dumps({"order": order}).encode())


def never() -> bool:
    return False


def ended(pid: int, within_s: float = 20.0) -> Callable[[], bool]:
    """Whether the process ends in time; to be asked for while it lives."""
    watched = os.pidfd_open(pid)

    def has_ended() -> bool:
        try:
            return bool(select.select([watched], [], [], within_s)[0])
        finally:
            os.close(watched)

    return has_ended


def test_it_answers_what_this_process_would(process: FilterProcess) -> None:
    headers = Properties.of(headers={"shop": "north"}).raw
    contents = [
        small(7),
        None,
        MessageContent(properties=headers, body=b'{"order": 7}'),
        MessageContent(properties=b"\xff\xff", body=b"\xff"),
        LARGE,
        small(8),
    ]
    questions: list[tuple[Check, ...]] = [
        SMALL_CHECK,
        (HeaderTerm(name="shop", value="n*"),),
        (BodyTerm(path=("a", "*", "1"), value="v19999"),),
        (BodyTerm(path=("order",), value="7", negated=True), HeaderTerm(name="shop", value="x", negated=True)),
        (),
    ]
    for checks in questions:
        assert process.check_contents(contents, checks, ENDLESS, never) == check_contents(
            contents, checks, ENDLESS, never
        )


def test_a_piece_ends_with_the_letter_that_makes_it_one() -> None:
    contents, limits = [small(7)] * 5, CheckLimits(piece_cost=1, letter_cost=1 << 60)
    one = check_contents(contents, SMALL_CHECK, limits, never)
    assert one.answers == [True]
    three = check_contents(contents, SMALL_CHECK, CheckLimits(piece_cost=3 * one.cost, letter_cost=1 << 60), never)
    assert three.answers == [True] * 3


@pytest.mark.slow
def test_a_piece_ends_where_it_would_here(process: FilterProcess) -> None:
    contents = [LARGE] * 4
    checks: tuple[Check, ...] = (BodyTerm(path=("a", "*", "1"), value="v5"),)
    here = check_contents(contents, checks, LIMITS, never)
    assert 0 < len(here.answers) < 4
    assert process.check_contents(contents, checks, LIMITS, never) == here


@pytest.mark.slow
def test_a_letter_that_is_too_dear_is_so_there_too(process: FilterProcess) -> None:
    limits = CheckLimits(piece_cost=1 << 60, letter_cost=1_000_000)
    looked = process.check_contents([small(7), LARGE, small(7)], SMALL_CHECK, limits, never)
    assert (looked.answers, looked.is_letter_too_expensive) == ([True, False, True], False)
    looked = process.check_contents([small(7), LARGE, small(7)], EXPENSIVE, limits, never)
    assert (looked.answers, looked.is_letter_too_expensive) == ([True], True)


@pytest.mark.slow
def test_it_gives_way_and_its_memory_is_bounded(process: FilterProcess) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    assert process.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE)
    assert resource.prlimit(process.pid, resource.RLIMIT_AS)[0] == MEMORY_BYTES_MAX


@pytest.mark.slow
def test_what_needs_more_memory_is_told_and_the_next_request_answered(process: FilterProcess) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    assert process.pid is not None
    pid = process.pid
    resource.prlimit(pid, resource.RLIMIT_AS, (80 << 20, MEMORY_BYTES_MAX))
    values = MessageContent(properties=b"", body=b"[" + b"1," * 1_900_000 + b"1]")
    with pytest.raises(MemoryError):
        process.check_contents([values], (BodyTerm(path=("0",), value="1"),), LIMITS, never)
    assert process.check_contents([small(7)], SMALL_CHECK, LIMITS, never).answers == [True]
    assert process.pid == pid


@pytest.mark.slow
def test_work_that_nobody_waits_for_ends_and_the_process_stays(process: FilterProcess) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    pid = process.pid
    for _ in range(3):
        with pytest.raises(CheckCancelled):
            process.check_contents([LARGE] * 10_000, EXPENSIVE, ENDLESS, lambda: True)
        assert process.check_contents([small(7), small(8)], SMALL_CHECK, LIMITS, never).answers == [True, False]
    assert process.pid == pid


@pytest.mark.slow
def test_one_that_was_killed_is_started_again(process: FilterProcess) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    assert process.pid is not None
    before = process.pid
    has_ended = ended(before)
    os.kill(before, signal.SIGKILL)
    assert has_ended()
    assert process.check_contents([small(7)], SMALL_CHECK, LIMITS, never).answers == [True]
    assert process.pid != before


@pytest.mark.slow
def test_one_that_dies_of_a_request_twice_is_not_started_a_third_time(process: FilterProcess) -> None:
    killed = []

    def kill_it() -> bool:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        killed.append(process.pid)
        return False

    with pytest.raises(ProcessDied):
        process.check_contents([LARGE] * 10_000, EXPENSIVE, ENDLESS, kill_it)
    assert len(set(killed)) == 2
    assert process.pid is None
    assert process.check_contents([small(7)], SMALL_CHECK, LIMITS, never).answers == [True]


@pytest.mark.slow
def test_a_process_that_hangs_is_ended(process: FilterProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    assert process.pid is not None
    monkeypatch.setattr(filter_process, "REPLY_S_MAX", 0.1)
    monkeypatch.setattr(filter_process, "END_S_MAX", 0.1)
    has_ended = ended(process.pid)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(CheckCancelled):
        process.check_contents([small(7)], SMALL_CHECK, LIMITS, lambda: True)
    assert has_ended()
    monkeypatch.undo()
    assert process.check_contents([small(7)], SMALL_CHECK, LIMITS, never).answers == [True]


@pytest.mark.slow
def test_it_ends_when_it_is_closed(process: FilterProcess) -> None:
    process.check_contents([small(7)], SMALL_CHECK, LIMITS, never)
    assert process.pid is not None
    pid = process.pid
    process.close()
    assert process.pid is None
    with pytest.raises(ProcessLookupError):  # not even a zombie
        os.kill(pid, 0)


PARENT = """
import json, sys
from redrive.stores.search.filter_process import FilterProcess
from tests.unit.stores.expensive_checks import ENDLESS, EXPENSIVE, LARGE
process = FilterProcess()
told = []
def is_over():
    if not told:
        told.append(True)
        print(process.pid, flush=True)
    return False
process.check_contents([LARGE] * 10_000, EXPENSIVE, ENDLESS, is_over)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind_when_its_parent_ends_in_the_middle(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        has_ended = ended(pid)
        parent.send_signal(number)
        parent.wait(30)
        assert has_ended()


def test_few_small_letters_need_no_process(own: FilterProcess) -> None:
    contents = [small(n) for n in range(2_000)]

    async def scenario() -> list[bool]:
        found: list[bool] = []
        while len(found) < len(contents):
            answers, cost = await check_contents_offloaded(contents[len(found) :], SMALL_CHECK)
            assert answers
            assert cost > 0
            found += answers
        return found

    assert asyncio.run(scenario()) == [n == 7 for n in range(2_000)]
    assert own.pid is None


@pytest.mark.slow
def test_what_is_more_than_is_allowed_here_goes_to_the_process(
    own: FilterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, 100_000)
    contents = [small(n) for n in range(2_000)]

    async def scenario() -> None:
        first, _ = await check_contents_offloaded(contents, SMALL_CHECK)
        assert own.pid is None
        second, _ = await check_contents_offloaded(contents[len(first) :], SMALL_CHECK)
        assert own.pid is not None
        assert first + second == [n == 7 for n in range(len(first) + len(second))]

    asyncio.run(scenario())


def test_an_allowance_comes_back_with_time_up_to_its_most() -> None:
    now = [0.0]
    allowance = Allowance(100, 10, clock=lambda: now[0])
    allowance.take(130)
    assert not allowance.has_left()
    now[0] = 2.9
    assert not allowance.has_left()
    now[0] = 3.1
    assert allowance.has_left()
    now[0] = 1_000.0
    assert allowance.has_left()
    allowance.take(100)
    assert not allowance.has_left()


@pytest.mark.slow
def test_a_dear_filter_takes_no_time_of_this_process(own: FilterProcess) -> None:
    """It took all of it, and Python's lock with it."""

    async def scenario() -> None:
        await check_contents_offloaded([LARGE], SMALL_CHECK)  # starts it
        began_s = time.process_time()
        answers, cost = await check_contents_offloaded([LARGE] * 20, EXPENSIVE)
        assert answers
        assert cost >= offload.PIECE_COST
        assert time.process_time() - began_s < 0.03

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_small_letter_that_is_dear_goes_to_the_process(own: FilterProcess) -> None:
    content = MessageContent(properties=b"", body=b'{"a": [' + b"1," * 30_000 + b"2]}")

    async def scenario() -> None:
        answers, _ = await check_contents_offloaded([content], (BodyTerm(path=("a", "*"), value="2"),))
        assert answers == [True]
        assert own.pid is not None

    asyncio.run(scenario())


def test_without_a_process_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "_PROCESS", FilterProcess(python="/nowhere/python"))

    async def scenario() -> None:
        answers, _ = await check_contents_offloaded([LARGE], (BodyTerm(path=("a", "*", "1"), value="v19999"),))
        assert answers == [True]
        monkeypatch.setattr(offload, "LETTER_COST_MAX", 1_000_000)
        with pytest.raises(FilterTooExpensive, match="too many values"):
            await check_contents_offloaded([LARGE], EXPENSIVE)

    asyncio.run(scenario())


@pytest.mark.parametrize(("error", "reason"), [(ProcessDied(), "died of it"), (MemoryError(), "too much memory")])
def test_what_ends_the_process_or_its_memory_is_refused(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise error

    monkeypatch.setattr(FilterProcess, "check_contents", end)
    with pytest.raises(FilterTooExpensive, match=reason):
        asyncio.run(check_contents_offloaded([LARGE], EXPENSIVE))
