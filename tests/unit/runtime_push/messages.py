"""A message as a request is made from it, of plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(kw_only=True)
class PlainMessage:
    """What `Message` has, without a delivery behind it."""

    queue: str = "orders"
    exchange: str = "shop.events"
    routing_key: str = "orders.placed"
    attempt: int = 2
    attempts_max: int = 4
    redelivered: bool = False
    id: str | None = "m-1"
    correlation_id: str | None = None
    reply_to: str | None = None
    type: str | None = None
    app_id: str | None = None
    priority: int | None = None
    timestamp: datetime | None = None
    content_type: str | None = "application/json"
    content_encoding: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
