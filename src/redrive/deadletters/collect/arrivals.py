"""A delivery becomes an arrival for the store: explained, fingerprinted, searchable, its bytes unchanged. Pure."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redrive.client import Delivery
from redrive.core import RedriveError, headers, read_count
from redrive.deadletters.collect.fingerprints import fingerprint, fingerprint_apart
from redrive.deadletters.collect.reconciliation import DeliveryIdentity
from redrive.deadletters.collect.sources import Source
from redrive.records import ID_LENGTH, Arrival, MessageContent, explain, marking_operation, search_text
from redrive.wire import Properties, open_envelope

_UNREAD = frozenset((headers.HISTORY,))
"""Headers not decoded here: they are read from the stored properties when somebody looks at the letter, and before that
only if no other header explains the failure."""


class BatchExplainer:
    """Explains the messages of one batch, most of them while the broker still sends the others."""

    def __init__(
        self, source: Source, *, new_id: Callable[[], str], clock_ms: Callable[[], int], group_key: bytes
    ) -> None:
        self._source = source
        self._group_key = group_key
        self._new_id = new_id
        self._clock_ms = clock_ms
        self._early: dict[Delivery, tuple[DeliveryIdentity, Arrival]] = {}

    def explain_early(self, delivery: Delivery) -> None:
        """Explains a delivery as soon as it arrives. Not one that was requeued before, because it may have killed a
        collector: the delivery limit must be checked first."""
        if not delivery.redelivered or deliveries_so_far(delivery) == 0:
            letter = DeliveredLetter(delivery, self._source.dlq)
            identity = _identity(delivery, letter.fingerprint(delivery))
            self._early[delivery] = (identity, self._arrival(delivery, identity, letter))

    def identity(self, delivery: Delivery) -> DeliveryIdentity:
        """What distinguishes the delivery from others."""
        explained = self._early.get(delivery)
        return identity_of(delivery) if explained is None else explained[0]

    def arrival(self, delivery: Delivery, identity: DeliveryIdentity, *, twin_of: str | None = None) -> Arrival:
        """The delivery as it is stored. `twin_of`: the stored letter of which it may be a copy."""
        explained = self._early.get(delivery)
        if explained is None:
            arrival = self._arrival(delivery, identity, DeliveredLetter(delivery, self._source.dlq))
        else:
            arrival = explained[1]
        return arrival if twin_of is None else replace(arrival, twin_of=twin_of)

    def forget(self) -> None:
        """Drops what it knows: the batch is stored, or lost."""
        self._early.clear()

    def _arrival(self, delivery: Delivery, identity: DeliveryIdentity, letter: "DeliveredLetter") -> Arrival:
        return arrival_of(
            delivery,
            identity,
            letter,
            source=self._source,
            id=self._new_id(),
            now_ms=self._clock_ms(),
            group_key=self._group_key,
        )


class DeliveredLetter:
    """A delivery as `core.ReceivedMessage`, its headers decoded once: explaining reads a dozen, searching all, and the
    fingerprint is made of their bytes.

    Where the delivery is an envelope, it is the message within; the fingerprint is the delivery's.
    """

    __slots__ = (
        "_apart",
        "_properties",
        "body",
        "exchange",
        "headers",
        "is_opened",
        "queue",
        "redelivered",
        "routing_key",
    )
    has_anothers_headers = False

    def __init__(self, delivery: Delivery, queue: str) -> None:
        # Not the delivery's own, which would keep what is decoded here for as long as the batch lives.
        self._properties = Properties(delivery.header)
        self.queue = queue
        self.exchange, self.routing_key = delivery.route
        self.redelivered = delivery.redelivered
        self.headers: dict[str, Any]
        self._apart: tuple[list[bytes], bytes] | None
        try:
            self.headers, entries, others = self._properties.take_apart(_UNREAD)
            self._apart = (entries, others)
        except RedriveError:
            self.headers, self._apart = {}, None
        self.body = delivery.body
        self.is_opened = False
        if headers.ENVELOPE in self.headers:
            self._open(delivery)

    def _open(self, delivery: Delivery) -> None:
        found = open_envelope(delivery.header, delivery.body)
        if found is not None:
            self._properties, self.body = found
            self.headers, self._apart = self._properties.headers, None
            self.is_opened = True

    def fingerprint(self, delivery: Delivery) -> bytes:
        """Of the delivery it was made of."""
        if self._apart is None or not headers.COUNT_HEADERS.isdisjoint(self.headers):
            exchange, routing_key = delivery.route
            return fingerprint(
                exchange=exchange, routing_key=routing_key, properties=delivery.header, body=delivery.body
            )
        entries, others = self._apart
        return fingerprint_apart(delivery.route, others, entries, delivery.body)

    def header(self, name: str, /) -> Any:
        """A header's value, None if it has none of the name."""
        if name in _UNREAD and self._apart is not None:
            try:
                return self._properties.header(name)
            except RedriveError:
                return None
        return self.headers.get(name)

    def attribute(self, name: str, /) -> Any:
        """A property's value, None if it is not set."""
        return getattr(self._properties, name)


