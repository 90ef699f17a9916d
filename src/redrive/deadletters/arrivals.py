"""From a delivery to an arrival: explained, fingerprinted, made findable; its bytes as they came. Pure."""

from typing import Any

from redrive.client import Delivery
from redrive.core import RedriveError, headers, read_count
from redrive.deadletters.fingerprints import fingerprint
from redrive.deadletters.reconciling import Held
from redrive.deadletters.sources import Source
from redrive.records import ID_LENGTH, Arrival, Content, explain, search_text


class DeliveredLetter:
    """A delivery as `core.Letter`, its headers decoded once: explaining asks for a dozen, and searching for all."""

    __slots__ = ("_properties", "exchange", "headers", "queue", "redelivered", "routing_key")

    def __init__(self, delivery: Delivery, queue: str) -> None:
        self._properties = delivery.properties
        self.queue = queue
        self.exchange, self.routing_key = delivery.route
        self.redelivered = delivery.redelivered
        try:
            self.headers: dict[str, Any] = delivery.properties.headers
        except RedriveError:
            self.headers = {}

    def header(self, name: str, /) -> Any:
        """A header's value, None if it has none of the name."""
        return self.headers.get(name)

    def attribute(self, name: str, /) -> Any:
        """A property's value, None if it is not set."""
        return getattr(self._properties, name)


def held_of(delivery: Delivery) -> Held:
    """A delivery as reconciling sees it."""
    exchange, routing_key = delivery.route
    return Held(
        fingerprint=fingerprint(
            exchange=exchange, routing_key=routing_key, properties=delivery.header, body=delivery.body
        ),
        redelivered=delivery.redelivered,
        # Only after a crash it matters, and then only of what comes again.
        identified=delivery.redelivered and _is_identified(delivery),
    )


def arrival_of(
    delivery: Delivery, held: Held, *, source: Source, id: str, now_ms: int, twin_of: str | None = None
) -> Arrival:
    """A delivery, explained. Whatever its properties hold, it becomes an arrival: nothing is too odd to be kept."""
    letter = DeliveredLetter(delivery, source.dlq)
    explanation = explain(letter, dlq=source.dlq, now_ms=now_ms, service=source.service, known_queue=source.known_queue)
    redriven_id = letter.header(headers.REDRIVEN_ID)
    is_ours = isinstance(redriven_id, str) and len(redriven_id) == ID_LENGTH
    return Arrival(
        id=id,
        vhost=source.vhost,
        dlq=source.dlq,
        dlq_exchange=letter.exchange,
        dlq_routing_key=letter.routing_key,
        content=Content(properties=delivery.header, body=delivery.body),
        fingerprint=held.fingerprint,
        explanation=explanation,
        search_text=search_text(explanation, headers=letter.headers, body=delivery.body),
        collected_at_ms=now_ms,
        redriven_id=redriven_id if is_ours else None,
        redriven_count=(read_count(letter.header(headers.REDRIVEN_COUNT)) or 0) if is_ours else 0,
        twin_of=twin_of,
    )


def deliveries_so_far(delivery: Delivery) -> int:
    """The broker's count of earlier deliveries, 0 where it keeps none."""
    return read_count(_header(delivery, headers.DELIVERY_COUNT)) or 0


def _is_identified(delivery: Delivery) -> bool:
    try:
        properties = delivery.properties
        return bool(properties.message_id) or any(
            properties.header(name) is not None for name in (headers.MESSAGE_ID, headers.REDRIVEN_ID)
        )
    except RedriveError:
        return False


def _header(delivery: Delivery, name: str) -> Any:
    try:
        return delivery.properties.header(name)
    except RedriveError:
        return None
