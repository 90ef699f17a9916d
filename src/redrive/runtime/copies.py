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


def copy_properties(delivery: Delivery, copy: Publish, *, new_id: Callable[[], str]) -> Properties:
    """The properties of the copy. Raises what wire raises for values that AMQP can't carry."""
    properties = delivery.properties
    written = dict(copy.set_headers)
    drops = (copy.drop_headers | _OURS).difference(written)
    stripped = _stripped(properties, drops)
    if stripped:
        written[headers.STRIPPED] = stripped
    if properties.message_id is None and properties.header(headers.MESSAGE_ID) is None:
        written[headers.MESSAGE_ID] = new_id()
    fitting = fit_headers(written, max(_HEADER_BYTES_MAX - len(delivery.header), 0))

    def edited(drop: frozenset[str]) -> Properties:
        return properties.edit(
            headers=fitting,
            drop=drop,
            delivery_mode=_PERSISTENT,
            user_id=None,
            expiration=None if copy.expiration_ms is None else str(copy.expiration_ms),
        )

    made = edited(drops)
    # Evidence is given up before the message is: what the broker has added may be what is too much.
    return made if len(made.raw) <= _FRAME_BYTES_MAX else edited(drops | headers.DEATH_HEADERS.difference(written))


def _stripped(properties: Properties, drops: frozenset[str]) -> dict[str, Any]:
    """What this copy takes away, beside what an earlier one did."""
    taken: dict[str, Any] = {}
    for name in ("expiration", "user_id"):
        value = getattr(properties, name)
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
    earlier = properties.header(headers.STRIPPED)
    return {**taken, **earlier} if isinstance(earlier, dict) else taken
