"""The parked copy of a message that no frame has room for: small headers, and the message itself in its body."""

from collections.abc import Callable
from dataclasses import dataclass

from redrive import wire
from redrive.client import Delivery
from redrive.core import PublishCopy, fit_headers, headers
from redrive.runtime.views import DeliveryLetter

SIZES = (48_000, 2_000)
"""How much the headers of an envelope may take: below any frame that is usual, then below the smallest there is."""
_HEADER_BYTES_MAX = 1_000
"""A header of the message that is larger than this is only in the envelope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The properties and the body of the copy."""

    properties: wire.Properties
    body: bytes


def envelope_of(
    letter: DeliveryLetter, copy: PublishCopy, *, header_bytes_max: int, new_id: Callable[[], str]
) -> Envelope:
    """The copy with the message in its body: what a shape wants written on it, and those of the message's own headers
    that are small, as far as there is room."""
    body = wire.wrap(letter.properties, letter.delivery.body)
    ours = fit_headers({**copy.set_headers, headers.ENVELOPE: 1}, header_bytes_max // 2)
    properties = wire.copy_properties(
        _small(letter, copy, header_bytes_max // 2),
        set_headers=ours,
        drop_headers=copy.drop_headers | headers.BOUND_HEADERS,
        new_id=new_id,
        bound_to=(letter.queue, body),
    )
    return Envelope(
        properties=properties.edit(content_type=wire.ENVELOPE_CONTENT_TYPE, content_encoding=None), body=body
    )


def unread_envelope_of(delivery: Delivery, copy: PublishCopy, *, new_id: Callable[[], str]) -> Envelope:
    """The same for a message of which nothing can be read, or only at our peril: none of its headers and properties is
    on the envelope."""
    body = wire.wrap(wire.Properties(delivery.header), delivery.body)
    properties = wire.copy_properties(
        wire.Properties(),
        set_headers=fit_headers({**copy.set_headers, headers.ENVELOPE: 1}, SIZES[0] // 2),
        drop_headers=frozenset(),
        new_id=new_id,
        bound_to=(delivery.queue, body),
    )
    return Envelope(properties=properties.edit(content_type=wire.ENVELOPE_CONTENT_TYPE), body=body)


def _small(letter: DeliveryLetter, copy: PublishCopy, bytes_max: int) -> wire.Properties:
    """The message's properties with its small headers; without any where they can't be read."""
    properties = letter.properties
    own_id = letter.message_id
    try:
        large, room = set(), bytes_max
        # In one go: there may be ten thousands of them, and each lookup begins at the first.
        for key, entry in wire.raw_entries((wire.cut_headers(properties.raw) or bytes(4))[4:]):
            if len(entry) > min(_HEADER_BYTES_MAX, room):
                large.add(key.decode("utf-8", "surrogateescape"))
            else:
                room -= len(entry)
        return properties.edit(headers={}, drop=frozenset(large))
    except wire.ProtocolError:
        return wire.Properties.of(delivery_mode=2, message_id=own_id)
