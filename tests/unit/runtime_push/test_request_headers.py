"""What a service reads about a message, whatever the message carries."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.runtime.push.request_headers import HEADERS_BYTES_MAX, LEFT_OUT, encode_value, request_headers
from tests.unit.runtime_push.messages import PlainMessage

NAME = re.compile(r"[0-9a-z!#$%&'*+.^_`|~-]+")
VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
AMQP_VALUE = st.one_of(
    st.text(),
    st.binary(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(st.text(), max_size=3),
    st.dictionaries(st.text(), st.one_of(st.binary(), st.integers()), max_size=3),
)


def test_a_plain_message_says_where_it_is_from_and_which_attempt_this_is() -> None:
    message = PlainMessage(
        correlation_id="c-9",
        type="OrderPlaced",
        app_id="shop",
        reply_to="answers",
        priority=0,
        timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC),
        headers={"tenant": "größe 5%", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    )
    assert request_headers(message) == {
        "content-type": "application/json",
        "x-redrive-message-id": "m-1",
        "x-redrive-correlation-id": "c-9",
        "x-redrive-type": "OrderPlaced",
        "x-redrive-app-id": "shop",
        "x-redrive-reply-to": "answers",
        "x-redrive-priority": "0",
        "x-redrive-timestamp": "1767268800",
        "x-redrive-queue": "orders",
        "x-redrive-exchange": "shop.events",
        "x-redrive-routing-key": "orders.placed",
        "x-redrive-attempt": "2",
        "x-redrive-attempts-max": "4",
        "x-redrive-redelivered": "false",
        "x-redrive-header-tenant": "gr%C3%B6%C3%9Fe 5%25",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }


def test_the_brokers_bookkeeping_stays_here() -> None:
    headers = {"x-death": [{"queue": "orders", "count": 3}], "CC": ["other"], "x-redrive-history": [], "a": 1}
    sent = request_headers(PlainMessage(headers=headers))
    assert [name for name in sent if name.startswith("x-redrive-header-")] == ["x-redrive-header-a"]


def test_a_body_without_a_usable_type_is_plain_octets() -> None:
    for odd in (None, "", "text/plain\r\nx-evil: 1", "größe"):
        assert request_headers(PlainMessage(content_type=odd))["content-type"] == "application/octet-stream"


def test_an_encoding_is_passed_on_but_a_charset_written_there_is_not() -> None:
    assert request_headers(PlainMessage(content_encoding="gzip"))["content-encoding"] == "gzip"
    assert "content-encoding" not in request_headers(PlainMessage(content_encoding="utf-8"))


def test_a_trace_header_that_http_can_not_carry_is_left_out() -> None:
    assert "traceparent" not in request_headers(PlainMessage(headers={"traceparent": "a\r\nb: c"}))


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_with_a_url_decoder(text: str) -> None:
    encoded = encode_value(text)
    assert VALUE.fullmatch(encoded)
    assert unquote(encoded) == text


@given(raw=st.binary())
def test_bytes_come_back_also_those_read_as_odd_text(raw: bytes) -> None:
    assert unquote_to_bytes(encode_value(raw)) == raw
    assert unquote_to_bytes(encode_value(raw.decode("utf-8", "surrogateescape"))) == raw


@given(
    headers=st.dictionaries(st.text(min_size=1), AMQP_VALUE, max_size=12),
    words=st.lists(st.text(), min_size=5, max_size=5),
)
def test_no_message_can_break_out_of_its_headers_or_fill_the_head(headers: dict[str, Any], words: list[str]) -> None:
    queue, key, identity, kind, content_type = words
    sent = request_headers(
        PlainMessage(queue=queue, routing_key=key, id=identity, type=kind, content_type=content_type, headers=headers)
    )
    for name, value in sent.items():
        assert NAME.fullmatch(name), name
        assert VALUE.fullmatch(value), value
    assert sum(len(name) + len(value) + 4 for name, value in sent.items()) < 16_000


def test_headers_that_are_too_much_are_left_out_and_counted() -> None:
    headers = {f"h{number}": "x" * 1100 for number in range(20)} | {"long": "y" * 5000, "small": 1}
    sent = request_headers(PlainMessage(headers=headers))
    kept = {name: value for name, value in sent.items() if name.startswith("x-redrive-header-")}
    assert sum(len(name) + len(value) + 4 for name, value in kept.items()) <= HEADERS_BYTES_MAX
    assert "x-redrive-header-small" in kept
    assert int(sent[LEFT_OUT]) + len(kept) == 22


def test_of_two_names_that_differ_in_case_only_one_is_left_out_and_counted() -> None:
    sent = request_headers(PlainMessage(headers={"Tenant": "a", "tenant": "b"}))
    assert sent["x-redrive-header-tenant"] == "a"
    assert sent[LEFT_OUT] == "1"


@pytest.mark.parametrize("text", [" a", "a  ", "  a b ", " ", "   "])
def test_blanks_around_a_value_arrive(text: str) -> None:
    encoded = encode_value(text)
    assert encoded == encoded.strip(" ")
    assert unquote_to_bytes(encoded) == text.encode()
