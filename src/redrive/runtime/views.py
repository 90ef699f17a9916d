"""A delivery as the pure rooms see it, decoded as it is asked for."""

from typing import Any

from redrive.client import Delivery


class DeliveryLetter:
    """A `core.Letter` over a delivery; each header is read once it is wanted."""

    __slots__ = ("_read", "delivery", "queue")

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self.delivery = delivery
        self.queue = queue
        self._read: dict[str, Any] = {}

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
        if name not in read:
            read[name] = self.delivery.properties.header(name)
        return read[name]

    def attribute(self, name: str, /) -> Any:
        """A property's value by its AMQP name, None if it is not set."""
        return getattr(self.delivery.properties, name)
