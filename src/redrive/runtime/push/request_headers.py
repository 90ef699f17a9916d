"""A message's properties and headers as HTTP headers. Pure.

Values keep printable ASCII; everything else, and `%` itself, is percent-encoded UTF-8, so that any language decodes the
value with its usual URL decoder. Servers limit the size of a request's head (node 16 kB, nginx 8 kB a line): headers of
the message that are too much are left out and counted.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote, quote_from_bytes

from redrive.core import headers as names

IDEMPOTENCY_KEY = "idempotency-key"
HEADER_PREFIX = "x-redrive-header-"
LEFT_OUT = "x-redrive-headers-left-out"
VALUE_BYTES_MAX = 2_048
HEADERS_BYTES_MAX = 6_144
"""All `x-redrive-header-…` together, names and values."""

TRACE_HEADERS = ("traceparent", "tracestate", "baggage")
"""W3C's, passed on under their own names."""

NOT_SENT = (
    names.DEATH_HEADERS
    | names.ROUTING_HEADERS
    | {names.HISTORY, names.STACK, names.STRIPPED, names.DIGEST, *TRACE_HEADERS}
)
"""The broker's own headers and ours."""

_PROPERTIES = {
    "id": "x-redrive-message-id",
    "correlation_id": "x-redrive-correlation-id",
    "type": "x-redrive-type",
    "app_id": "x-redrive-app-id",
    "reply_to": "x-redrive-reply-to",
    "priority": "x-redrive-priority",
}
_SAFE_IN_VALUE = "!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ "
_SAFE_IN_NAME = "!#$&'*+-.^_`|~"
_NEEDS_NOTHING = re.compile(r"[!-$&-~]+(?: +[!-$&-~]+)*")
_TRACE_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,2046}[\x21-\x7e])?")
_TOKEN = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~/ ;=\"-]{1,255}")


class PushedMessage(Protocol):
    """What a request is made from; a `Message` has all of it."""

    @property
    def attempts_max(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def id(self) -> str | None: ...
    @property
    def correlation_id(self) -> str | None: ...
    @property
    def reply_to(self) -> str | None: ...
    @property
    def type(self) -> str | None: ...
    @property
    def app_id(self) -> str | None: ...
    @property
    def priority(self) -> int | None: ...
    @property
    def timestamp(self) -> datetime | None: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def content_encoding(self) -> str | None: ...
    @property
    def headers(self) -> Mapping[str, Any]: ...


def request_headers(message: PushedMessage) -> dict[str, str]:
    """All headers of a request that describe its message."""
    return {
        **content_headers(message.content_type, message.content_encoding),
        **property_headers(message),
        "x-redrive-queue": encode_value(message.queue),
        "x-redrive-exchange": encode_value(message.exchange),
        "x-redrive-routing-key": encode_value(message.routing_key),
        "x-redrive-attempt": str(message.attempt),
        "x-redrive-attempts-max": str(message.attempts_max),
        "x-redrive-redelivered": "true" if message.redelivered else "false",
        **message_headers(message.headers),
    }


def idempotency_key(queue: str, message_id: str | None, body: bytes) -> str | None:
    """The key by which the service recognises a message: the same on each of its attempts, different for other
    messages.

    None without an id: two messages with equal bodies could not be told apart, and the service would drop one of them
    as a duplicate. The queue and the body are part of it, because one message in two queues is two pieces of work, and
    publishers give one id to several messages (an order's number, say).
    """
    if not message_id:
        return None
    digest = hashlib.sha256()
    for part in (queue.encode("utf-8", "surrogateescape"), message_id.encode("utf-8", "surrogateescape")):
        digest.update(len(part).to_bytes(4))
        digest.update(part)
    digest.update(body)
    return digest.hexdigest()[:32]


def content_headers(content_type: str | None, encoding: str | None) -> dict[str, str]:
    """The content type and encoding, if the message has them and HTTP can carry them."""
    found = {"content-type": "application/octet-stream"}
    if content_type is not None and _is_plain(content_type):
        found["content-type"] = content_type
    # Some publishers write a charset here by mistake; a service would refuse an encoding it does not know.
    if (
        encoding is not None
        and _is_plain(encoding)
        and encoding.lower() not in ("utf-8", "utf8", "identity", "binary", "ascii")
    ):
        found["content-encoding"] = encoding
    return found


def property_headers(message: PushedMessage) -> dict[str, str]:
    """The properties that are set: `x-redrive-correlation-id` and so on."""
    found = {}
    for name, header in _PROPERTIES.items():
        value = getattr(message, name)
        if value is not None and value != "":
            found[header] = encode_value(value)[:VALUE_BYTES_MAX]
    if message.timestamp is not None:
        found["x-redrive-timestamp"] = str(int(message.timestamp.timestamp()))
    return found


def message_headers(table: Mapping[str, Any]) -> dict[str, str]:
    """The message's own headers: `x-redrive-header-<name>`, the trace headers under their own names."""
    found: dict[str, str] = {}
    for name in TRACE_HEADERS:
        value = table.get(name)
        if isinstance(value, str) and _TRACE_VALUE.fullmatch(value):
            found[name] = value
    room = HEADERS_BYTES_MAX
    left_out = 0
    for name, value in table.items():
        if name in NOT_SENT:
            continue
        header, text = HEADER_PREFIX + encode_name(name), encode_value(value)
        size = len(header) + len(text) + 4
        if len(text) > VALUE_BYTES_MAX or size > room or header in found:
            left_out += 1
            continue
        room -= size
        found[header] = text
    if left_out:
        found[LEFT_OUT] = str(left_out)
    return found


def encode_name(name: str) -> str:
    """A header's name in lower case, percent-encoded where HTTP could not carry it."""
    return quote(_octets(name), safe=_SAFE_IN_NAME).lower()


def encode_value(value: Any) -> str:
    """A value as text that any HTTP header can carry. Tables and lists are JSON."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _encode_text(value)
        case bytes() | bytearray():
            return _edges(quote_from_bytes(bytes(value), safe=_SAFE_IN_VALUE))
        case datetime():
            return str(int(value.timestamp()))
        case None:
            return ""
        case int() | float():
            return str(value)
        case Mapping() | list() | tuple():
            return _encode_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_in_json))
        case _:
            return _encode_text(str(value))


def _encode_text(text: str) -> str:
    if _NEEDS_NOTHING.fullmatch(text):
        return text  # nearly all: ids, keys, names
    return _edges(quote(_octets(text), safe=_SAFE_IN_VALUE))


def _edges(encoded: str) -> str:
    """Spaces around a value are not part of it in HTTP."""
    stripped = encoded.strip(" ")
    if len(stripped) == len(encoded):
        return encoded
    head = len(encoded) - len(encoded.lstrip(" "))
    tail = len(encoded) - head - len(stripped)
    return "%20" * head + stripped + "%20" * tail


def _octets(text: str) -> bytes:
    """UTF-8; bytes that were none come back as they were (PEP 383)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _is_plain(value: str) -> bool:
    return _TOKEN.fullmatch(value) is not None and value.strip(" ") == value


def _in_json(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    return int(value.timestamp()) if isinstance(value, datetime) else str(value)
