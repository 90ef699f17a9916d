"""Properties become JSON and the very same bytes again; JSON by hand becomes what it says or is refused."""

import base64
import json
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import wire
from tests.unit.wire import strategies


def there_and_back(raw: bytes) -> bytes:
    """Through both writers: Python's own and msgspec's."""
    written = wire.properties_as_json(raw)
    again = wire.properties_from_json(json.loads(json.dumps(written, allow_nan=False)))
    assert wire.properties_from_json(msgspec.json.decode(msgspec.json.encode(written))) == again
    return again


@given(strategies.properties, strategies.tables)
def test_properties_come_back_to_the_byte(properties: dict[str, Any], headers: dict[str, Any]) -> None:
    raw = wire.Properties.of(headers=headers, **properties).raw
    assert there_and_back(raw) == raw


@given(st.lists(st.tuples(strategies.short_texts, strategies.values), max_size=6), st.randoms())
def test_repeated_keys_come_back_in_order_and_number(entries: list[tuple[str, Any]], shuffler: Any) -> None:
    shuffler.shuffle(entries)
    body = b"".join(wire.encode_table({key: value})[4:] for key, value in entries * 2)
    raw = b"\x20\x00" + struct.pack(">I", len(body)) + body
    assert there_and_back(raw) == raw


@given(st.binary(max_size=60))
def test_any_bytes_at_all_come_back(raw: bytes) -> None:
    assert there_and_back(raw) == raw


@given(st.sampled_from(b"tbBsuIilLfdDSxTFAV"), st.binary(max_size=12))
def test_any_value_of_any_type_comes_back(code: int, value: bytes) -> None:
    prefix = struct.pack(">I", len(value)) if code in b"SxFA" else b""
    body = b"\x01k" + bytes((code,)) + prefix + value
    raw = b"\x20\x00" + struct.pack(">I", len(body)) + body
    assert there_and_back(raw) == raw


def test_common_values_are_plain_json() -> None:
    headers = {"text": "Zoë", "flag": True, "n": 5, "big": 1 << 40, "half": 0.5, "list": [1, "a"], "none": None}
    raw = wire.Properties.of(headers={**headers, "table": {"a": 1}}, content_type="text/plain", delivery_mode=2).raw
    assert wire.properties_as_json(raw) == {
        "content_type": "text/plain",
        "headers": {**headers, "table": {"a": 1}},
        "delivery_mode": 2,
    }


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (wire.Int8(3), {"type": "short-short-int", "value": 3}),
        (wire.UInt32(3), {"type": "long-uint", "value": 3}),
        (wire.Int64(3), {"type": "long-long-int", "value": 3}),
        (1 << 60, {"type": "long-long-int", "value": "1152921504606846976"}),
        (2.0, {"type": "double", "value": 2.0}),
        (wire.Float32(0.5), {"type": "float", "value": 0.5}),
        (float("inf"), {"type": "double", "hex": "7ff0000000000000"}),
        (b"\xff\x00", {"type": "byte-array", "base64": "/wA="}),
        (wire.LongString(b"\xff"), {"type": "long-string", "base64": "/w=="}),
        (wire.Timestamp(1 << 60), {"type": "timestamp", "value": "1152921504606846976"}),
        ({"type": "x"}, {"type": "table", "value": {"type": "x"}}),
    ],
)
def test_other_values_are_written_with_their_type(value: Any, written: Any) -> None:
    raw = wire.Properties.of(headers={"k": value}).raw
    assert wire.properties_as_json(raw) == {"headers": {"k": written}}
    assert wire.properties_from_json({"headers": {"k": written}}) == raw


def test_a_moment_is_written_as_people_write_it() -> None:
    written = {
        "headers": {"t": {"type": "timestamp", "value": "2026-11-01T12:00:00Z"}},
        "timestamp": "2026-11-01T12:00:00Z",
    }
    assert wire.properties_as_json(wire.properties_from_json(written)) == written
    assert wire.properties_from_json({"timestamp": 5}) == wire.Properties.of(timestamp=wire.Timestamp(5)).raw


