"""Field tables keep every type to the byte, and refuse what is malformed."""

import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from redrive import wire
from tests.unit.wire import strategies


def _with_length(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(strategies.tables)
def test_a_decoded_table_encodes_to_the_bytes_it_came_from(table: dict[str, Any]) -> None:
    raw = wire.encode_table(table)
    decoded = wire.decode_table(raw[4:])
    assert decoded == table
    assert wire.encode_table(decoded) == raw


@given(strategies.tables)
def test_a_decoded_value_has_the_type_that_was_encoded(table: dict[str, Any]) -> None:
    decoded = wire.decode_table(wire.encode_table(table)[4:])
    assert [type(value) for value in decoded.values()] == [type(value) for value in table.values()]


@given(strategies.tables)
def test_pamqp_reads_what_we_write(table: dict[str, Any]) -> None:
    raw = wire.encode_table(table)
    try:
        size, theirs = pamqp_decode.field_table(raw)
    except (OverflowError, ValueError, OSError):
        return  # timestamps beyond its reach
    assert size == len(raw)
    assert list(theirs) == list(table)


@given(st.dictionaries(strategies.short_texts.filter(lambda key: len(key.encode()) <= 128), strategies.texts))
def test_we_read_what_pamqp_writes(table: dict[str, str]) -> None:
    assert wire.decode_table(pamqp_encode.field_table(dict(table))[4:]) == table


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"t\x01", True),
        (b"b\xff", wire.Int8(-1)),
        (b"B\xff", wire.UInt8(255)),
        (b"s\xff\xfe", wire.Int16(-2)),
        (b"u\xff\xfe", wire.UInt16(65534)),
        (b"I\xff\xff\xff\xfd", -3),
        (b"i\xff\xff\xff\xfd", wire.UInt32(4294967293)),
        (b"l\x00\x00\x00\x00\x00\x00\x00\x07", wire.Int64(7)),
        (b"l\x00\x00\x00\x01\x00\x00\x00\x00", 1 << 32),
        (b"L\x00\x00\x00\x00\x00\x00\x00\x07", wire.LongLong(7)),
        (b"f\x3f\x80\x00\x00", wire.Float32(1.0)),
        (b"d\x3f\xf0\x00\x00\x00\x00\x00\x00", 1.0),
        (b"D\x02\x00\x00\x01\x3b", Decimal("3.15")),
        (b"D\x01\xff\xff\xff\xff", Decimal("-0.1")),
        (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
        (b"S\x00\x00\x00\x01\xff", wire.LongString(b"\xff")),
        (b"x\x00\x00\x00\x02ab", b"ab"),
        (b"T\x00\x00\x00\x00\x65\x00\x00\x00", datetime(2023, 9, 12, 6, 6, 56, tzinfo=UTC)),
        (b"T\xff\xff\xff\xff\xff\xff\xff\xff", wire.Timestamp((1 << 64) - 1)),
        (b"F\x00\x00\x00\x03\x01kV", {"k": None}),
        (b"A\x00\x00\x00\x03Vb\x01", [None, wire.Int8(1)]),
        (b"V", None),
    ],
)
def test_every_field_type_decodes_and_encodes_back(raw: bytes, value: Any) -> None:
    table = wire.decode_table(b"\x01k" + raw)
    assert table == {"k": value}
    assert type(table["k"]) is type(value)
    assert wire.encode_table(table)[4:] == b"\x01k" + raw


@pytest.mark.parametrize("code", [b"f\x7f\x80\x00\x01", b"f\xff\xc0\x12\x34", b"d\x7f\xf0\x00\x00\x00\x00\x00\x01"])
def test_a_signalling_nan_keeps_its_bits(code: bytes) -> None:
    assert wire.encode_table(wire.decode_table(b"\x01k" + code))[4:] == b"\x01k" + code


def test_python_values_get_sensible_types() -> None:
    class Colour(IntEnum):
        RED = 3

    table = {"i": 1, "l": 1 << 40, "e": Colour.RED, "s": "x", "x": bytearray(b"y"), "t": (1,), "d": 0.5}
    raw = wire.encode_table(table)[4:]
    for key, code in {"i": "I", "l": "l", "e": "I", "s": "S", "x": "x", "t": "A", "d": "d"}.items():
        assert b"\x01" + key.encode() + code.encode() in raw
    assert wire.decode_table(raw) == {"i": 1, "l": 1 << 40, "e": 3, "s": "x", "x": b"y", "t": [1], "d": 0.5}


def test_a_decimal_does_not_depend_on_the_callers_context() -> None:
    with localcontext() as context:
        context.prec = 2
        assert wire.decode_table(b"\x01kD\x02\x00\x01\xe2\x40") == {"k": Decimal("1234.56")}


def test_the_first_of_two_equal_keys_counts_as_it_does_for_rabbitmq() -> None:
    assert wire.decode_table(b"\x01kb\x01\x01kb\x02") == {"k": 1}


def test_a_key_that_is_not_utf8_is_written_as_it_was_read() -> None:
    table = wire.decode_table(b"\x01\xffV")
    assert wire.encode_table(table)[4:] == b"\x01\xffV"


