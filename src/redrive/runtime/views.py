"""A delivery as the pure rooms see it, decoded as it is asked for."""

from typing import Any

from redrive.client import Delivery
from redrive.core import Deaths, headers, read_deaths


class DeliveryLetter:
    """A `core.Letter` over a delivery; each header is read once it is wanted."""

    __slots__ = ("_read", "delivery", "properties", "queue")

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self.delivery = delivery
        self.queue = queue
        self.properties = delivery.properties
        self._read: dict[str, Any] | None = None

    @property
    def exchange(self) -> str:
        """The exchange it was last published to."""
        return self.delivery.route[0]

    @property
    def routing_key(self) -> str:
        """The key it was last published with."""
        return self.delivery.route[1]

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before."""
        return self.delivery.redelivered

    def header(self, name: str, /) -> Any:
        """A header's value, None if it has none of the name."""
        read = self._read
        if read is None:
            read = self._read = {}
        elif name in read:
            return read[name]
        # Most are not there, and a search in the raw bytes says so without splitting them into properties.
        value = None
        if name.encode() in self.delivery.header:
            value = self._read_deaths() if name == headers.DEATHS else self.properties.header(name)
        read[name] = value
        return value

    def raw_deaths(self) -> bytes | None:
        """The x-death header as its bytes, None if it has none."""
        return self.properties.raw_header(headers.DEATHS) if _DIED in self.delivery.header else None

    def attribute(self, name: str, /) -> Any:
        """A property's value by its AMQP name, None if it is not set."""
        return getattr(self.properties, name)

    def _read_deaths(self) -> Deaths | None:
        """The x-death header, shared by all that have the same."""
        raw = self.raw_deaths()
        if raw is None:
            return None
        if raw in _DEATHS:
            return _DEATHS[raw]
        deaths = read_deaths(self.properties.header(headers.DEATHS))
        if len(raw) <= _DEATHS_BYTES_MAX:
            if len(_DEATHS) >= _DEATHS_MAX:
                _DEATHS.clear()
            _DEATHS[raw] = deaths
        return deaths


_DIED = headers.DEATHS.encode()

# Messages that fail in the same second have died alike, to the byte: when thousands do, few x-deaths are decoded.
_DEATHS: dict[bytes, Deaths | None] = {}
_DEATHS_MAX, _DEATHS_BYTES_MAX = 256, 4096
