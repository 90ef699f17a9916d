"""The copy of a delivery: `wire`'s copy of its message, without what was about the delivery that has just ended."""

from collections.abc import Callable

from redrive import wire
from redrive.client import Delivery
from redrive.core import Publish, headers

_OURS = frozenset({headers.NOT_BEFORE, headers.DELIVERIES})
"""A copy has them only if it is told to."""


def copy_properties(delivery: Delivery, copy: Publish, *, new_id: Callable[[], str]) -> wire.Properties:
    """The properties of the copy. Raises what wire raises for values that AMQP can't carry."""
    return wire.copy_properties(
        delivery.properties,
        set_headers=copy.set_headers,
        drop_headers=copy.drop_headers if copy.drop_headers >= _OURS else copy.drop_headers | _OURS,
        new_id=new_id,
        expiration_ms=copy.expiration_ms,
    )