def test_a_key_or_text_that_is_no_utf8_is_kept() -> None:
    raw = b"\xa0\x00\x01\xff" + struct.pack(">I", 3) + b"\x01\xffV"
    assert wire.properties_as_json(raw) == {
        "content_type": {"type": "short-string", "base64": "/w=="},
        "headers": [[{"base64": "/w=="}, None]],
    }
    assert there_and_back(raw) == raw


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"subject": "x"}, "there is no property 'subject'"),
        ({"priority": 256}, "from 0 to 255"),
        ({"priority": True}, "from 0 to 255"),
        ({"message_id": 5}, "message_id is a text"),
        ({"message_id": "x" * 256}, "AMQP allows 255"),
        ({"timestamp": "tomorrow"}, "no moment"),
        ({"timestamp": "2026-11-01T12:00:00"}, "time zone"),
        ({"timestamp": -1}, "outside AMQP's time"),
        ({"timestamp": "²"}, "whole number"),
        ({"headers": 5}, "a table is an object"),
        ({"headers": {"k" * 256: 1}}, "AMQP allows 255"),
        ({"headers": {"k": {"type": "int", "value": 1}}}, "there is no type 'int'"),
        ({"headers": {"k": {"type": {}}}}, "there is no type"),
        ({"headers": {"k": {"type": "short-short-int", "value": 300}}}, "does not fit"),
        ({"headers": {"k": {"type": "short-int", "value": "x"}}}, "headers.k: value is a whole number"),
        ({"headers": {"k": {"type": "byte-array", "base64": "%"}}}, "no base64"),
        ({"headers": {"k": {"type": "float", "hex": "00"}}}, "hex has 8 digits"),
        ({"headers": {"k": {"type": "float", "value": 1e300}}}, "does not fit"),
        ({"headers": {"k": {"type": "decimal", "value": "many"}}}, "no decimal"),
        ({"headers": {"k": {"type": "table"}}}, "a table is an object"),
        ({"headers": {"k": 1 << 70}}, "64 bits"),
        ({"headers": {"k": "\ud800"}}, "not Unicode"),
        ({"base64": "%"}, "no base64"),
        ([], "properties are an object"),
    ],
)
def test_values_that_amqp_can_t_carry_are_refused_with_their_place(written: Any, said: str) -> None:
    with pytest.raises(wire.EncodingError) as caught:
        wire.properties_from_json(written)
    assert said in str(caught.value)


def test_nesting_without_end_is_refused_in_json_and_kept_as_it_is_from_the_wire() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    with pytest.raises(wire.EncodingError):
        wire.properties_from_json({"headers": {"k": deep}})
    body = b"\x01k" + b"".join(b"A" + struct.pack(">I", 5 * (150 - place)) for place in range(151))
    raw = b"\x20\x00" + struct.pack(">I", len(body)) + body
    innermost = wire.properties_as_json(raw)["headers"]["k"]
    while isinstance(innermost, list):
        (innermost,) = innermost
    assert innermost["type"] == "undecoded"
    assert there_and_back(raw) == raw


@pytest.mark.parametrize(
    "raw", [b"", b"V", b"F\0\0\0\1", b"A\0\0\0\0V", b"A\0\0\0\1?", b"F\0\0\0\3\1k?", b"A\0\0\0\5F\0\0\0\1"]
)
def test_an_undecoded_value_must_be_a_whole_table(raw: bytes) -> None:
    written = {"headers": {"k": {"type": "undecoded", "base64": base64.b64encode(raw).decode()}}}
    with pytest.raises(wire.EncodingError):
        wire.properties_from_json(written)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("2026-11-01T12:00:00Z"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "value", "base64", "hex", "entries", "k"]), inner, max_size=3)
        | st.tuples(st.sampled_from(["float", "decimal", "boolean", "timestamp", "table", "long-int"]), inner).map(
            lambda pair: {"type": pair[0], "value": pair[1]}
        )
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.sampled_from(["headers", "timestamp", "priority", "type", "base64"]), json_values, max_size=3)
)
def test_json_by_hand_becomes_properties_or_is_refused(written: dict[str, Any]) -> None:
    try:
        raw = wire.properties_from_json(written)
    except wire.EncodingError:
        return
    assert there_and_back(raw) == raw


@pytest.mark.parametrize("second", [b"\xff", b"a"], ids=["no text", "the same again"])
def test_tables_that_are_no_objects_are_read_once_however_deep_they_nest(second: bytes) -> None:
    """On each level a second key makes a list of the table; read twice, a hundred levels would never end."""
    value = b"V"
    for _ in range(150):
        body = b"\x01a" + value + b"\x01" + second + b"V"
        value = b"F" + struct.pack(">I", len(body)) + body
    raw = b"\x20\x00" + struct.pack(">I", len(value) + 2) + b"\x01k" + value
    innermost, levels = wire.properties_as_json(raw)["headers"]["k"], 0
    while innermost["type"] == "table":
        (_, innermost), (_, nothing) = innermost["entries"]
        assert nothing is None
        levels += 1
    assert (innermost["type"], levels) == ("undecoded", 99)
    assert there_and_back(raw) == raw
