"""The decision table: every outcome has one answer, budgets hold, delays are what was asked for."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import (
    DELAY_MS_MAX,
    PAUSE_MS_MAX,
    Answered,
    Crashed,
    Decision,
    Done,
    Fixed,
    Listed,
    Outcome,
    Park,
    Parked,
    ParkReason,
    Raised,
    Requeue,
    Requeued,
    Retry,
    RetryAfter,
    RetryPolicy,
    Rule,
    Signal,
    Situation,
    Succeeded,
    TimedOut,
    Undecodable,
    decide,
)
from redrive.core import decision_table as deciding
from redrive.core.decision_table import BUDGETS, TABLE
from tests.unit.core.strategies import NOW_MS, outcomes, policies, situations

LADDER = RetryPolicy(attempts_max=4, backoff=Listed(["30s", "5m", "30m"]))
FAILURES: list[Outcome] = [Raised(ValueError("no")), TimedOut(after_ms=5), Answered(status=503)]


def at(retries: int = 0, *, age_ms: int | None = None, draw: float = 0.0) -> Situation:
    return Situation(retries=retries, now_ms=NOW_MS, age_ms=age_ms, draw=draw)


def retry(delay_ms: int) -> Retry:
    return Retry(delay_ms=delay_ms, not_before_ms=NOW_MS + delay_ms)


@given(outcomes, situations, policies)
def test_every_outcome_in_every_situation_under_every_policy_has_one_bounded_answer(
    outcome: Outcome, situation: Situation, policy: RetryPolicy
) -> None:
    decision = decide(outcome, situation, policy)
    assert decide(outcome, situation, policy) == decision
    match decision:
        case Retry(delay_ms=delay_ms, not_before_ms=not_before_ms):
            assert type(delay_ms) is int
            assert 0 <= delay_ms <= DELAY_MS_MAX
            assert not_before_ms == situation.now_ms + delay_ms
        case Requeued(pause_ms=pause_ms):
            assert 0 <= pause_ms <= PAUSE_MS_MAX
        case Parked(reason=reason):
            assert reason in ParkReason
        case _:
            assert decision == Done()


@given(outcomes, situations, policies)
def test_only_a_run_that_went_well_or_a_rule_or_the_authors_own_function_acks(
    outcome: Outcome, situation: Situation, policy: RetryPolicy
) -> None:
    if decide(outcome, situation, replace(policy, rules=(), own=None)) == Done():
        assert isinstance(outcome, Succeeded) or (isinstance(outcome, Answered) and 200 <= outcome.status <= 299)


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize("attempts_max", [1, 2, 3, 4, 11])
def test_a_message_that_always_fails_is_run_exactly_attempts_max_times(outcome: Outcome, attempts_max: int) -> None:
    policy = replace(LADDER, attempts_max=attempts_max)
    decisions = [decide(outcome, at(retries), policy) for retries in range(attempts_max)]
    assert [type(decision) for decision in decisions[:-1]] == [Retry] * (attempts_max - 1)
    assert decisions[-1] == Parked(reason=ParkReason.ATTEMPTS)


def test_the_ladder_waits_as_listed_and_then_parks() -> None:
    decisions = [decide(Raised(ValueError()), at(retries), LADDER) for retries in range(5)]
    parked = Parked(reason=ParkReason.ATTEMPTS)
    assert decisions == [retry(30_000), retry(300_000), retry(1_800_000), parked, parked]


STATUSES: list[tuple[int, Decision]] = [
    (200, Done()),
    (204, Done()),
    (299, Done()),
    (100, retry(30_000)),
    (199, retry(30_000)),
    (301, retry(30_000)),
    (399, retry(30_000)),
    (400, Parked(reason=ParkReason.STATUS)),
    (404, Parked(reason=ParkReason.STATUS)),
    (408, retry(30_000)),
    (409, retry(30_000)),
    (422, Parked(reason=ParkReason.STATUS)),
    (425, Requeued(pause_ms=500)),
    (429, retry(30_000)),
    (499, Parked(reason=ParkReason.STATUS)),
    (500, retry(30_000)),
    (599, retry(30_000)),
    (600, retry(30_000)),
    (0, retry(30_000)),
    (-1, retry(30_000)),
]


@pytest.mark.parametrize(("status", "decision"), STATUSES)
def test_a_status_means_what_the_document_says(status: int, decision: Decision) -> None:
    assert decide(Answered(status=status), at(), LADDER) == decision


@pytest.mark.parametrize("status", [400, 404, 410, 422, 499])
def test_other_4xx_retry_where_the_policy_says_so(status: int) -> None:
    assert decide(Answered(status=status), at(), replace(LADDER, other_4xx="retry")) == retry(30_000)


@pytest.mark.parametrize("outcome", [Answered(status=425), Raised(Requeue())])
def test_giving_back_never_counts_and_pauses_half_a_second_to_one_and_a_half(outcome: Outcome) -> None:
    pauses = [decide(outcome, at(1_000, age_ms=10**12, draw=draw), LADDER) for draw in (0.0, 0.5, 0.999)]
    assert pauses == [Requeued(pause_ms=500), Requeued(pause_ms=1_000), Requeued(pause_ms=1_499)]


@pytest.mark.parametrize(("asked", "pause_ms"), [("2s", 2_000), (0, 0), ("10m", 60_000)])
def test_a_pause_that_was_asked_for_is_kept_but_bounded(asked: str | float, pause_ms: int) -> None:
    assert decide(Raised(Requeue(asked)), at(draw=0.7), LADDER) == Requeued(pause_ms=pause_ms)


def test_the_three_signals_and_the_two_that_never_ran() -> None:
    assert decide(Raised(Park("bad")), at(), LADDER) == Parked(reason=ParkReason.ASKED)
    assert decide(Raised(RetryAfter("2m")), at(), LADDER) == retry(120_000)
    assert decide(Undecodable(ValueError()), at(), LADDER) == Parked(reason=ParkReason.UNDECODABLE)
    assert decide(Crashed(deliveries=3), at(), LADDER) == Parked(reason=ParkReason.CRASHES)


@pytest.mark.parametrize(
    ("signal", "said"),
    [
        (Park("no such order"), "no such order"),
        (Park(reason="no such order"), "no such order"),
        (Park(), "parked by the handler"),
        (RetryAfter("2m", reason="rate limit"), "rate limit"),
        (RetryAfter("2m"), "again after 120 s"),
        (Requeue(reason="shutting down"), "shutting down"),
        (Requeue(), "requeued by the handler"),
    ],
)
def test_a_signal_says_its_reason_wherever_it_is_logged(signal: Exception, said: str) -> None:
    assert str(signal) == said


def test_retry_after_counts_as_an_attempt_and_is_never_jittered() -> None:
    jittered = replace(LADDER, jitter=1.0)
    assert decide(Raised(RetryAfter("2m")), at(2, draw=0.9), jittered) == retry(120_000)
    assert decide(Raised(RetryAfter("2m")), at(3), LADDER) == Parked(reason=ParkReason.ATTEMPTS)


@given(
    delay_ms=st.integers(0, DELAY_MS_MAX),
    jitter=st.floats(0, 1),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_jitter_only_shortens_and_by_no_more_than_its_part(delay_ms: int, jitter: float, draw: float) -> None:
    policy = RetryPolicy(attempts_max=2, backoff=Fixed(f"{delay_ms}ms"), jitter=jitter)
    decision = decide(Raised(ValueError()), at(draw=draw), policy)
    assert isinstance(decision, Retry)
    assert (1 - jitter) * delay_ms - 1e-6 * delay_ms <= decision.delay_ms <= delay_ms


def test_jitter_spreads() -> None:
    policy = RetryPolicy(attempts_max=2, backoff=Fixed("10s"), jitter=0.5)
    delays = [decide(Raised(ValueError()), at(draw=draw), policy) for draw in (0.0, 0.5, 0.999)]
    assert delays == [retry(10_000), retry(7_500), retry(5_005)]


@given(st.sampled_from([429, 503, 409, 302]), st.integers(0, 10**15), st.floats(0, 1, exclude_max=True))
def test_the_wait_is_at_least_what_retry_after_said(status: int, retry_after_ms: int, draw: float) -> None:
    policy = replace(LADDER, jitter=1.0)
    decision = decide(Answered(status=status, retry_after_ms=retry_after_ms), at(draw=draw), policy)
    assert isinstance(decision, Retry)
    assert decision.delay_ms >= min(retry_after_ms, DELAY_MS_MAX)
    assert decision.delay_ms <= min(max(retry_after_ms, 30_000), DELAY_MS_MAX)


def test_a_short_retry_after_does_not_shorten_the_backoff() -> None:
    assert decide(Answered(status=429, retry_after_ms=1_000), at(1), LADDER) == retry(300_000)


@pytest.mark.parametrize(
    ("age_ms", "decision"),
    [
        (None, retry(30_000)),
        (0, retry(30_000)),
        (70_000, retry(30_000)),
        (70_001, Parked(reason=ParkReason.AGE)),
        (100_001, Parked(reason=ParkReason.AGE)),
    ],
)
def test_a_message_that_would_be_too_old_by_then_is_parked_now(age_ms: int | None, decision: Decision) -> None:
    policy = replace(LADDER, age_ms_max=100_000)
    assert decide(Raised(ValueError()), at(age_ms=age_ms), policy) == decision
    assert decide(Succeeded(), at(age_ms=age_ms), policy) == Done()


class Slow(Exception):
    """An error of the handler's."""


