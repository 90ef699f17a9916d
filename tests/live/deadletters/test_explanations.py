"""Letters that died on a real broker in every way there is are explained: where, why, by what error, of which kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pika
import pytest

from redrive.client import Client, Delivery
from redrive.core import Failure, Parked, ParkReason, PlainMessage, Report, parking_headers
from redrive.deadletters.collect.fingerprints import fingerprint
from redrive.records import Explanation, explain, search_text, words_of
from tests.live.client.accounts import ready, wait_ready
from tests.unit.client.scenario import run_scenario, wait_until
from tests.unit.records import sample_headers as frameworks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rig.brokers import Vhost

DLQ = "graveyard"
WAIT_S_MAX = 60.0
TYPES = pytest.mark.parametrize("queue_type", ["classic", "quorum"])


class _Letter:
    """A delivery as `explain` wants it."""

    has_anothers_headers = False

    def __init__(self, delivery: Delivery) -> None:
        self._properties = delivery.properties
        self.queue, self.redelivered = DLQ, delivery.redelivered
        self.exchange, self.routing_key = delivery.route

    def header(self, name: str, /) -> Any:
        return self._properties.header(name)

    def attribute(self, name: str, /) -> Any:
        return getattr(self._properties, name)


@contextmanager
def connected(vhost: Vhost) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def make_queues(channel: Any, queue_type: str, *, dead_to: str = DLQ, **arguments: Any) -> None:
    """`orders`, bound to a topic exchange and dead-lettered to `dead_to`, and the DLQ, all of one type."""
    kind = {"x-queue-type": queue_type}
    channel.exchange_declare("shop", "topic", durable=True)
    channel.queue_declare(DLQ, durable=True, arguments=kind)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_to}
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    channel.queue_declare("orders", durable=True, arguments={**kind, **dead, **named})
    channel.queue_bind("orders", "shop", "order.*")


def publish(channel: Any, body: bytes = b'{"order": 17}', **properties: Any) -> None:
    sent = pika.BasicProperties(delivery_mode=2, type="order.placed", message_id="m-17", app_id="web", **properties)
    channel.confirm_delivery()
    channel.basic_publish("shop", "order.placed", body, sent, mandatory=True)


def take(channel: Any, queue: str = "orders") -> int:
    """The delivery tag of the next message, waited for: what returns takes a moment."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        method, _, _ = channel.basic_get(queue)
        if method is not None:
            return int(method.delivery_tag)
        assert time.monotonic() < deadline, f"nothing came to {queue}"
        time.sleep(0.02)


def collected(vhost: Vhost, count: int = 1) -> list[tuple[Explanation, Delivery]]:
    """Everything in the DLQ, taken with our client and explained; exactly so many."""
    wait_ready(vhost.amqp_url, DLQ, count)
    taken: list[tuple[Explanation, Delivery]] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:

            def handle(delivery: Delivery) -> None:
                now_ms = time.time_ns() // 1_000_000
                taken.append((explain(_Letter(delivery), dlq=DLQ, now_ms=now_ms), delivery))
                delivery.ack()

            consumer = await client.consume(DLQ, handle)
            await wait_until(lambda: len(taken) == count and consumer.in_progress == 0, timeout_s=WAIT_S_MAX)
            await consumer.flush()

    run_scenario(scenario(), timeout_s=2 * WAIT_S_MAX)
    assert ready(vhost.amqp_url, DLQ) == 0
    return taken


def die_by_reject(channel: Any) -> None:
    publish(channel)
    channel.basic_reject(take(channel), requeue=False)


def die_by_expiry(channel: Any) -> None:
    publish(channel, expiration="50")


def die_by_length(channel: Any) -> None:
    publish(channel)
    publish(channel, b"the one that pushes it out")


def die_by_limit(channel: Any) -> None:
    publish(channel)
    for _ in range(3):
        channel.basic_reject(take(channel), requeue=True)


