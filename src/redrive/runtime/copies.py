"""The copy of a delivery: `wire`'s copy of its message, without what was about the delivery that has just ended."""

from collections.abc import Callable

from redrive import wire
from redrive.core import PublishCopy, headers
from redrive.runtime.views import DeliveryLetter

_OURS = frozenset({headers.NOT_BEFORE, headers.DELIVERIES, headers.DEATHS_ALONE})
"""A copy has them only if it is told to."""


def copy_properties(letter: DeliveryLetter, copy: PublishCopy, *, new_id: Callable[[], str]) -> wire.Properties:
    """The properties of the copy. Raises what wire raises for values that AMQP can't carry.

    Headers of ours that are not believed do not go along: the copy's digest would make them true.
    """
    properties = letter.properties
    if letter.has_unbelieved:
        anothers = headers.REDRIVEN_HEADERS if letter.has_anothers_headers else frozenset()
        properties = properties.edit(headers={}, drop=headers.BOUND_HEADERS | anothers)
    return wire.copy_properties(
        properties,
        set_headers=copy.set_headers,
        drop_headers=copy.drop_headers if copy.drop_headers >= _OURS else copy.drop_headers | _OURS,
        new_id=new_id,
        bound_to=(letter.queue, letter.delivery.body),
        expiration_ms=copy.expiration_ms,
    )
