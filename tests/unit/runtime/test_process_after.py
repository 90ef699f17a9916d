"""`processAfterDelayMs`: how long a message wants to wait, and since when."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import DELAY_MS_MAX, PlainMessage
from redrive.runtime.process_after import asked_delay_ms, published_ms

PUBLISHED = datetime(2026, 1, 1, 12, tzinfo=UTC)
PUBLISHED_MS = 1_767_268_800_000
NOW_MS = PUBLISHED_MS + 2_000


def letter(delay: Any = None, **properties: Any) -> PlainMessage:
    return PlainMessage(
        queue="q", headers={} if delay is None else {"processAfterDelayMs": delay}, properties=properties
    )


def test_the_header_counts_before_the_body() -> None:
    body = json.dumps({"processAfterDelayMs": 5_000}).encode()
    assert asked_delay_ms(letter(), body) == 5_000
    assert asked_delay_ms(letter(1_000), body) == 1_000
    assert asked_delay_ms(letter("1000"), body) == 1_000
    assert asked_delay_ms(letter(1_000.5), body) == 1_000
    assert asked_delay_ms(letter("soon"), body) == 5_000
    assert asked_delay_ms(letter(0), body) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"nested": {"processAfterDelayMs": 5}}',
        b'["processAfterDelayMs"]',
        b'{"processAfterDelayMs": -1}',
        b'{"processAfterDelayMs": true}',
        b'{"processAfterDelayMs": NaN}',
        b'{"processAfterDelayMs": "later"}',
        b'"processAfterDelayMs" broken',
        b'\xff"processAfterDelayMs"',
        b'{"processAfterDelayMs": 5, "deep": ' + b"[" * 100_000,
    ],
    ids=range(11),
)
def test_what_is_no_delay_is_none(body: bytes) -> None:
    assert asked_delay_ms(letter(), body) is None


def test_a_delay_beyond_a_year_is_a_year() -> None:
    assert asked_delay_ms(letter(10**30), b"") == DELAY_MS_MAX


@given(body=st.binary(), delay=st.one_of(st.none(), st.text(), st.floats(), st.integers(), st.binary()))
def test_whatever_comes_in_is_no_delay_or_one_within_bounds(body: bytes, delay: Any) -> None:
    asked = asked_delay_ms(letter(delay), body + b'{"processAfterDelayMs": 1}')
    assert asked is None or 0 <= asked <= DELAY_MS_MAX


def test_a_timestamp_says_when_it_was_published() -> None:
    assert published_ms(letter(timestamp=PUBLISHED), now_ms=NOW_MS) == PUBLISHED_MS
    assert published_ms(letter(), now_ms=NOW_MS) is None


def test_a_timestamp_in_milliseconds_is_read_as_such() -> None:
    assert published_ms(letter(timestamp=PUBLISHED_MS), now_ms=NOW_MS) == PUBLISHED_MS


@pytest.mark.parametrize("moment", [PUBLISHED + timedelta(days=2), 10**17, 0, -5, True, "yesterday"])
def test_a_time_that_can_not_be_true_is_none(moment: object) -> None:
    assert published_ms(letter(timestamp=moment), now_ms=NOW_MS) is None


def test_a_clock_that_is_an_hour_ahead_is_believed() -> None:
    ahead = PUBLISHED + timedelta(hours=1)
    assert published_ms(letter(timestamp=ahead), now_ms=NOW_MS) == PUBLISHED_MS + 3_600_000


@pytest.mark.parametrize("behind_s", [0, 60, 86_399, 86_401])
def test_a_timestamp_in_seconds_as_a_number_is_read_as_such_however_recent(behind_s: int) -> None:
    published_s = PUBLISHED_MS // 1000 - behind_s
    assert published_ms(letter(timestamp=published_s), now_ms=NOW_MS) == published_s * 1000


def test_a_body_of_more_than_16_mib_is_not_read_for_it() -> None:
    body = b'{"processAfterDelayMs": 1000}'.ljust(16 * 1024 * 1024)
    assert asked_delay_ms(letter(), body) == 1_000
    assert asked_delay_ms(letter(), body + b" ") is None
