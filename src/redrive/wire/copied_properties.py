"""The properties of a copy of a message: kept to the byte, except those that a copy can't keep.

A copy is persistent and has the `expiration` it was given, or none. It has no user_id (another user's closes the
channel) and no CC or BCC (they would route it to further queues). The copy's table `x-redrive-stripped` keeps what the
original had of these; a copy of a copy keeps the first one's table. An x-death that no broker wrote goes there too,
where a copy drops it. A value that is nested too deep to be written again is kept as its bytes.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from redrive import core
from redrive.core import headers
from redrive.wire.errors import ProtocolError
from redrive.wire.field_tables import decode_value, encode_table
from redrive.wire.properties import Properties

_HEADER_BYTES_MAX = 120_000
"""A header frame must stay below 131 kB, the frame-max that all brokers and clients use by default."""

_FRAME_BYTES_MAX = 131_000
"""Longer properties can't be sent at all."""

_PERSISTENT = 2
_ROUTING, _DIED = b"CC", headers.DEATHS.encode()
_STRIPPED, _ID = headers.STRIPPED.encode(), headers.MESSAGE_ID.encode()
"""Searched for in the raw bytes first (CC finds BCC too): most messages have no such header, and need no look-up."""

_KNOWN_BYTES_MAX = 4096


def copy_properties(
    properties: Properties,
    *,
    set_headers: Mapping[str, Any],
    drop_headers: frozenset[str],
    new_id: Callable[[], str],
    bound_to: tuple[str, bytes],
    expiration_ms: int | None = None,
) -> Properties:
    """The properties of a copy: with `set_headers`, without `drop_headers`; one that is in both is set.

    A message without message_id gets `x-redrive-id` from `new_id`. `bound_to` is the queue the copy belongs to and its
    body: they make the `x-redrive-digest`, without which no reader trusts the other headers. Raises EncodingError for
    values that AMQP can't carry, and RemoteProtocolError if the old bytes are malformed.
    """
    raw = properties.raw
    written = dict(set_headers)
    may_lose = _ROUTING in raw or _DIED in raw
    stripped = stripped_of(properties, drop_headers.difference(written) if may_lose else frozenset())
    if stripped:
        written[headers.STRIPPED] = stripped
    message_id = properties.message_id
    if message_id is None:
        message_id = properties.header(headers.MESSAGE_ID) if _ID in raw else None
        if message_id is None:
            message_id = written[headers.MESSAGE_ID] = new_id()
    queue, body = bound_to
    written[headers.DIGEST] = digest_of(properties, queue, message_id=message_id, body=body)
    # `core.`, not an import of the name: core loads its decision table when it is first used; a broker starts without.
    fitting = core.fit_headers(written, max(_HEADER_BYTES_MAX - len(raw), 0))

    def edited(drop: frozenset[str]) -> Properties:
        return properties.edit(
            headers=fitting,
            drop=drop,  # what is written is not dropped
            delivery_mode=_PERSISTENT,
            user_id=None,
            expiration=None if expiration_ms is None else str(expiration_ms),
        )

    made = edited(drop_headers)
    # Rather lose the x-death headers than the message: what the broker has added may be what is too much.
    return made if len(made.raw) <= _FRAME_BYTES_MAX else edited(drop_headers | headers.DEATH_HEADERS)


def digest_of(properties: Properties, queue: str, *, message_id: Any, body: bytes) -> str:
    """The `x-redrive-digest` of a message in a queue; `message_id` is its own, or the id that we gave it."""
    return core.message_digest(
        queue,
        message_id=message_id,
        correlation_id=properties.correlation_id,
        timestamp=properties.timestamp,
        body=body,
    )


def stripped_of(properties: Properties, drops: frozenset[str]) -> dict[str, Any]:
    """The `x-redrive-stripped` of a copy without the headers `drops`; empty where nothing is stripped."""
    taken: dict[str, Any] = {}
    for name, value in (("expiration", properties.expiration), ("user_id", properties.user_id)):
        if value is not None:
            taken[name] = value
    if properties.delivery_mode not in (None, _PERSISTENT):
        taken["delivery_mode"] = properties.delivery_mode
    for name in headers.ROUTING_HEADERS & drops:
        raw = properties.raw_header(name)
        value = None if raw is None else _writable(name, raw)
        if value is not None:
            taken[name] = value
    deaths = odd_deaths(properties) if headers.DEATHS in drops else None
    if deaths is not None:
        taken[headers.DEATHS] = deaths
    if not taken:
        return {}
    # What an earlier copy had stripped wins over what this one strips.
    earlier = properties.header(headers.STRIPPED) if _STRIPPED in properties.raw else None
    return {**taken, **earlier} if isinstance(earlier, dict) else taken


def odd_deaths(properties: Properties) -> Any:
    """The x-death header, if there is one that no broker wrote; as it can be written into another header."""
    raw = properties.raw_header(headers.DEATHS) if _DIED in properties.raw else None
    if raw is None:
        return None
    return _known_odd(raw) if len(raw) <= _KNOWN_BYTES_MAX else _odd(raw)


def _odd(raw: bytes) -> Any:
    value = _writable(headers.DEATHS, raw)
    return value if isinstance(value, bytes) or core.has_odd_deaths(value) else None


# Messages that died in the same second have the same x-death, to the byte.
_known_odd = lru_cache(maxsize=256)(_odd)


def _writable(name: str, raw: bytes) -> Any:
    """A header's value as it can be written into `x-redrive-stripped`: its bytes if it is nested too deep for that."""
    try:
        value, _ = decode_value(raw, 0, len(raw))
        if isinstance(value, dict | list):
            encode_table({headers.STRIPPED: {name: value}})
    except ProtocolError:
        return raw
    return value