def identity_of(delivery: Delivery) -> DeliveryIdentity:
    """What distinguishes the delivery from others."""
    exchange, routing_key = delivery.route
    return _identity(
        delivery,
        fingerprint(exchange=exchange, routing_key=routing_key, properties=delivery.header, body=delivery.body),
    )


def arrival_of(
    delivery: Delivery,
    identity: DeliveryIdentity,
    letter: DeliveredLetter,
    *,
    source: Source,
    id: str,
    now_ms: int,
    group_key: bytes,
) -> Arrival:
    """The arrival of a delivery. Every delivery becomes one, whatever its properties hold."""
    explanation = explain(
        letter,
        dlq=source.dlq,
        now_ms=now_ms,
        service=source.service,
        known_queue=source.known_queue,
        group_key=group_key,
    )
    redriven_id = letter.header(headers.REDRIVEN_ID)
    is_ours = isinstance(redriven_id, str) and len(redriven_id) == ID_LENGTH
    mark = letter.header(headers.REDRIVEN_MARK) if is_ours else None
    own_id = letter.attribute("message_id") if is_ours else None
    if own_id is None and is_ours:
        own_id = letter.header(headers.MESSAGE_ID)
    return Arrival(
        id=id,
        vhost=source.vhost,
        dlq=source.dlq,
        dlq_exchange=letter.exchange,
        dlq_routing_key=letter.routing_key,
        content=MessageContent(properties=delivery.header, body=delivery.body),
        fingerprint=identity.fingerprint,
        explanation=explanation,
        search_text=search_text(explanation, headers=letter.headers, body=letter.body),
        collected_at_ms=now_ms,
        redriven_id=redriven_id if is_ours else None,
        redriven_count=(read_count(letter.header(headers.REDRIVEN_COUNT)) or 0) if is_ours else 0,
        redriven_mark=None if marking_operation(mark) is None else mark,
        own_id=own_id if isinstance(own_id, str) else "",
        own_body=letter.body if letter.is_opened else None,
    )


def deliveries_so_far(delivery: Delivery) -> int:
    """The broker's count of earlier deliveries, 0 where it keeps none."""
    return read_count(_header(delivery, headers.DELIVERY_COUNT)) or 0


def _identity(delivery: Delivery, fingerprinted: bytes) -> DeliveryIdentity:
    # Whether it has an id matters only after a crash, and then only if it is redelivered.
    has_id = delivery.redelivered and _has_id(delivery)
    return DeliveryIdentity(fingerprint=fingerprinted, redelivered=delivery.redelivered, has_id=has_id)


def _has_id(delivery: Delivery) -> bool:
    try:
        properties = delivery.properties
        # A redriven copy has one of these; `x-redriven-id` alone may have been copied by an application.
        return bool(properties.message_id) or properties.header(headers.MESSAGE_ID) is not None
    except RedriveError:
        return False


def _header(delivery: Delivery, name: str) -> Any:
    try:
        return delivery.properties.header(name)
    except RedriveError:
        return None