DEATHS: list[tuple[str, str, Callable[[Any], None], dict[str, Any]]] = [
    ("classic", "rejected", die_by_reject, {}),
    ("quorum", "rejected", die_by_reject, {}),
    ("classic", "expired", die_by_expiry, {}),
    ("quorum", "expired", die_by_expiry, {}),
    ("classic", "maxlen", die_by_length, {"x_max_length": 1}),
    ("quorum", "maxlen", die_by_length, {"x_max_length": 1}),
    ("quorum", "delivery_limit", die_by_limit, {"x_delivery_limit": 2}),
]
"""Classic queues have no delivery limit."""


@pytest.mark.live
@pytest.mark.parametrize(("queue_type", "reason", "die", "arguments"), DEATHS)
def test_a_death_by_the_broker_is_told_by_its_queue_and_reason(
    vhost: Vhost, queue_type: str, reason: str, die: Callable[[Any], None], arguments: dict[str, Any]
) -> None:
    before_ms = time.time_ns() // 1_000_000
    with connected(vhost) as channel:
        make_queues(channel, queue_type, **arguments)
        die(channel)
    ((letter, delivery),) = collected(vhost)
    assert delivery.body == b'{"order": 17}'
    assert (letter.told_by, letter.queue, letter.reason) == ("x-death", "orders", reason)
    assert (letter.exchange, letter.routing_key) == ("shop", "order.placed")
    assert (letter.error_type, letter.error_message, letter.stack) == (None, None, None)
    assert (letter.message_id, letter.type, letter.service) == ("m-17", "order.placed", "web")
    assert letter.group_title == f"{reason} in orders (order.placed)"
    assert letter.attempts == (1 if reason == "rejected" else None)
    assert letter.died_at_ms is not None
    assert abs(letter.died_at_ms - before_ms) < 3_600_000
    words = words_of(search_text(letter, headers=delivery.properties.headers, body=delivery.body))
    assert {"order", "17", "orders", reason.partition("_")[0]} <= set(words)