class Slower(Slow):
    """A subclass of it."""


RULES = (
    Rule(KeyError, "park"),
    Rule((Slow, 503), "retry", backoff=Fixed("1h"), attempts_max=2),
    Rule([404, range(420, 425)], "ack"),
    Rule(TimeoutError, "requeue"),
    Rule(range(500, 600), "park"),
)


@pytest.mark.parametrize(
    ("outcome", "retries", "decision"),
    [
        (Raised(KeyError("k")), 0, Parked(reason=ParkReason.PERMANENT)),
        (Raised(Slower()), 0, retry(3_600_000)),
        (Raised(Slower()), 1, Parked(reason=ParkReason.ATTEMPTS)),
        (Answered(status=503), 0, retry(3_600_000)),
        (Answered(status=503, retry_after_ms=7_200_000), 0, retry(7_200_000)),
        (Answered(status=504), 0, Parked(reason=ParkReason.STATUS)),
        (Answered(status=504, error=Slow()), 0, retry(3_600_000)),
        (Answered(status=404), 9, Done()),
        (Answered(status=424), 0, Done()),
        (Answered(status=425), 0, Requeued(pause_ms=500)),
        (TimedOut(after_ms=5), 9, Requeued(pause_ms=500)),
        (Raised(ValueError()), 1, retry(300_000)),
        (Undecodable(KeyError("k")), 0, Parked(reason=ParkReason.UNDECODABLE)),
    ],
)
def test_the_first_rule_that_matches_counts(outcome: Outcome, retries: int, decision: Decision) -> None:
    assert decide(outcome, at(retries), replace(LADDER, rules=RULES)) == decision


