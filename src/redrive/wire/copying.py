"""The copy of a message: what it keeps to the byte, what it can't keep, and how it says so.

A copy is persistent and has the `expiration` it was given or none. It has no user_id (another user's closes the
channel) and no CC or BCC (they would route it to further queues). What the original had of these is kept in the table
`x-redrive-stripped`; a copy of a copy keeps what the first one said.
"""

from collections.abc import Callable, Mapping
from typing import Any

from redrive import core
from redrive.core import headers
from redrive.wire.properties import Properties

_HEADER_BYTES_MAX = 120_000
"""A header frame must stay below the 131 kB frame that everybody agrees to."""

_FRAME_BYTES_MAX = 131_000
"""More can't be sent, however it is filled."""

_PERSISTENT = 2
_ROUTING, _STRIPPED, _ID = b"CC", headers.STRIPPED.encode(), headers.MESSAGE_ID.encode()
"""What the raw bytes contain where there may be such headers (BCC too). Most messages have none: none is looked up."""


def copy_properties(
    properties: Properties,
    *,
    set_headers: Mapping[str, Any],
    drop_headers: frozenset[str],
    new_id: Callable[[], str],
    bound_to: tuple[str, bytes],
    expiration_ms: int | None = None,
) -> Properties:
    """The properties of a copy: `set_headers` written, `drop_headers` taken away; one that is in both is written.

    A message without message_id gets `x-redrive-id` from `new_id`. `bound_to` are the queue the copy belongs to and its
    body: what makes the `x-redrive-digest` without which nobody believes the rest. Raises EncodingError for values that
    AMQP can't carry, and RemoteProtocolError if the old bytes are malformed.
    """
    raw = properties.raw
    written = dict(set_headers)
    stripped = stripped_of(properties, drop_headers.difference(written) if _ROUTING in raw else frozenset())
    if stripped:
        written[headers.STRIPPED] = stripped
    message_id = properties.message_id
    if message_id is None:
        message_id = properties.header(headers.MESSAGE_ID) if _ID in raw else None
        if message_id is None:
            message_id = written[headers.MESSAGE_ID] = new_id()
    queue, body = bound_to
    written[headers.DIGEST] = digest_of(properties, queue, message_id=message_id, body=body)
    # By its room's name: core loads what decides about messages when it is first used, a broker starts without it.
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
    # Evidence is given up before the message is: what the broker has added may be what is too much.
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
    """What a copy without the headers `drops` can't keep, for its `x-redrive-stripped`; empty where that is nothing."""
    taken: dict[str, Any] = {}
    for name, value in (("expiration", properties.expiration), ("user_id", properties.user_id)):
        if value is not None:
            taken[name] = value
    if properties.delivery_mode not in (None, _PERSISTENT):
        taken["delivery_mode"] = properties.delivery_mode
    for name in headers.ROUTING_HEADERS & drops:
        value = properties.header(name)
        if value is not None:
            taken[name] = value
    if not taken:
        return {}
    # What an earlier copy has lost comes before what this one takes away.
    earlier = properties.header(headers.STRIPPED) if _STRIPPED in properties.raw else None
    return {**taken, **earlier} if isinstance(earlier, dict) else taken