@given(strategies.tables)
def test_the_entries_of_a_decoded_table_are_its_bytes(table: dict[str, Any]) -> None:
    raw = wire.encode_table(table)
    entries: list[bytes] = []
    assert wire.decode_table(raw, 4, entries=entries) == wire.decode_table(raw, 4)
    assert b"".join(entries) == raw[4:]
    assert entries == [entry for _, entry in wire.raw_entries(raw[4:])]


def test_an_array_under_an_undecoded_key_stays_bytes() -> None:
    raw = wire.encode_table({"a": [1, {"b": 2}], "c": [3], "d": 4})
    left = wire.encode_table({"a": [1, {"b": 2}]})[4 + len(b"\x01a") :]
    assert wire.decode_table(raw, 4, undecoded={"a", "d"}) == {"a": left, "c": [3], "d": 4}


def _nested(depth: int, code: bytes) -> bytes:
    raw = b"V"
    for _ in range(depth):
        raw = code + _with_length((b"\x01k" if code == b"F" else b"") + raw)
    return b"\x01k" + raw


@pytest.mark.parametrize("code", [b"F", b"A"])
def test_what_is_nested_too_deep_is_left_undecoded_and_written_as_it_was(code: bytes) -> None:
    for levels in (99, 100, 101, 3_000):
        raw = _nested(levels, code)
        table = wire.decode_table(raw)
        found, depth = table["k"], 1
        while isinstance(found, dict | list) and found:
            found, depth = (found["k"] if isinstance(found, dict) else found[0]), depth + 1
        assert (depth, found) == (
            (levels + 1, None) if levels < 100 else (100, wire.Undecoded(_nested(levels - 99, code)[2:]))
        )
        assert wire.encode_table(table)[4:] == raw


def test_encoding_a_table_that_holds_itself_is_refused() -> None:
    table: dict[str, Any] = {}
    table["self"] = table
    with pytest.raises(wire.EncodingError, match="nested deeper"):
        wire.encode_table(table)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x05k",
        b"\x01k",
        b"\x00",
        b"\x01kI\x00\x00",
        b"\x01kS\x00\x00",
        b"\x01kS\x00\x00\x00\x05abc",
        b"\x01kS\xff\xff\xff\xff",
        b"\x01kF\x00\x00\x00\x09\x01kV",
        b"\x01kA\x00\x00\x00\x02I\x00\x00\x00\x01",
        b"\x01kF\x00\x00\x00\x03\x01kI\x00\x00\x00\x01",
        b"\x01kD\x00",
        b"\x01kf\x00",
        b"\x01kZ",
        b"\x01k\x00",
    ],
)
def test_a_malformed_table_is_a_syntax_error(raw: bytes) -> None:
    with pytest.raises(wire.RemoteProtocolError) as caught:
        wire.decode_table(raw)
    assert caught.value.reply_code == wire.ReplyCode.SYNTAX_ERROR


@given(st.binary(max_size=200))
def test_random_bytes_decode_or_are_refused(raw: bytes) -> None:
    for read in (
        wire.decode_table,
        lambda each: wire.read_entry(each, "k"),
        lambda each: wire.edit_table(each, {"k": 1}),
    ):
        with suppress(wire.RemoteProtocolError):
            read(raw)


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        wire.Int8(128),
        wire.UInt32(-1),
        datetime(2024, 1, 1),  # noqa: DTZ001
        datetime(1969, 1, 1, tzinfo=UTC),
        Decimal("NaN"),
        Decimal("1e999999"),
        Decimal("12345678901"),
        Decimal("4000000000"),
        pytest.param(object(), id="object"),
        "\ud800",
        {1: 2},
        {"k" * 256: 1},
    ],
    ids=repr,
)
def test_a_value_without_an_amqp_form_is_refused(value: Any) -> None:
    with pytest.raises(wire.EncodingError):
        wire.encode_table({"k": value})


@given(strategies.tables, strategies.tables, st.data())
def test_an_edit_changes_what_it_names_and_keeps_the_rest_to_the_byte(
    table: dict[str, Any], changes: dict[str, Any], data: st.DataObject
) -> None:
    drop = data.draw(st.lists(st.sampled_from(sorted(table)))) if table else []
    raw = wire.encode_table(table)[4:]
    edited = wire.edit_table(raw, changes, drop)
    assert wire.decode_table(edited) == {
        key: value for key, value in {**table, **changes}.items() if key in changes or key not in drop
    }
    for key, value in table.items():
        if key not in changes and key not in drop:
            assert wire.encode_table({key: value})[4:] in edited


def test_an_edit_keeps_entries_whose_types_a_round_trip_would_lose() -> None:
    odd = b"\x01at\x02" + b"\x01bb\x01" + b"\x01bb\x02"
    assert wire.edit_table(odd, {"c": 1}) == odd + b"\x01cI\x00\x00\x00\x01"
    assert wire.edit_table(odd, {"b": "x"}, ["a"]) == b"\x01bS\x00\x00\x00\x01x"


@pytest.mark.parametrize("read", [wire.encode_table, lambda table: wire.edit_table(b"", table)])
def test_an_unencodable_key_is_refused(read: Callable[[dict[str, Any]], bytes]) -> None:
    with pytest.raises(wire.EncodingError):
        read({"\ud800": 1})