def test_rules_have_no_say_over_what_the_handler_asked_for() -> None:
    policy = replace(LADDER, rules=(Rule(Exception, "ack"), Rule(Signal, "ack")))
    assert decide(Raised(Park()), at(), policy) == Parked(reason=ParkReason.ASKED)
    assert decide(Raised(RetryAfter(5)), at(), policy) == retry(5_000)
    assert decide(Raised(Requeue(1)), at(), policy) == Requeued(pause_ms=1_000)


def test_the_authors_own_function_is_asked_first_and_may_leave_it_to_the_rest() -> None:
    def own(outcome: Outcome, situation: Situation) -> Decision | None:
        return Parked(reason=ParkReason.PERMANENT) if situation.retries == 1 else None

    policy = replace(LADDER, own=own, rules=(Rule(Exception, "ack"),))
    assert decide(Raised(Park()), at(1), policy) == Parked(reason=ParkReason.PERMANENT)
    assert decide(Raised(ValueError()), at(0), policy) == Done()


def _broken(*_: Any) -> Any:
    raise RuntimeError("the author's mistake")


@pytest.mark.parametrize("own", [_broken, lambda *_: "retry", lambda *_: True])
def test_an_own_function_that_fails_or_says_nonsense_has_not_answered(own: Any) -> None:
    assert decide(Raised(ValueError()), at(), replace(LADDER, own=own)) == retry(30_000)


class BrokenBackoff:
    """A backoff of the author's own."""

    def __init__(self, says: Any) -> None:
        self._says = says

    def delay_ms(self, retry: int, /) -> Any:
        """Not what it should."""
        return self._says()


@pytest.mark.parametrize(
    ("says", "delay_ms"),
    [
        (_broken, 30_000),
        (lambda: None, 30_000),
        (lambda: float("nan"), 30_000),
        (lambda: -5, 0),
        (lambda: 1.5e3, 1_500),
    ],
)
def test_a_backoff_that_fails_costs_no_message_its_decision(says: Any, delay_ms: int) -> None:
    assert decide(Raised(ValueError()), at(), replace(LADDER, backoff=BrokenBackoff(says))) == retry(delay_ms)


def test_the_docstring_draws_the_table_that_is_obeyed() -> None:
    drawn = deciding.__doc__ or ""
    lines = [" ".join(line.split()) for line in drawn.splitlines()]
    rows = [" ".join((row.outcome, row.condition, row.consequence)) for row in TABLE]
    start = lines.index("outcome when then") + 1
    assert lines[start : start + len(rows)] == rows
    budgets = [f"{one.condition} Parked({one.reason})" for one in BUDGETS]
    assert [line for line in lines if line in budgets] == budgets


def test_every_row_of_the_table_is_reached() -> None:
    own = replace(LADDER, own=lambda *_: Done())
    ruled = {then: replace(LADDER, rules=(Rule(ValueError, then),)) for then in ("ack", "requeue", "park", "retry")}
    cases: list[tuple[Outcome, RetryPolicy]] = [
        (Succeeded(), own),
        (Crashed(deliveries=1), LADDER),
        (Undecodable(ValueError()), LADDER),
        (Raised(Park()), LADDER),
        (Raised(Requeue()), LADDER),
        (Raised(RetryAfter(1)), LADDER),
        *((Raised(ValueError()), policy) for policy in ruled.values()),
        (Succeeded(), LADDER),
        (Answered(status=200), LADDER),
        (Answered(status=425), LADDER),
        (Answered(status=409), LADDER),
        (Answered(status=404), LADDER),
        (Answered(status=500), LADDER),
        (TimedOut(after_ms=1), LADDER),
    ]
    assert [deciding.row_of(outcome, at(), policy) for outcome, policy in cases] == list(TABLE)
