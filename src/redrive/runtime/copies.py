"""The copy of a delivery: what it keeps to the byte, what it can't keep, and how it says so.

A copy is persistent and has the `expiration` it was given or none. It has no user_id (another user's closes the
channel) and no CC or BCC (they would route it to further queues). What the original had of these is kept in the table
`x-redrive-stripped`; a copy of a copy keeps what the first one said.
"""

from collections.abc import Callable
from typing import Any

from redrive.client import Delivery
from redrive.core import Publish, fit_headers, headers
from redrive.wire import Properties

_HEADER_BYTES_MAX = 120_000
"""A header frame must stay below the 131 kB frame that everybody agrees to."""

_FRAME_BYTES_MAX = 131_000
"""More can't be sent, however it is filled."""

_OURS = frozenset({headers.NOT_BEFORE, headers.DELIVERIES})
"""About the delivery that has just ended; a copy has them only if it is told to."""

_PERSISTENT = 2
_ROUTING, _STRIPPED, _ID = b"CC", headers.STRIPPED.encode(), headers.MESSAGE_ID.encode()
"""What the raw bytes contain where there may be such headers (BCC too). Most messages have none: none is looked up."""


def copy_properties(delivery: Delivery, copy: Publish, *, new_id: Callable[[], str]) -> Properties:
    """The properties of the copy. Raises what wire raises for values that AMQP can't carry."""
    properties, header = delivery.properties, delivery.header
    written = dict(copy.set_headers)
    drops = copy.drop_headers if copy.drop_headers >= _OURS else copy.drop_headers | _OURS
    stripped = _stripped(properties, drops.difference(written) if _ROUTING in header else frozenset())
    if stripped:
        earlier = properties.header(headers.STRIPPED) if _STRIPPED in header else None
        # What an earlier copy has lost comes before what this one takes away.
        written[headers.STRIPPED] = {**stripped, **earlier} if isinstance(earlier, dict) else stripped
    if properties.message_id is None and (_ID not in header or properties.header(headers.MESSAGE_ID) is None):
        written[headers.MESSAGE_ID] = new_id()
    fitting = fit_headers(written, max(_HEADER_BYTES_MAX - len(header), 0))

    def edited(drop: frozenset[str]) -> Properties:
        return properties.edit(
            headers=fitting,
            drop=drop,  # what is written is not dropped
            delivery_mode=_PERSISTENT,
            user_id=None,
            expiration=None if copy.expiration_ms is None else str(copy.expiration_ms),
        )

    made = edited(drops)
    # Evidence is given up before the message is: what the broker has added may be what is too much.
    return made if len(made.raw) <= _FRAME_BYTES_MAX else edited(drops | headers.DEATH_HEADERS)


def _stripped(properties: Properties, drops: frozenset[str]) -> dict[str, Any]:
    """What this copy takes away."""
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
    return taken
