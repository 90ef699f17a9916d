"""Parked copies cast from moulds: what is written on a dead letter, encoded once for all messages that end alike.

When a dependency is down thousands of messages are parked for the same reason, with the same error and the same stack.
What is written on them differs in the moment, in the digest, and in the id of those that have none. So the headers that
a shape wants written are encoded once, cut at the moment, and put together again for each message behind its own
headers, whose bytes are not looked at.

A mould knows no header and no shape: it is made from the commands of the first message of its kind. What it can't do is
left to `copies`, which can do everything: messages that carry headers of ours or have something to be stripped of.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from redrive.client import Delivery
from redrive.core import AckDelivery, Command, Failure, PublishCopy, headers
from redrive.runtime.pasts import WRITTEN, Past
from redrive.runtime.views import DeliveryLetter
from redrive.wire import Properties, digest_of, encode_entries, flags_of

_KEPT_MAX = 64
_HEADER_BYTES_MAX = 32_000
"""With a larger header the two together might not fit into a frame, and `copies` has to choose."""

_MESSAGE_ID = flags_of("message_id")
_STRIPPED = flags_of("user_id", "expiration")
_MOMENT = struct.Struct(">cq")
_LENGTH = struct.Struct(">I")


class Kind(NamedTuple):
    """All that decides what is written on a parked copy, but for the moment."""

    route: tuple[str, str]
    past: Past
    reason: str
    failure: Failure | None
    is_attempt: bool


class Mould(NamedTuple):
    """The copy of one kind: where it goes, and its headers' bytes, cut where the moment belongs."""

    copy: PublishCopy
    pieces: tuple[bytes, ...]

    def cast(self, letter: DeliveryLetter, now_ms: int, new_id: Callable[[], str]) -> Properties:
        """The properties of one message's copy."""
        written = _moment(now_ms).join(self.pieces)
        properties = letter.properties
        if properties.has_any(_MESSAGE_ID):
            message_id = properties.message_id
        else:
            message_id = new_id()
            given = message_id.encode()
            written += _GIVEN_ID + _LENGTH.pack(len(given)) + given
        digest = digest_of(properties, letter.queue, message_id=message_id, body=letter.delivery.body).encode()
        written += _DIGEST + _LENGTH.pack(len(digest)) + digest
        return properties.append_headers(written, drop=self.copy.drop_headers)


class Moulds:
    """The moulds of one queue."""

    def __init__(self) -> None:
        self._kept: dict[Kind, Mould] = {}

    def find(self, kind: Kind) -> Mould | None:
        """The mould of a kind, if there was one of it before."""
        return self._kept.get(kind)

    def make(self, kind: Kind, commands: tuple[Command, ...], now_ms: int) -> Mould | None:
        """A mould from the commands for the first of a kind; None if these are more than a copy and an ack."""
        match commands:
            case (PublishCopy(expiration_ms=None) as copy, AckDelivery()):
                pass
            case _:
                return None
        if not all(name.startswith(WRITTEN) for name in copy.set_headers):
            return None  # it might replace one of a message that is not marked
        pieces = tuple(_encoded(copy.set_headers).split(_moment(now_ms)))
        # Once for when it was parked and once for the attempt. More often: an error's text happens to look like it.
        if len(pieces) != (3 if kind.is_attempt else 2):
            return None
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        mould = self._kept[kind] = Mould(copy, pieces)
        return mould


def can_be_cast(delivery: Delivery, past: Past) -> bool:
    """Whether its copy is what it is itself with something added: nothing to replace, nothing to strip."""
    if past.is_marked or len(delivery.header) > _HEADER_BYTES_MAX:
        return False
    properties = delivery.properties
    return not properties.has_any(_STRIPPED) and properties.is_persistent()


def _moment(now_ms: int) -> bytes:
    """As a table has it."""
    return _MOMENT.pack(b"l", now_ms)


def _encoded(table: Mapping[str, Any]) -> bytes:
    return b"".join(encode_entries(table).values())


_GIVEN_ID, _DIGEST = (_encoded({name: ""})[: -_LENGTH.size] for name in (headers.MESSAGE_ID, headers.DIGEST))
"""The headers that an id and a digest are written into, as far as their lengths."""
