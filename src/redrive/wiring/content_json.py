"""Messages as JSON, and headers back from it: for `redrive dlq` and the admin API."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redrive.core import shorten
from redrive.deadletters import InvalidEdit
from redrive.records import MessageContent
from redrive.stores import unwrap_envelope
from redrive.wire import Properties, ProtocolError, properties_as_json, properties_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentJson:
    """A message as JSON. `headers` are typed: see the docstring of `redrive.wire.typed_json`; a body that is no UTF-8
    is base64."""

    properties: dict[str, Any]
    headers: Any
    body: str
    body_encoding: str


def describe_content(content: MessageContent) -> ContentJson:
    """All of a message, lossless, whatever its bytes are; taken out of its envelope, if it was parked in one."""
    content = unwrap_envelope(content)
    properties = properties_as_json(content.properties)
    headers = properties.pop("headers", {})
    try:
        body, encoding = content.body.decode(), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(content.body).decode(), "base64"
    return ContentJson(properties=properties, headers=headers, body=body, body_encoding=encoding)


def headers_from_json(written: Mapping[str, Any]) -> dict[str, Any]:
    """The headers that `describe_content` made this from, for a `LetterEdit`. Raises `InvalidEdit`."""
    if not written:
        return {}
    try:
        return dict(Properties(properties_from_json({"headers": written})).headers or {})
    except (ProtocolError, ValueError, OverflowError) as error:
        raise InvalidEdit(f"these headers can't be written: {shorten(str(error), 300)}") from None
