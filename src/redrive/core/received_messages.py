"""A message that a consumer received, as the pure rooms see it: where it came from and what it carries, never its
body."""

from typing import Any, Protocol


class ReceivedMessage(Protocol):
    """One delivered message. The runtime passes a view that decodes lazily; tests pass `PlainMessage`."""

    @property
    def queue(self) -> str:
        """The queue it was consumed from."""

    @property
    def exchange(self) -> str:
        """The exchange it was last published to."""

    @property
    def routing_key(self) -> str:
        """The key it was last published with."""

    @property
    def redelivered(self) -> bool:
        """Whether a consumer may have had it before."""

    @property
    def has_anothers_headers(self) -> bool:
        """Whether its headers were copied from another message: its `x-redrive-digest` does not fit it."""

    def header(self, name: str, /) -> Any:
        """A header's value. None if the message has no such header, or if it is one of ours without a digest that
        fits."""

    def attribute(self, name: str, /) -> Any:
        """A property's value by its AMQP name (`message_id`, `timestamp`, `expiration`), None if it is not set."""


class PlainMessage:
    """A received message made of plain values; all its headers are believed."""

    def __init__(
        self,
        *,
        queue: str,
        exchange: str = "",
        routing_key: str | None = None,
        redelivered: bool = False,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        has_anothers_headers: bool = False,
    ) -> None:
        self.queue = queue
        self.exchange = exchange
        self.routing_key = queue if routing_key is None else routing_key
        self.redelivered = redelivered
        self.has_anothers_headers = has_anothers_headers
        self.headers = {} if headers is None else headers
        self.properties = {} if properties is None else properties

    def header(self, name: str, /) -> Any:
        """A header's value, None if the message has no such header."""
        return self.headers.get(name)

    def attribute(self, name: str, /) -> Any:
        """A property's value, None if it is not set."""
        return self.properties.get(name)
