"""AMQP's values as JSON and back, as the management plugin turns them.

JSON has one kind of number: a whole one becomes a 64-bit integer, which is what RabbitMQ's texts then call `long`.
"""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from redrive import wire
from redrive.embedded.management.replies import JSON, bad_request

DEPTH_MAX = 100
"""Tables inside tables, as far as the wire takes them."""
_WHOLE_MIN, _WHOLE_MAX = -(2**63), 2**63 - 1


def to_json(value: Any) -> JSON:
    """A table's value, ready for `json`. Bytes that are not UTF-8 are decoded with replacement characters."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value).decode("utf-8", "replace")


def from_json(value: JSON, depth: int = 0) -> Any:
    """JSON as a table's value. Raises ApiError for a number that AMQP can't carry, and for too deep nesting."""
    if depth > DEPTH_MAX:
        raise bad_request(f"nested deeper than {DEPTH_MAX}")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not _WHOLE_MIN <= value <= _WHOLE_MAX:
            raise bad_request("a number of more than 64 bits")
        return wire.Int64(value)
    if isinstance(value, dict):
        return {key: from_json(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [from_json(one, depth + 1) for one in value]
    return value


def write_json(content: JSON) -> bytes:
    """JSON in as few bytes as RabbitMQ writes it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
