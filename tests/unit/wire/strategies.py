"""Hypothesis strategies for what AMQP can carry."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from redrive import wire


def _ints(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high)


def _not_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
short_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

# Every scalar in the form in which it is decoded, so that a round trip must give an equal value of an equal type.
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    _ints(8, True).map(wire.Int8),
    _ints(8, False).map(wire.UInt8),
    _ints(16, True).map(wire.Int16),
    _ints(16, False).map(wire.UInt16),
    _ints(32, True),
    _ints(64, True),
    _ints(32, False).map(wire.UInt32),
    _ints(32, True).map(wire.Int64),
    _ints(64, True).map(wire.LongLong),
    st.floats(width=32, allow_nan=False).map(wire.Float32),
    st.floats(allow_nan=False),
    st.tuples(_ints(32, True), st.integers(0, 255)).map(
        lambda pair: Decimal((int(pair[0] < 0), tuple(map(int, str(abs(pair[0])))), -pair[1]))
    ),
    texts,
    st.binary(max_size=30),
    st.binary(max_size=30).filter(_not_utf8).map(wire.LongString),
    st.integers(0, 253_402_300_799).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    st.integers(253_402_300_800, (1 << 64) - 1).map(wire.Timestamp),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(short_texts, inner, max_size=4),
    max_leaves=12,
)
tables: st.SearchStrategy[dict[str, Any]] = st.dictionaries(short_texts, values, max_size=6)

properties: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            (
                "content_type",
                "content_encoding",
                "correlation_id",
                "reply_to",
                "expiration",
                "message_id",
                "type",
                "user_id",
                "app_id",
                "cluster_id",
            ),
            short_texts,
        ),
        "delivery_mode": st.integers(0, 255),
        "priority": st.integers(0, 255),
        "timestamp": st.integers(0, 253_402_300_799).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    },
)
