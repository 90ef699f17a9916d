"""A fingerprint is the same for one message delivered twice, and another for another message."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from redrive import wire
from redrive.client import Delivery
from redrive.deadletters.collect.arrivals import DeliveredLetter
from redrive.deadletters.collect.fingerprints import FINGERPRINT_BYTES, fingerprint
from tests.unit.wire import strategies


def of(headers: dict[str, Any], *, body: bytes = b"{}", exchange: str = "shop", key: str = "k", **more: Any) -> bytes:
    raw = wire.Properties.of(headers=headers, **more).raw
    return fingerprint(exchange=exchange, routing_key=key, properties=raw, body=body)


@given(strategies.properties, strategies.tables, st.randoms(), st.integers(0, 30))
def test_counts_and_order_do_not_change_it(properties: dict[str, Any], table: dict[str, Any], rng: Any, n: int) -> None:
    entries = [*table.items(), ("x-delivery-count", n), ("x-acquired-count", wire.Int64(n))]
    rng.shuffle(entries)
    first = of(table, **properties)
    assert first == of(dict(entries), **properties)
    assert len(first) == FINGERPRINT_BYTES


def of_letter(raw: bytes, body: bytes) -> bytes:
    delivery = Delivery(1, "tag", 1, False, ("shop", "k"), raw, body)
    return DeliveredLetter(delivery, "orders.dlq").fingerprint(delivery)


@given(strategies.properties, strategies.tables, st.booleans(), st.booleans(), st.binary(max_size=20))
def test_a_letter_that_is_read_already_has_the_same(
    properties: dict[str, Any], table: dict[str, Any], is_counted: bool, has_history: bool, body: bytes
) -> None:
    more = {"x-delivery-count": 2} if is_counted else {}
    history = {"x-redrive-history": [{"number": 1, "at_ms": 5, "error": "e"}]} if has_history else {}
    raw = wire.Properties.of(headers={**table, **history, **more}, **properties).raw
    assert of_letter(raw, body) == fingerprint(exchange="shop", routing_key="k", properties=raw, body=body)


@given(st.binary(max_size=40))
def test_a_letter_that_can_t_be_read_has_the_same(raw: bytes) -> None:
    assert of_letter(raw, b"") == fingerprint(exchange="shop", routing_key="k", properties=raw, body=b"")


def test_headers_that_hold_nothing_but_the_broker_s_count_are_no_headers() -> None:
    assert of({}) == of({"x-delivery-count": 1})


@given(strategies.tables, strategies.tables)
def test_other_headers_are_another_message(one: dict[str, Any], other: dict[str, Any]) -> None:
    assume(dict(sorted(one.items())) != dict(sorted(other.items())))
    assume(wire.encode_table(dict(sorted(one.items()))) != wire.encode_table(dict(sorted(other.items()))))
    assert of(one) != of(other)


def test_every_part_of_a_message_counts() -> None:
    different = [
        of({}),
        of({}, body=b"{} "),
        of({}, exchange="sho", key="pk"),
        of({}, key="k2"),
        of({}, message_id="m"),
        of({}, correlation_id="m"),
        of({"a": 1}),
        of({"a": "1"}),
        of({"a": wire.Int8(1)}),
    ]
    assert len(set(different)) == len(different)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_properties_that_can_t_be_read_count_as_they_are(one: bytes, other: bytes) -> None:
    def by(raw: bytes) -> bytes:
        return fingerprint(exchange="", routing_key="q", properties=raw, body=b"")

    assert by(one) == by(one)
    assume(one != other)
    assume(len(one) < 2 or not one[0] & 0x20)
    assert by(one) != by(other) or (len(other) > 2 and other[0] & 0x20)