@TYPES
@pytest.mark.live
def test_after_a_retry_loop_of_the_broker_the_failed_queue_is_the_main_one(vhost: Vhost, queue_type: str) -> None:
    """main (reject) → retry (expires) → main, twice; then the consumer parks it by publishing it with its x-death."""
    with connected(vhost) as channel:
        make_queues(channel, queue_type, dead_to="orders.retry")
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": 50}
        channel.queue_declare("orders.retry", durable=True, arguments={"x-queue-type": queue_type, **back})
        publish(channel)
        for _ in range(2):
            channel.basic_reject(take(channel), requeue=False)
        deadline = time.monotonic() + WAIT_S_MAX
        method = None
        while method is None:
            method, properties, body = channel.basic_get("orders")
            assert time.monotonic() < deadline
        channel.basic_publish("", DLQ, body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
    ((letter, _),) = collected(vhost)
    assert (letter.told_by, letter.queue, letter.reason) == ("x-death", "orders", "rejected")
    assert (letter.exchange, letter.routing_key, letter.attempts) == ("shop", "order.placed", 2)
    assert letter.group_title == "rejected in orders (order.placed)"


@TYPES
@pytest.mark.live
def test_a_copy_that_waited_first_and_was_then_rejected_failed_where_it_was_rejected(
    vhost: Vhost, queue_type: str
) -> None:
    """A consumer that publishes into a wait queue makes that the first death of the message."""
    with connected(vhost) as channel:
        make_queues(channel, queue_type)
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders", "x-message-ttl": 50}
        channel.queue_declare("pause.5s", durable=True, arguments={"x-queue-type": queue_type, **back})
        channel.confirm_delivery()
        channel.basic_publish("", "pause.5s", b"{}", pika.BasicProperties(delivery_mode=2), mandatory=True)
        channel.basic_reject(take(channel), requeue=False)
    ((letter, delivery),) = collected(vhost)
    assert delivery.properties.header("x-first-death-queue") == "pause.5s"
    assert (letter.queue, letter.reason, letter.group_title) == ("orders", "rejected", "rejected in orders")


@pytest.mark.live
def test_each_framework_s_headers_survive_the_broker_and_are_explained(vhost: Vhost) -> None:
    failure = Failure(
        type="TimeoutError", message="payment 4711 took 3000 ms", stack='  File "/app/s.py", line 3, in pay'
    )
    delivered = PlainMessage(queue="orders", exchange="shop", routing_key="order.placed")
    ours = parking_headers(
        Parked(reason=ParkReason.ATTEMPTS),
        delivered,
        Report(retries=3, now_ms=frameworks.FAILED_AT_MS, failure=failure),
    )
    styles = {
        "redrive": (ours, "TimeoutError", "orders"),
        "masstransit": (frameworks.MASSTRANSIT, "System.TimeoutException", "orders"),
        "nservicebus": (frameworks.NSERVICEBUS, "System.TimeoutException", "orders"),
        "wolverine": (frameworks.WOLVERINE, "System.TimeoutException", DLQ),
        "spring": (frameworks.SPRING, "com.acme.orders.PaymentTimeout", DLQ),
        "event-bus": (frameworks.EVENT_BUS, "HTTP 503", DLQ),
    }
    with connected(vhost) as channel:
        channel.queue_declare(DLQ, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        for headers, _, _ in styles.values():
            for number in ("4711", "4712"):
                letter = {
                    name: value.replace("4711", number) if isinstance(value, str) else value
                    for name, value in headers.items()
                }
                properties = pika.BasicProperties(delivery_mode=2, headers=letter)
                channel.basic_publish("", DLQ, b"{}", properties, mandatory=True)
    found = [letter for letter, _ in collected(vhost, 2 * len(styles))]
    assert [one.told_by for one in found] == [name for name in styles for _ in range(2)]
    for one, again in zip(found[::2], found[1::2], strict=True):
        _, error_type, queue = styles[one.told_by]
        assert (one.error_type, one.queue) == (error_type, queue)
        assert one.group_id == again.group_id
        if one.told_by not in ("event-bus", "spring"):
            assert one.died_at_ms == frameworks.FAILED_AT_MS
        if one.told_by != "event-bus":
            assert one.error_message == "payment 4711 took 3000 ms"
            assert again.error_message == "payment 4712 took 3000 ms"
    # The two .NET ones report one failure in one queue: that is one group.
    groups = {one.told_by: one.group_id for one in found}
    assert groups["masstransit"] == groups["nservicebus"]
    assert len(set(groups.values())) == len(styles) - 1


@TYPES
@pytest.mark.live
def test_a_message_given_back_has_the_same_fingerprint_when_it_comes_again(vhost: Vhost, queue_type: str) -> None:
    with connected(vhost) as channel:
        make_queues(channel, queue_type)
        publish(channel, headers={"z": 1, "a": "x", "m": [1, {"q": 2, "b": None}]})
        channel.basic_reject(take(channel), requeue=False)
    wait_ready(vhost.amqp_url, DLQ, 1)
    seen: list[tuple[bool, bytes]] = []

    async def scenario() -> None:
        async with Client(vhost.amqp_url) as client:

            def handle(delivery: Delivery) -> None:
                exchange, key = delivery.route
                made = fingerprint(exchange=exchange, routing_key=key, properties=delivery.header, body=delivery.body)
                seen.append((delivery.redelivered, made))
                if len(seen) < 4:
                    delivery.reject(requeue=True)
                else:
                    delivery.ack()

            consumer = await client.consume(DLQ, handle, prefetch=1)
            await wait_until(lambda: len(seen) == 4 and consumer.in_progress == 0, timeout_s=WAIT_S_MAX)
            await consumer.flush()

    run_scenario(scenario(), timeout_s=2 * WAIT_S_MAX)
    assert len({made for _, made in seen}) == 1
    # Where the broker carries its counts through a dead-lettering, a message that was rejected before comes out of the
    # DLQ as `redelivered` the first time already: the flag alone does not say that a collector had it.
    first = (vhost.profile, queue_type) in {("4.0", "quorum"), ("4.3", "classic"), ("4.3", "quorum")}
    assert [redelivered for redelivered, _ in seen] == [first, True, True, True]
    assert ready(vhost.amqp_url, DLQ) == 0
