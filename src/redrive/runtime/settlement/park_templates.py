"""Templates for parked copies: the headers of a dead letter, encoded once for all messages that end alike.

When a dependency is down thousands of messages are parked for the same reason, with the same error and the same stack.
Their headers differ only in the time, in the digest, and in the id of messages that have none. So the headers that a
shape sets are encoded once and split where the time belongs. For each message they are put together again and appended
to the message's own headers, whose bytes are not decoded.

A template knows no header and no shape: it is made from the commands of the first message of its kind. Messages that
carry headers of ours, or a property that must be stripped, can't use one; `message_copies` builds their copies.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from redrive.client import Delivery
from redrive.core import AckDelivery, Command, Failure, PublishCopy, headers
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.settlement.retry_state import WRITTEN, RetryState
from redrive.wire import Properties, digest_of, encode_entries, flags_of

_KEPT_MAX = 64
_HEADER_BYTES_MAX = 32_000
"""With a larger header the two together might not fit into a frame, and `message_copies` has to choose."""

_MESSAGE_ID = flags_of("message_id")
_STRIPPED = flags_of("user_id", "expiration")
_TIME = struct.Struct(">cq")
_LENGTH = struct.Struct(">I")


class ParkKind(NamedTuple):
    """All that determines the headers of a parked copy, except the time."""

    route: tuple[str, str]
    state: RetryState
    reason: str
    failure: Failure | None
    is_attempt: bool


class ParkTemplate(NamedTuple):
    """The copy of one kind: where it goes, and its encoded headers, split where the time belongs."""

    copy: PublishCopy
    pieces: tuple[bytes, ...]

    def fill(self, message: DeliveredMessage, now_ms: int, new_id: Callable[[], str]) -> Properties:
        """The properties of one message's copy."""
        written = _encoded_time(now_ms).join(self.pieces)
        properties = message.properties
        if properties.has_any(_MESSAGE_ID):
            message_id = properties.message_id
        else:
            message_id = new_id()
            given = message_id.encode()
            written += _GIVEN_ID + _LENGTH.pack(len(given)) + given
        digest = digest_of(properties, message.queue, message_id=message_id, body=message.delivery.body).encode()
        written += _DIGEST + _LENGTH.pack(len(digest)) + digest
        return properties.append_headers(written, drop=self.copy.drop_headers)


class ParkTemplates:
    """The park templates of one queue."""

    def __init__(self) -> None:
        self._kept: dict[ParkKind, ParkTemplate] = {}

    def find(self, kind: ParkKind) -> ParkTemplate | None:
        """The template of a kind, if there was a message of it before."""
        return self._kept.get(kind)

    def make(self, kind: ParkKind, commands: tuple[Command, ...], now_ms: int) -> ParkTemplate | None:
        """Makes a template from the commands for the first of a kind; None if these are not a copy and an ack."""
        match commands:
            case (PublishCopy(expiration_ms=None) as copy, AckDelivery()):
                pass
            case _:
                return None
        if not all(name.startswith(WRITTEN) for name in copy.set_headers):
            return None  # it might replace a header of a message that has none of ours
        pieces = tuple(_encoded(copy.set_headers).split(_encoded_time(now_ms)))
        # The time occurs once for when it was parked and once for the attempt. More often: an error's text looks like
        # it.
        if len(pieces) != (3 if kind.is_attempt else 2):
            return None
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        template = self._kept[kind] = ParkTemplate(copy, pieces)
        return template


def can_use_template(delivery: Delivery, state: RetryState) -> bool:
    """Whether its copy is the message with headers added: nothing to replace, nothing to strip."""
    if state.is_marked or len(delivery.header) > _HEADER_BYTES_MAX:
        return False
    properties = delivery.properties
    return not properties.has_any(_STRIPPED) and properties.is_persistent()


def _encoded_time(now_ms: int) -> bytes:
    """The time as a field table encodes it."""
    return _TIME.pack(b"l", now_ms)


def _encoded(table: Mapping[str, Any]) -> bytes:
    return b"".join(encode_entries(table).values())


_GIVEN_ID, _DIGEST = (_encoded({name: ""})[: -_LENGTH.size] for name in (headers.MESSAGE_ID, headers.DIGEST))
"""The encoded headers for an id and a digest, up to their lengths."""
