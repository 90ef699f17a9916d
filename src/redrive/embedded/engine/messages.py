"""A message as the broker keeps it, and what the broker refuses in one at basic.publish.

A `Message` is shared by all queues it was routed to and never changes; a `QueueEntry` is its place in one queue. The
content header stays raw bytes: what nobody changes goes out as it came in.
"""

import re
from typing import TYPE_CHECKING, Any

from redrive import wire
from redrive.embedded.engine.amqp_errors import AmqpError, precondition
from redrive.embedded.engine.amqp_values import type_name
from redrive.embedded.engine.journal import History

if TYPE_CHECKING:
    from redrive.embedded.engine.x_death import XDeathEntry

EXPIRATION_MAX_MS = 315_360_000_000
"""Ten years; one millisecond more is refused (measured on all three)."""

_HEADERS, _DELIVERY_MODE, _PRIORITY = 1 << 13, 1 << 12, 1 << 11
_REPLY_TO, _EXPIRATION, _MESSAGE_ID, _USER_ID = 1 << 9, 1 << 8, 1 << 7, 1 << 4
_INTEGER = re.compile(r"[+-]?\d+")


class Message:
    """A message as it was published, or as it was dead-lettered.

    `keys` are the routing key and the keys of CC and BCC. `deaths` is the broker's own record, the latest first (4.x;
    on 3.10 the headers are the record). `failed` and `acquired` are counters carried over from queues it died in;
    `hops` counts its deaths within one moment, `hop_ms`.
    """

    __slots__ = (
        "acquired",
        "bcc",
        "body",
        "deaths",
        "exchange",
        "expiration_ms",
        "failed",
        "first_death",
        "header",
        "history",
        "hop_ms",
        "hops",
        "keys",
        "message_id",
        "persistent",
        "priority",
    )

    def __init__(self, exchange: str, keys: tuple[str, ...], header: bytes, body: bytes) -> None:
        self.exchange = exchange
        self.keys = keys
        self.header = header
        self.body = body
        self.bcc: tuple[str, ...] = ()
        self.message_id: str | None = None
        self.expiration_ms: int | None = None
        self.priority: int | None = None
        self.persistent = False
        self.deaths: tuple[XDeathEntry, ...] = ()
        self.first_death: XDeathEntry | None = None
        self.failed = 0
        self.acquired = 0
        self.hops = 0
        self.hop_ms = -1
        self.history: History | None = None

    def copy(self) -> "Message":
        """A copy that the caller may change before it routes it."""
        other = Message(self.exchange, self.keys, self.header, self.body)
        other.bcc = self.bcc
        other.message_id = self.message_id
        other.expiration_ms = self.expiration_ms
        other.priority = self.priority
        other.persistent = self.persistent
        other.deaths = self.deaths
        other.first_death = self.first_death
        other.failed = self.failed
        other.acquired = self.acquired
        other.history = self.history
        return other


class QueueEntry:
    """A message in a queue: its place in the order, its deadline, how often it was requeued, its last delivery."""

    __slots__ = (
        "acquired",
        "deadline_ms",
        "delivered_ms",
        "enqueued_ms",
        "failed",
        "message",
        "redelivered",
        "sequence",
    )

    def __init__(self, message: Message, sequence: int, enqueued_ms: int, deadline_ms: int | None) -> None:
        self.message = message
        self.sequence = sequence
        self.enqueued_ms = enqueued_ms
        self.deadline_ms = deadline_ms
        self.delivered_ms = enqueued_ms
        self.redelivered = False
        self.failed = 0
        self.acquired = 0

    def __lt__(self, other: "QueueEntry") -> bool:
        return self.sequence < other.sequence


def read_message(
    exchange: str, routing_key: str, header: bytes, body: bytes, user: str | None, *, sorts_headers: bool = False
) -> Message:
    """A publish as a message; `user` is whose id it may have, None for anybody's.

    Raises AmqpError for what RabbitMQ refuses in the properties.
    """
    message = Message(exchange, (routing_key,), header, body)
    flags = int.from_bytes(header[:2], "big")
    if flags == 0 and len(header) == 2:
        return message
    properties = wire.Properties(header)
    try:
        if flags & _MESSAGE_ID:
            message.message_id = properties.message_id
        else:
            _ = properties.app_id  # malformed properties are noticed here, whoever reads them later
        if flags & _DELIVERY_MODE:
            message.persistent = properties.delivery_mode == 2
        if flags & _PRIORITY:
            message.priority = properties.priority
        if flags & _USER_ID and user is not None and properties.user_id != user:
            raise precondition(f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'")
        if flags & _EXPIRATION:
            message.expiration_ms = _expiration_ms(properties.expiration or "")
        if flags & _HEADERS:
            _read_headers(message, properties)
            if sorts_headers:
                message.header = wire.sort_headers(message.header, once=True)
    except wire.RemoteProtocolError as error:
        raise AmqpError(502, error.reply_text) from None
    return message


def reply_to_of(header: bytes) -> str | None:
    """The reply-to of raw properties that were found well-formed."""
    if int.from_bytes(header[:2], "big") & _REPLY_TO:
        return wire.Properties(header).reply_to
    return None


def _expiration_ms(text: str) -> int:
    match = _INTEGER.match(text)
    if match is None:
        raise precondition(f"invalid expiration '{text}': no_integer")
    if match.end() < len(text):
        raise precondition(f"invalid expiration '{text}': {{leftover_string,\"{text[match.end() :]}\"}}")
    if len(text) > 40:
        raise precondition(f"invalid expiration '{text}': {{value_too_large,{text}}}")
    value = int(text)
    if value < 0:
        raise precondition(f"invalid expiration '{text}': {{value_negative,{value}}}")
    if value > EXPIRATION_MAX_MS:
        raise precondition(f"invalid expiration '{text}': {{value_too_large,{value}}}")
    return value


def _read_headers(message: Message, properties: wire.Properties) -> None:
    headers = properties.headers
    if message.message_id is None:
        own = headers.get("x-redrive-id")
        message.message_id = own if isinstance(own, str) else None
    if "CC" not in headers and "BCC" not in headers:
        return
    message.bcc = _more_keys(headers, "BCC")
    message.keys += _more_keys(headers, "CC") + message.bcc
    if "BCC" in headers:
        message.header = properties.edit(drop=("BCC",)).raw


def _more_keys(headers: dict[str, Any], name: str) -> tuple[str, ...]:
    if name not in headers:
        return ()
    value = headers[name]
    if not isinstance(value, list):
        raise precondition(f'invalid message: {{unacceptable_type_in_header,"{name}",{type_name(value)}}}')
    return tuple(key for key in value if isinstance(key, str))
