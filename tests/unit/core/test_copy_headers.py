"""The headers of copies are true, complete, and small enough for any frame."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core import (
    COPY_DROPS,
    PARK_DROPS,
    Attempt,
    Counter,
    Failure,
    Parked,
    ParkReason,
    PlainMessage,
    Report,
    count_retries,
    fit_headers,
    headers,
    original_headers,
    parking_headers,
    read_history,
    retry_headers,
)
from redrive.core.copy_headers import HISTORY_ERROR_BYTES_MAX, HISTORY_MAX
from redrive.wire import decode_table, encode_table
from tests.examples import examples
from tests.unit.core.strategies import any_text, garbage, reports

BYTES_MAX = 100_000
parked = st.builds(Parked, reason=st.sampled_from(ParkReason))
letters = st.builds(
    PlainMessage,
    queue=st.text(max_size=60),
    exchange=st.text(max_size=60),
    routing_key=st.text(max_size=60),
    headers=st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                headers.ORIGINAL_QUEUE,
                headers.ORIGINAL_EXCHANGE,
                headers.ORIGINAL_ROUTING_KEY,
                headers.DEATHS,
                headers.HISTORY,
                headers.ATTEMPTS_BEFORE,
            ),
            garbage | st.text(max_size=300),
        ),
    ),
)


def encoded(table: dict[str, Any]) -> bytes:
    return encode_table(table)


@settings(max_examples=examples(60))
@given(parked, letters, reports)
def test_a_parked_copys_headers_fit_into_a_frame_whatever_the_errors_were(
    decision: Parked, letter: PlainMessage, report: Report
) -> None:
    written = parking_headers(decision, letter, report)
    raw = encoded(written)
    assert len(raw) < BYTES_MAX / 3
    assert len(written.get(headers.HISTORY, ())) <= HISTORY_MAX
    back = decode_table(raw[4:])
    assert back[headers.RETRY_COUNT] == back[headers.FINAL_RETRY_COUNT] == report.retries
    assert back[headers.REASON] == decision.reason.value


@settings(max_examples=examples(60))
@given(letters, reports)
def test_a_retry_copys_headers_fit_too_and_count_one_retry_more(letter: PlainMessage, report: Report) -> None:
    written = retry_headers(letter, report)
    assert len(encoded(written)) < BYTES_MAX / 3
    copy = PlainMessage(queue=letter.queue, headers={**letter.headers, **written})
    assert count_retries(copy, Counter.HEADER) == min(report.retries + 1, 1_000_000_000)


def test_a_traceback_of_200_kb_and_broken_unicode_are_parked() -> None:
    failure = Failure(type="Boom\ud800", message="\udcff" * 200_000, stack="é" * 100_000, status=503)
    history = tuple(Attempt(number=n, at_ms=n, error="\ud800" * 200_000) for n in range(1, 101))
    report = Report(retries=100, now_ms=5, failure=failure, history=history)
    written = parking_headers(Parked(reason=ParkReason.ATTEMPTS), PlainMessage(queue="q"), report)
    assert len(encoded(written)) < 20_000
    kept = read_history(PlainMessage(queue="q", headers=written))
    assert [one.number for one in kept] == list(range(81, 101))
    assert all(len(one.error.encode()) <= HISTORY_ERROR_BYTES_MAX for one in kept)


@pytest.mark.parametrize("status", [2**31, 2**63, -(2**70)])
def test_a_status_that_no_header_could_hold_is_left_out(status: int) -> None:
    report = Report(retries=0, now_ms=1, failure=Failure(type="Odd", message="", status=status))
    written = parking_headers(Parked(reason=ParkReason.STATUS), PlainMessage(queue="q"), report)
    assert headers.FINAL_STATUS_CODE not in written
    assert written[headers.FINAL_ERROR] == "Odd"


def test_a_parked_copy_says_everything_the_documents_ask_for() -> None:
    letter = PlainMessage(queue="wms.queue.wms-cincout", exchange="wms.main-exchange", routing_key="placed")
    attempt = Attempt(number=11, at_ms=7, error="HTTPError: 503")
    report = Report(
        retries=10,
        now_ms=1_700_000_000_000,
        failure=Failure(type="HTTPError", message="503", stack="File …", status=503),
        history=(attempt,),
    )
    assert parking_headers(Parked(reason=ParkReason.ATTEMPTS), letter, report) == {
        "x-retry-count": 10,
        "x-final-retry-count": 10,
        "x-final-error": "HTTPError: 503",
        "x-final-status-code": 503,
        "x-original-queue": "wms.queue.wms-cincout",
        "x-original-exchange": "wms.main-exchange",
        "x-original-routing-key": "placed",
        "x-redrive-reason": "attempts",
        "x-redrive-stack": "File …",
        "x-redrive-history": [{"number": 11, "at_ms": 7, "error": "HTTPError: 503"}],
        "x-redrive-parked-at": 1_700_000_000_000,
    }


def test_a_message_parked_without_an_error_has_no_error_headers() -> None:
    written = parking_headers(Parked(reason=ParkReason.ASKED), PlainMessage(queue="q"), Report(retries=0, now_ms=1))
    assert set(written) == {
        headers.RETRY_COUNT,
        headers.FINAL_RETRY_COUNT,
        headers.ORIGINAL_QUEUE,
        headers.ORIGINAL_EXCHANGE,
        headers.ORIGINAL_ROUTING_KEY,
        headers.REASON,
        headers.PARKED_AT,
    }


def test_the_first_origin_is_kept_through_every_hop() -> None:
    first = PlainMessage(queue="user", exchange="events", routing_key="user.created")
    hop = PlainMessage(
        queue="user",
        exchange="events",
        routing_key="user.retry",
        headers=retry_headers(first, Report(retries=0, now_ms=1)),
    )
    assert original_headers(hop) == original_headers(first)
    written = parking_headers(Parked(reason=ParkReason.ATTEMPTS), hop, Report(retries=1, now_ms=2))
    assert written[headers.ORIGINAL_ROUTING_KEY] == "user.created"


@pytest.mark.parametrize("told", [None, 5, [], "x" * 256, "ü" * 128, {"a": 1}])
def test_an_origin_that_can_not_be_a_name_is_replaced(told: Any) -> None:
    letter = PlainMessage(queue="q", exchange="e", routing_key="k", headers={headers.ORIGINAL_ROUTING_KEY: told})
    assert original_headers(letter)[headers.ORIGINAL_ROUTING_KEY] == "k"


def test_a_key_that_is_no_utf_8_survives_a_hop_byte_for_byte() -> None:
    letter = PlainMessage(queue="q", exchange="e", routing_key=b"caf\xe9".decode("utf-8", "surrogateescape"))
    raw = encoded(retry_headers(letter, Report(retries=0, now_ms=1)))
    assert b"caf\xe9" in raw
    hop = PlainMessage(queue="q", exchange="", routing_key="q", headers=decode_table(raw[4:]))
    assert original_headers(hop)[headers.ORIGINAL_ROUTING_KEY] == letter.routing_key


def test_what_was_counted_before_a_copy_is_not_counted_twice_after_it() -> None:
    letter = PlainMessage(queue="q", headers={headers.ATTEMPTS_BEFORE: 4, headers.RETRY_COUNT: 1})
    retries = count_retries(letter, Counter.HEADER)
    assert retries == 5
    written = retry_headers(letter, Report(retries=retries, now_ms=1))
    assert count_retries(PlainMessage(queue="q", headers={**letter.headers, **written}), Counter.HEADER) == 6
    written = parking_headers(Parked(reason=ParkReason.ATTEMPTS), letter, Report(retries=retries, now_ms=1))
    kept = {name: value for name, value in letter.headers.items() if name not in PARK_DROPS}
    assert count_retries(PlainMessage(queue="q", headers={**kept, **written}), Counter.HEADER) == 5


def test_a_living_copy_drops_its_deaths_and_a_parked_one_keeps_them() -> None:
    assert headers.DEATH_HEADERS <= COPY_DROPS
    assert not headers.DEATH_HEADERS & PARK_DROPS
    assert {"CC", "BCC", "x-delivery-count"} <= COPY_DROPS & PARK_DROPS


@given(garbage)
def test_a_history_that_can_not_be_read_is_none(told: Any) -> None:
    for attempt in read_history(PlainMessage(queue="q", headers={headers.HISTORY: told})):
        assert attempt.number >= 0
        assert attempt.at_ms >= 0
        assert len(attempt.error.encode()) <= HISTORY_ERROR_BYTES_MAX


@settings(max_examples=examples(60))
@given(letters, reports, st.integers(0, 30_000), any_text)
def test_our_words_give_way_where_the_message_has_taken_the_room(
    letter: PlainMessage, report: Report, room_bytes: int, text: str
) -> None:
    written = parking_headers(Parked(reason=ParkReason.ATTEMPTS), letter, report)
    fitting = fit_headers(written, room_bytes)
    small = {headers.STACK, headers.HISTORY, headers.FINAL_ERROR}
    assert len(encoded(fitting)) <= max(room_bytes, 1_500)
    assert {name: fitting[name] for name in written if name not in small} == {
        name: written[name] for name in written if name not in small
    }
    if len(encoded(written)) * 3 < room_bytes:  # a name is counted with three bytes for each of its letters
        assert fitting == written
