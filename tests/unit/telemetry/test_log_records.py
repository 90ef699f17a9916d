"""A log line is one line, bounded, and holds neither payloads nor passwords, whatever came in."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.telemetry.catalogue import EVENTS, Level
from redrive.telemetry.log_records import TEXT_BYTES_MAX, level_of, make_record, render_json, render_text, safe_text

NOON_S = 1_767_268_800.25
RETRIED = {
    "queue": "orders",
    "decision": "retry",
    "attempt": 2,
    "attempts_max": 4,
    "delay_ms": 30_000,
    "error": "ValueError: no such\norder",
    "routing_key": "orders.placed",
    "message_id": "m-1",
    "correlation_id": "c-9",
    "message_type": "OrderPlaced",
    "handler_s": 0.25,
    "shape": "ladder",
    "status": None,
}


def line_of(event: str, **fields: object) -> dict[str, Any]:
    parsed = json.loads(render_json(make_record(NOON_S, event, fields)))
    assert isinstance(parsed, dict)
    return parsed


def test_a_decision_is_one_json_line_with_the_documented_keys() -> None:
    assert line_of("runtime.decided", **RETRIED) == {
        "time": "2026-01-01T12:00:00.250Z",
        "level": "warning",
        "event": "runtime.decided",
        "correlationId": "c-9",
        "queue": "orders",
        "routingKey": "orders.placed",
        "messageType": "OrderPlaced",
        "messageId": "m-1",
        "attempt": 2,
        "attemptsMax": 4,
        "decision": "retry",
        "delay": 30_000,
        "error": "ValueError: no such\\norder",
        "handlerSeconds": 0.25,
        "shape": "ladder",
    }


def test_the_service_shape_speaks_in_the_words_of_its_document() -> None:
    words = {
        decision: line_of("runtime.decided", decision=decision, shape="service").get("consumerStatus")
        for decision in ("ack", "retry", "requeue", "park")
    }
    assert words == {"ack": "ACK", "retry": "DROP", "requeue": "REQUEUE", "park": "ACK"}
    assert "consumerStatus" not in line_of("runtime.decided", decision="ack", shape="ladder")


def test_zero_is_written_and_none_is_not() -> None:
    line = line_of("runtime.decided", decision="retry", delay_ms=0, error=None)
    assert line["delay"] == 0
    assert "error" not in line


def test_unknown_fields_are_written_in_camel_case() -> None:
    assert line_of("somebody.learned", new_word_ms=3)["newWordMs"] == 3


def test_passwords_in_urls_and_tokens_are_gone_even_where_the_text_is_cut() -> None:
    secret = "s3cr3t"
    texts = [
        f"can't reach amqp://user:{secret}@broker:5672/shop",
        f"postgresql://user:{secret}@p@host/db",
        f"Authorization: bEAREr {secret}{secret}{secret}",
        "x" * 800 + f" amqp://user:{secret}{'y' * 3000}@host/ " + "z" * 900,
    ]
    for text in texts:
        assert secret not in json.dumps(line_of("client.connect_failed", reason=text)), text


def test_bytes_are_only_measured_because_they_may_be_a_payload() -> None:
    assert line_of("runtime.decided", decision="park", sample=b"a customer's name")["sample"] == "(17 bytes)"


class Hostile:
    """A value whose text can't be made."""

    def __str__(self) -> str:
        raise RuntimeError("no")


ANYTHING = st.one_of(
    st.text(), st.integers(), st.floats(), st.binary(), st.booleans(), st.none(), st.lists(st.text()),
    st.builds(Hostile), st.text(min_size=1500), st.dictionaries(st.text(), st.text(), max_size=3),
)  # fmt: skip


@given(event=st.text(), values=st.dictionaries(st.text(min_size=1), ANYTHING, max_size=8))
def test_whatever_the_values_are_a_line_is_one_printable_line_of_json(event: str, values: dict[str, object]) -> None:
    record = make_record(NOON_S, event, values)
    for line in (render_json(record), render_text(record)):
        assert len(line.splitlines()) <= 1
        assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in line)
        line.encode()
    json.loads(render_json(record), parse_constant=lambda word: pytest_fail(word))


def pytest_fail(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@given(st.text(min_size=TEXT_BYTES_MAX))
def test_a_long_text_is_bounded(text: str) -> None:
    assert len(safe_text(text)) <= 6 * TEXT_BYTES_MAX


def test_an_unknown_event_is_worth_a_line_and_an_ack_is_not() -> None:
    assert level_of("somebody.learned", {}) is Level.INFO
    assert level_of("runtime.decided", {"decision": "ack"}) is Level.DEBUG
    assert level_of("runtime.decided", {"decision": "park"}) is Level.ERROR
    assert level_of("client.connection_lost", {}) is EVENTS["client.connection_lost"][0]


def test_a_person_reads_what_happened_where_and_when_it_is_tried_again() -> None:
    line = render_text(make_record(NOON_S, "runtime.decided", RETRIED))
    assert line == (
        "12:00:00.250 RETRY    orders  attempt 2 of 4  again in 30s  ValueError: no such\\norder"
        "  correlationId=c-9 routingKey=orders.placed messageType=OrderPlaced messageId=m-1"
    )
    lost = render_text(make_record(NOON_S, "consumer.cancelled", {"queue": "orders", "reason": "gone away"}))
    assert lost == (
        "12:00:00.250 consumer.cancelled orders: the broker cancelled a consumer: its queue is deleted or moves"
        '  reason="gone away"'
    )


def test_colour_is_added_and_nothing_else() -> None:
    record = make_record(NOON_S, "runtime.decided", RETRIED)
    coloured = render_text(record, colour=True)
    assert "\x1b[33m" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == render_text(record)


def test_a_person_reads_names_as_they_are_written_in_lists_too() -> None:
    record = make_record(NOON_S, "runtime.waiting_for_topology", {"queue": "Bücher", "missing": ["queue Bücher"]})
    assert render_text(record).endswith('missing="[\\"queue Bücher\\"]"')
    assert "Bücher: " in render_text(record)


@pytest.mark.parametrize("number", [2**63 - 1, 1 - 2**63, 2**63, -(2**63), 2**80])
def test_a_number_that_64_bits_do_not_hold_is_text(number: int) -> None:
    told = make_record(NOON_S, "runtime.decided", {"attempt": number}).fields["attempt"]
    assert told == (number if abs(number) < 2**63 else hex(number))
