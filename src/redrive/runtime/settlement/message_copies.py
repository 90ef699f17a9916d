"""Copies of a message: the properties of an ordinary copy, and the envelope for a message whose copy no frame can
hold."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive import wire
from redrive.client import Delivery
from redrive.core import PublishCopy, fit_headers, headers
from redrive.runtime.delivered_message import DeliveredMessage

ENVELOPE_HEADER_SIZES = (48_000, 2_000)
"""How many bytes the headers of an envelope may take: below any usual frame, then below the smallest there is."""
_HEADER_BYTES_MAX = 1_000
"""A header of the message that is larger than this is only inside the envelope."""
_OF_ONE_DELIVERY = frozenset({headers.NOT_BEFORE, headers.DELIVERIES, headers.DEATHS_ALONE})
"""These describe the delivery that has just ended: a copy has them only if its command sets them."""


def properties_of_copy(message: DeliveredMessage, copy: PublishCopy, *, new_id: Callable[[], str]) -> wire.Properties:
    """The properties of the copy. Raises what wire raises for values that AMQP can't carry.

    Headers of ours that are not believed are left out: the copy's digest would make them believed.
    """
    properties = message.properties
    if message.has_unbelieved:
        anothers = headers.REDRIVEN_HEADERS if message.has_anothers_headers else frozenset()
        properties = properties.edit(headers={}, drop=headers.BOUND_HEADERS | anothers)
    drop = copy.drop_headers
    return wire.copy_properties(
        properties,
        set_headers=copy.set_headers,
        drop_headers=drop if drop >= _OF_ONE_DELIVERY else drop | _OF_ONE_DELIVERY,
        new_id=new_id,
        bound_to=(message.queue, message.delivery.body),
        expiration_ms=copy.expiration_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeCopy:
    """The properties and the body of a copy whose body contains the whole message."""

    properties: wire.Properties
    body: bytes


def envelope_of(
    message: DeliveredMessage, copy: PublishCopy, *, header_bytes_max: int, new_id: Callable[[], str]
) -> EnvelopeCopy:
    """The copy with the message in its body. Its headers are those that the shape sets, and the message's own small
    ones, as far as there is room."""
    body = wire.wrap_in_envelope(message.properties, message.delivery.body)
    ours = fit_headers({**copy.set_headers, headers.ENVELOPE: 1}, header_bytes_max // 2)
    properties = wire.copy_properties(
        _small_headers(message, header_bytes_max // 2),
        set_headers=ours,
        drop_headers=copy.drop_headers | headers.BOUND_HEADERS,
        new_id=new_id,
        bound_to=(message.queue, body),
    )
    return EnvelopeCopy(
        properties=properties.edit(content_type=wire.ENVELOPE_CONTENT_TYPE, content_encoding=None), body=body
    )


def unread_envelope_of(delivery: Delivery, copy: PublishCopy, *, new_id: Callable[[], str]) -> EnvelopeCopy:
    """The same for a message that can't be read, or that we fail to read: the envelope has none of its headers and
    properties."""
    body = wire.wrap_in_envelope(wire.Properties(delivery.header), delivery.body)
    properties = wire.copy_properties(
        wire.Properties(),
        set_headers=fit_headers({**copy.set_headers, headers.ENVELOPE: 1}, ENVELOPE_HEADER_SIZES[0] // 2),
        drop_headers=frozenset(),
        new_id=new_id,
        bound_to=(delivery.queue, body),
    )
    return EnvelopeCopy(properties=properties.edit(content_type=wire.ENVELOPE_CONTENT_TYPE), body=body)


def _small_headers(message: DeliveredMessage, bytes_max: int) -> wire.Properties:
    """The message's properties with its small headers; without any headers if these can't be read."""
    properties = message.properties
    own_id = message.message_id
    try:
        large, room = set(), bytes_max
        # In one pass: there may be tens of thousands, and each lookup would begin at the first.
        for key, entry in wire.raw_entries((wire.cut_headers(properties.raw) or bytes(4))[4:]):
            if len(entry) > min(_HEADER_BYTES_MAX, room):
                large.add(key.decode("utf-8", "surrogateescape"))
            else:
                room -= len(entry)
        return properties.edit(headers={}, drop=frozenset(large))
    except wire.ProtocolError:
        return wire.Properties.of(delivery_mode=2, message_id=own_id)
