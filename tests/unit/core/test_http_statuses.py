"""Errors that carry a status are answers; Retry-After is read in every form HTTP knows."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Answered, Park, Raised, outcome_of, parse_retry_after

NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT


class WithStatus(Exception):
    """As starlette's HTTPException."""

    def __init__(self, status_code: Any, headers: Any = None) -> None:
        self.status_code = status_code
        self.headers = headers
        super().__init__("refused")


class WithResponse(Exception):
    """As httpx's HTTPStatusError and requests' HTTPError."""

    def __init__(self, response: Any) -> None:
        self.response = response
        super().__init__("refused")


class Hostile(Exception):
    """An error whose attributes raise."""

    @property
    def status_code(self) -> int:
        """Never comes."""
        raise RuntimeError("no status")

    @property
    def response(self) -> Any:
        """Never comes either."""
        raise RuntimeError("no response")


def response(status_code: Any, headers: Any = None) -> SimpleNamespace:
    return SimpleNamespace(status_code=status_code, headers=headers)


@pytest.mark.parametrize(
    ("error", "status", "retry_after_ms"),
    [
        (WithStatus(503), 503, None),
        (WithStatus(429, {"Retry-After": "7"}), 429, 7_000),
        (WithStatus(429, {"retry-after": 7}), 429, 7_000),
        (WithStatus(429, [("retry-after", "7")]), 429, None),
        (WithResponse(response(404)), 404, None),
        (WithResponse(response(503, {"Retry-After": b"120"})), 503, 120_000),
        (WithResponse(response(503, {"Retry-After": "soon"})), 503, None),
        (WithResponse(response(503, {"Retry-After": "Sun, 06 Nov 1994 08:50:37 GMT"})), 503, 60_000),
    ],
)
def test_an_error_with_a_status_is_an_answer(error: Exception, status: int, retry_after_ms: int | None) -> None:
    outcome = outcome_of(error, now_ms=NOW_MS)
    assert outcome == Answered(status=status, retry_after_ms=retry_after_ms, error=error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        WithStatus("503"),
        WithStatus(True),
        WithStatus(None),
        WithResponse(None),
        WithResponse(response("404")),
        Hostile(),
        Park("with no status"),
    ],
)
def test_any_other_error_was_raised(error: Exception) -> None:
    assert outcome_of(error) == Raised(error)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_handler_that_raises_has_failed_whatever_came_back(status: int) -> None:
    for error in (WithStatus(status), WithResponse(response(status))):
        assert outcome_of(error) == Raised(error)


def test_a_signal_is_a_signal_even_with_a_status() -> None:
    signal = Park("no")
    signal.status_code = 503  # type: ignore[attr-defined]
    assert outcome_of(signal) == Raised(signal)


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("0", 0),
        (" 120 ", 120_000),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10_000),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10_000),
        ("Sun Nov  6 08:49:47 1994", 10_000),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("٣", None),
        ("tomorrow", None),
        ("Sun, 99 Nov 1994 08:49:47 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, delay_ms: int | None) -> None:
    assert parse_retry_after(text, NOW_MS) == delay_ms


def test_a_date_can_not_be_read_without_a_clock() -> None:
    assert parse_retry_after("Sun, 06 Nov 1994 08:49:47 GMT", None) is None


@given(st.text() | st.from_regex(r"\w{3}, \d+ \w{3} \d+ \d+:\d+:\d+ \S*"), st.integers(0, 2**50))
def test_any_retry_after_is_a_delay_or_none(text: str, now_ms: int) -> None:
    delay_ms = parse_retry_after(text, now_ms)
    assert delay_ms is None or (type(delay_ms) is int and delay_ms >= 0)


def test_endless_digits_are_a_very_long_time() -> None:
    delay_ms = parse_retry_after("9" * 100_000, NOW_MS)
    assert delay_ms is not None
    assert delay_ms > 10**15
