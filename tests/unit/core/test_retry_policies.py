"""Backoffs wait as they say, and what makes no sense is refused when it is written down."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import (
    Backoff,
    Exponential,
    Fixed,
    Immediate,
    InvalidPolicy,
    Linear,
    Listed,
    RetryPolicy,
    Rule,
    Situation,
    backoff_of,
    causes_of,
)
from tests.unit.core.strategies import backoffs


def delays(backoff: Backoff, retries: int = 6) -> list[int]:
    return [backoff.delay_ms(retry) for retry in range(1, retries + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Fixed("30s"), [30_000] * 6),
        (Fixed(timedelta(seconds=2)), [2_000] * 6),
        (Fixed(0.25), [250] * 6),
        (Listed(["30s", "5m", "30m"]), [30_000, 300_000, 1_800_000, 1_800_000, 1_800_000, 1_800_000]),
        (Exponential("1s"), [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]),
        (Exponential("1s", factor=1.5, longest="3s"), [1_000, 1_500, 2_250, 3_000, 3_000, 3_000]),
        (Exponential("0s"), [0] * 6),
        (Linear("10s", longest="45s"), [10_000, 20_000, 30_000, 40_000, 45_000, 45_000]),
        (Immediate(Listed(["1s", "2s"])), [0, 0, 1_000, 2_000, 2_000, 2_000]),
        (Immediate(Fixed("1s"), times=0), [1_000] * 6),
    ],
)
def test_a_backoff_waits_as_it_says(backoff: Backoff, expected: list[int]) -> None:
    assert delays(backoff) == expected


@given(backoffs, st.integers(-5, 2 * 10**9))
def test_a_delay_is_a_whole_number_of_milliseconds_whatever_the_retry(backoff: Backoff, retry: int) -> None:
    delay_ms = backoff.delay_ms(retry)
    assert type(delay_ms) is int
    assert delay_ms >= 0


@given(st.floats(1, 1e308), st.integers(1, 10**9))
def test_an_exponential_never_falls_and_never_exceeds_its_longest(factor: float, retry: int) -> None:
    backoff = Exponential("1s", factor=factor, longest="10m")
    assert 1_000 <= backoff.delay_ms(retry) <= backoff.delay_ms(retry + 1) <= 600_000


def test_two_spellings_of_one_backoff_are_equal() -> None:
    assert Fixed("90s") == Fixed("1m30s") == Fixed(90)
    assert hash(Listed(["1s"])) == hash(Listed([1]))


@pytest.mark.parametrize(
    "write",
    [
        lambda: Fixed("30"),
        lambda: Fixed(-1),
        lambda: Fixed(float("nan")),
        lambda: Fixed(None),  # type: ignore[arg-type]
        lambda: Fixed([1]),  # type: ignore[arg-type]
        lambda: Fixed(True),
        lambda: Fixed(10**400),
        lambda: Listed([]),
        lambda: Listed("30s"),
        lambda: Listed(30),  # type: ignore[arg-type]
        lambda: Linear(None),  # type: ignore[arg-type]
        lambda: Exponential("1s", factor="2"),  # type: ignore[arg-type]
        lambda: Exponential("1s", factor=0.5),
        lambda: Exponential("1s", factor=float("nan")),
        lambda: Exponential("1s", factor=float("inf")),
        lambda: Immediate(Fixed(1), times=-1),
        lambda: Immediate(Fixed(1), times=1.5),  # type: ignore[arg-type]
        lambda: Immediate(Fixed),  # type: ignore[arg-type]
        lambda: RetryPolicy(attempts_max="3", backoff=Fixed(1)),  # type: ignore[arg-type]
        lambda: RetryPolicy(attempts_max=1, backoff=Fixed(1), jitter="a"),  # type: ignore[arg-type]
        lambda: RetryPolicy(attempts_max=0, backoff=Fixed(1)),
        lambda: RetryPolicy(attempts_max=1, backoff=Fixed(1), jitter=1.1),
        lambda: RetryPolicy(attempts_max=1, backoff=Fixed(1), jitter=float("nan")),
        lambda: RetryPolicy(attempts_max=1, backoff=Fixed(1), age_ms_max=-1),
        lambda: RetryPolicy(attempts_max=1, backoff=Fixed(1), other_4xx="drop"),  # type: ignore[arg-type]
        lambda: Rule([], "park"),
        lambda: Rule(str, "park"),  # type: ignore[arg-type]
        lambda: Rule(True, "park"),
        lambda: Rule("404", "park"),  # type: ignore[arg-type]
        lambda: Rule(1000, "park"),
        lambda: Rule(range(400, 1001), "park"),
        lambda: Rule(range(500, 400), "park"),
        lambda: Rule(None, "park"),  # type: ignore[arg-type]
        lambda: Rule(404, "drop"),  # type: ignore[arg-type]
        lambda: Rule(404, 3),  # type: ignore[arg-type]
        lambda: Rule(404, "retry", backoff="soon"),
        lambda: Rule(404, "retry", backoff=[1]),  # type: ignore[arg-type]
        lambda: Rule(404, "retry", backoff=Exponential),  # type: ignore[arg-type]
        lambda: Rule(404, "retry", attempts_max="3"),  # type: ignore[arg-type]
        lambda: Rule(404, "retry", attempts_max=2.5),  # type: ignore[arg-type]
        lambda: Rule(404, "park", backoff=Fixed(1)),
        lambda: Rule(404, "retry", attempts_max=0),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(write: Any) -> None:
    with pytest.raises(InvalidPolicy, match=r".{10}"):
        write()


def test_a_draw_is_a_part_of_one() -> None:
    with pytest.raises(ValueError, match="not in"):
        Situation(retries=0, now_ms=0, draw=1.0)


def test_a_misspelt_verdict_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidPolicy, match="'rety' is no verdict; did you mean `retry`"):
        Rule(KeyError, "rety")  # type: ignore[arg-type]


@pytest.mark.parametrize("given_delay", ["5s", 5, 5.0, timedelta(seconds=5)])
def test_a_plain_delay_is_a_fixed_backoff(given_delay: Any) -> None:
    assert backoff_of(given_delay) == Fixed("5s")
    assert Rule(KeyError, "retry", backoff=given_delay).backoff == Fixed("5s")
    assert delays(Immediate(given_delay, times=1)) == [0] + [5_000] * 5


def test_one_cause_may_be_given_alone() -> None:
    assert causes_of(KeyError) == (KeyError,)
    assert causes_of(404) == (404,)
    assert causes_of(range(500, 600)) == (range(500, 600),)
    assert causes_of({KeyError}) == (KeyError,)
    assert causes_of(()) == ()


def test_a_rule_is_about_types_and_their_subclasses_statuses_and_ranges() -> None:
    rule = Rule([OSError, 404, range(500, 502)], "park")
    assert rule.matches(error=ConnectionResetError(), status=None)
    assert rule.matches(error=None, status=404)
    assert rule.matches(error=ValueError(), status=501)
    assert not rule.matches(error=ValueError(), status=502)
    assert not rule.matches(error=None, status=None)
