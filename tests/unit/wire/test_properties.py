"""Properties are read lazily, changed by splicing, and passed through untouched."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from redrive import wire
from tests.unit.wire import strategies


@given(strategies.properties, strategies.tables)
def test_what_is_set_is_read_back(properties: dict[str, Any], headers: dict[str, Any]) -> None:
    made = wire.Properties(wire.Properties.of(headers=headers, **properties).raw)
    assert {name: getattr(made, name) for name in properties} == properties
    assert made.headers == headers
    assert made.present() == {**properties, **({"headers": headers} if headers else {})}


@given(strategies.properties, strategies.properties, strategies.tables)
def test_an_edit_leaves_the_others_alone(old: dict[str, Any], new: dict[str, Any], headers: dict[str, Any]) -> None:
    before = wire.Properties.of(headers=headers, **old)
    after = before.edit(**new)
    assert {name: getattr(after, name) for name in {**old, **new}} == {**old, **new}
    assert after.headers == headers
    assert before.edit() == before


@given(strategies.properties, strategies.tables, strategies.tables, st.sets(strategies.short_texts))
def test_appended_headers_are_what_an_edit_would_have_added(
    properties: dict[str, Any], old: dict[str, Any], new: dict[str, Any], drop: set[str]
) -> None:
    mine = {key: value for key, value in old.items() if key not in new}
    gone = frozenset(drop | set(list(mine)[:1])) - set(new)
    before = wire.Properties.of(headers=mine, **properties)
    entries = b"".join(wire.encode_entries(new).values())
    after = before.append_headers(entries, drop=gone)
    assert after.present() == {**before.edit(headers=new, drop=gone).present(), "headers": after.headers}
    assert after.headers == {**{key: value for key, value in before.headers.items() if key not in gone}, **new}


@given(strategies.properties, strategies.tables)
def test_shortcuts_without_decoding_agree_with_decoding(properties: dict[str, Any], headers: dict[str, Any]) -> None:
    raw = wire.Properties.of(headers=headers or None, **properties).raw
    whole, hasty = wire.Properties(raw), wire.Properties(raw)
    table = wire.cut_headers(raw)
    assert ("headers" in whole.present()) == (table is not None)
    assert table is None or table == wire.encode_table(whole.headers)
    assert hasty.labels() == (whole.message_id, whole.correlation_id, whole.type)
    assert hasty.is_persistent() == (whole.delivery_mode == 2)


@pytest.mark.parametrize(
    "raw", [b"", b"\x20", b"\x20\x00", b"\x20\x00\0\0\0\x05", b"\xe0\x00\x09abc", b"\x20\x01\0\0\0\0", b"\xe0\x00"]
)
def test_a_table_of_headers_that_is_not_whole_is_a_syntax_error(raw: bytes) -> None:
    with pytest.raises(wire.RemoteProtocolError):
        wire.cut_headers(raw)
    with pytest.raises(wire.RemoteProtocolError):
        wire.Properties(raw).append_headers(b"")
    with pytest.raises(wire.RemoteProtocolError):
        wire.Properties(raw).is_persistent()


@given(strategies.properties)
def test_pamqp_reads_what_we_write(properties: dict[str, Any]) -> None:
    made = wire.Properties.of(headers={"x-retry-count": 3}, **properties)
    theirs = header.ContentHeader()
    theirs.unmarshal(b"\x00\x3c\x00\x00" + (0).to_bytes(8, "big") + made.raw)
    assert theirs.properties.headers == {"x-retry-count": 3}
    for name, value in properties.items():
        if name == "timestamp" and value > datetime(2106, 2, 7, tzinfo=UTC):
            continue  # pamqp takes those for milliseconds
        assert getattr(theirs.properties, {"type": "message_type"}.get(name, name)) == value


def test_we_read_what_pamqp_writes() -> None:
    theirs = commands.Basic.Properties(
        content_type="application/json",
        headers={"a": 1, "b": [True, None]},
        delivery_mode=2,
        timestamp=datetime(2024, 5, 1, tzinfo=UTC),
        message_id="m",
    )
    ours = wire.Properties(theirs.marshal())
    assert ours.content_type == "application/json"
    assert ours.headers == {"a": 1, "b": [True, None]}
    assert ours.delivery_mode == 2
    assert ours.timestamp == datetime(2024, 5, 1, tzinfo=UTC)
    assert ours.message_id == "m"
    assert ours.reply_to is None
    assert ours.edit(message_id="m").raw == theirs.marshal()


def test_absent_headers_read_as_empty() -> None:
    assert wire.Properties().headers == {}
    assert wire.Properties().header("x-retry-count", 0) == 0
    assert wire.Properties().edit(drop=["x"]).raw == wire.EMPTY


def test_one_header_is_read_without_the_others() -> None:
    raw = wire.Properties.of(headers={"a": 1, "b": "two"}).raw
    assert wire.Properties(raw).header("b") == "two"
    assert wire.Properties(raw).header("c", 7) == 7


def test_a_property_set_to_none_is_removed() -> None:
    made = wire.Properties.of(expiration="1000", user_id="guest", priority=0)
    assert made.edit(expiration=None, user_id=None, reply_to=None).present() == {"priority": 0}


def test_text_that_is_not_utf8_is_written_as_it_was_read() -> None:
    raw = b"\x80\x80\x02\xff\xfe\x01\xe9"
    made = wire.Properties(raw)
    assert wire.Properties.of(content_type=made.content_type, message_id=made.message_id).raw == raw


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(wire.EncodingError, match="no property"):
        wire.Properties().edit(colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "changes",
    [
        {"priority": 256},
        {"message_id": "x" * 256},
        {"timestamp": datetime(2024, 1, 1)},  # noqa: DTZ001
        {"timestamp": datetime(1960, 1, 1, tzinfo=UTC)},
        {"timestamp": wire.Timestamp(1 << 64)},
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(wire.EncodingError):
        wire.Properties.of(**changes)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80",
        b"\x80\x00",
        b"\x80\x00\x05abc",
        b"\x20\x00\x00\x00",
        b"\x20\x00\x00\x00\x00\x09",
        b"\x00\x40\x00",
        b"\x00\x01\x00\x00",
        b"\x00\x00trailing",
    ],
)
def test_malformed_properties_are_a_syntax_error_when_they_are_read(raw: bytes) -> None:
    with pytest.raises(wire.RemoteProtocolError) as caught:
        wire.Properties(raw).present()
    assert caught.value.reply_code == wire.ReplyCode.SYNTAX_ERROR


@given(st.binary(max_size=120))
def test_random_bytes_are_read_or_refused(raw: bytes) -> None:
    made = wire.Properties(raw)
    for read in (made.present, lambda: made.header("k"), lambda: made.edit(headers={"k": 1}, priority=1)):
        with suppress(wire.RemoteProtocolError):
            read()
