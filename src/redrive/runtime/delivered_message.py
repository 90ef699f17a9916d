"""A delivery as the pure rooms see it: a `core.ReceivedMessage` that decodes what is asked for."""

from typing import Any

from redrive.client import Delivery
from redrive.core import Counter, Deaths, headers, read_deaths
from redrive.topology import HeaderTrust, QueuePlan, QueueType
from redrive.wire import digest_of


class DeliveredMessage:
    """A `core.ReceivedMessage` over a delivery; each header is decoded when it is first asked for.

    Headers of ours are read only if they are believed: on copies of this very message that came back by a declared
    route (the table is in `redrive.topology.deliveries.message_origin`).
    """

    __slots__ = ("_plan", "_read", "_trust", "delivery", "properties", "queue")

    def __init__(self, delivery: Delivery, plan: QueuePlan) -> None:
        self.delivery = delivery
        self.queue = plan.name
        self.properties = delivery.properties
        self._plan = plan
        self._trust: HeaderTrust | None = None
        self._read: dict[str, Any] | None = None

    @property
    def message_id(self) -> str | None:
        """Its own message_id, else the id that a copy of ours gave it."""
        own = self.properties.message_id
        given = self.header(headers.MESSAGE_ID) if own is None else own
        return given if isinstance(given, str) else None

    @property
    def trust(self) -> HeaderTrust:
        """Which of the headers of ours are believed."""
        if self._trust is None:
            may_be_ours = _DIGEST in self.delivery.header or self._plan.is_reentry(self.delivery.route)
            self._trust = self._judge() if may_be_ours else HeaderTrust.NONE
        return self._trust

    @property
    def has_anothers_headers(self) -> bool:
        """Whether its headers were copied from another message."""
        return self.trust is HeaderTrust.ANOTHERS

    @property
    def has_unbelieved(self) -> bool:
        """Whether it may have headers of ours that are not believed."""
        raw = self.delivery.header
        return self.trust is not HeaderTrust.OWN and any(mark in raw for mark in _MARKS)

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
        """A header's value; None if it has no such header, or if that is one of ours which is not believed."""
        read = self._read
        if read is None:
            read = self._read = {}
        elif name in read:
            return read[name]
        # Most are not there, and a search in the raw bytes says so without splitting them into properties.
        value = None
        if name.encode() in self.delivery.header and self._may_be_read(name):
            value = self._read_deaths() if name == headers.DEATHS else self.properties.header(name)
        read[name] = value
        return value

    def raw_deaths(self) -> bytes | None:
        """The encoded x-death header, None if it has none."""
        return self.properties.raw_header(headers.DEATHS) if _DIED in self.delivery.header else None

    def attribute(self, name: str, /) -> Any:
        """A property's value by its AMQP name, None if it is not set."""
        return getattr(self.properties, name)

    def _may_be_read(self, name: str) -> bool:
        if name in headers.BOUND_HEADERS:
            return self.trust is HeaderTrust.OWN or (
                self.trust is HeaderTrust.DOCUMENTED and name in headers.DOCUMENTED_HEADERS
            )
        if name == headers.DELIVERY_COUNT and self._plan.counted_by is Counter.DELIVERIES:
            return self._plan.queue.type == QueueType.QUORUM  # no other queue counts: a publisher wrote it
        return True

    def _judge(self) -> HeaderTrust:
        properties = self.properties
        own_id = properties.message_id
        message_id = properties.header(headers.MESSAGE_ID) if own_id is None else own_id

        def digest_for(queue: str) -> str:
            return digest_of(properties, queue, message_id=message_id, body=self.delivery.body)

        return self._plan.header_trust(
            self.delivery.route,
            digest=properties.header(headers.DIGEST),
            original_queue=properties.header(headers.ORIGINAL_QUEUE),
            digest_for=digest_for,
            deaths=self._read_deaths,
        )

    def _read_deaths(self) -> Deaths | None:
        """The decoded x-death header, shared by all messages that have the same bytes."""
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


_DIED, _DIGEST = headers.DEATHS.encode(), headers.DIGEST.encode()
_MARKS = (b"x-redrive", b"x-retry-count", b"x-original-", b"x-final-")
"""One of these is in the raw bytes if there may be headers of ours."""

# Messages that fail in the same second have the same x-death, to the byte: when thousands do, few are decoded.
_DEATHS: dict[bytes, Deaths | None] = {}
_DEATHS_MAX, _DEATHS_BYTES_MAX = 256, 4096
