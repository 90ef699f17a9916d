"""The embedded engine with one topology, one consumer and one message, in virtual time and without I/O.

The consumer's commands go straight to the engine; what the engine did is read from its journal. Only `wait` and
`advance_to_next_deadline` move the clock, so the same simulation always gives the same timeline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redrive import wire
from redrive.core import Finding, InvalidDeclaration, PlainMessage, PublishCopy, Severity, headers
from redrive.embedded import (
    PROFILES,
    AmqpError,
    BasicReturn,
    Channel,
    ConfirmNack,
    Deliver,
    Engine,
    GetOk,
    Hop,
    MessageLocation,
)
from redrive.simulation.simulated_consumers import BODY
from redrive.topology import DestinationType, ExchangeType, Topology

START_MS = 1_767_225_600_000
"""When every simulation begins: 2026-01-01, midnight, UTC. Only times in headers show it."""
MESSAGE_ID = "simulated"
_TAG = "simulation"
_OF_THE_DELIVERY = frozenset({headers.NOT_BEFORE, headers.DELIVERIES, headers.DEATHS_ALONE})
"""Headers that a copy has only if its command sets them, as in the runtime."""
_EXAMPLE = "example"
"""Stands in for what a wildcard leaves open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDelivery:
    """A delivery that is not settled yet."""

    message: PlainMessage
    tag: int
    header: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRoute:
    """The exchange and routing key with which the message is published."""

    exchange: str
    key: str


class SimulatedBroker:
    """An engine of one profile with the topology of one vhost, and a consumer on one queue."""

    def __init__(self, topology: Topology, *, vhost: str, queue: str, profile: str) -> None:
        self.queue = queue
        self.left_out: list[Finding] = []
        self._engine = Engine(PROFILES[profile], START_MS)
        self._engine.add_vhost(vhost)
        self._connection = self._engine.connect(vhost, "guest")
        self._channels = 0
        self._read = 0
        self._declare(topology.only(vhost))
        self._publisher = self._open()
        self._publisher.select_confirms()
        self._consumer = self._consume()

    @property
    def now_ms(self) -> int:
        """Since the simulation began."""
        return self._engine.now_ms - START_MS

    @property
    def clock_ms(self) -> int:
        """Since 1970, as headers have it."""
        return self._engine.now_ms

    @property
    def profile(self) -> str:
        """The RabbitMQ version that is simulated."""
        return self._engine.profile.name

    def publish(self, route: PublishRoute) -> None:
        """Publishes the message, as the application would. Raises AmqpError."""
        properties = wire.Properties.of(
            message_id=MESSAGE_ID,
            content_type="application/json",
            delivery_mode=2,
            timestamp=wire.Timestamp(START_MS // 1000),
        )
        self._publisher.publish(route.exchange, route.key, properties.raw, BODY)

    def take(self) -> SimulatedDelivery | None:
        """The next delivery to the consumer, if there is one."""
        self._engine.resume()
        for effect in self._engine.take_effects():
            if isinstance(effect, Deliver):
                properties = wire.Properties(effect.header)
                message = PlainMessage(
                    queue=self.queue,
                    exchange=effect.message.exchange,
                    routing_key=effect.message.keys[0],
                    redelivered=effect.redelivered,
                    headers=dict(properties.headers),
                    properties=properties.present(),
                )
                return SimulatedDelivery(message=message, tag=effect.delivery_tag, header=effect.header)
        return None

    def ack(self, delivery: SimulatedDelivery) -> None:
        """basic.ack."""
        self._consumer.ack(delivery.tag)

    def discard(self, delivery: SimulatedDelivery, *, by_reject: bool) -> None:
        """Rejects without requeue: by basic.reject, which 4.3 counts as a delivery, or by basic.nack as our client."""
        if by_reject:
            self._consumer.reject(delivery.tag, requeue=False)
        else:
            self._consumer.nack(delivery.tag, requeue=False)

    def requeue(self, delivery: SimulatedDelivery, *, counted: bool) -> None:
        """Requeues: by basic.reject, which every version counts, or by basic.nack."""
        if counted:
            self._consumer.reject(delivery.tag, requeue=True)
        else:
            self._consumer.nack(delivery.tag, requeue=True)

    def copy(self, delivery: SimulatedDelivery, command: PublishCopy) -> bool:
        """Publishes a mandatory copy of the delivery; whether the broker confirmed it."""
        properties = wire.Properties(delivery.header).edit(
            headers=command.set_headers,
            drop=(command.drop_headers | _OF_THE_DELIVERY) - command.set_headers.keys(),
            expiration=None if command.expiration_ms is None else str(command.expiration_ms),
            delivery_mode=2,
            user_id=None,
        )
        before = len(self._engine.effects)
        try:
            self._publisher.publish(command.exchange, command.routing_key, properties.raw, BODY, mandatory=True)
        except AmqpError:
            self._publisher.close()
            self._publisher = self._open()
            self._publisher.select_confirms()
            return False
        return not any(isinstance(effect, ConfirmNack | BasicReturn) for effect in self._engine.effects[before:])

    def crash(self) -> None:
        """The consumer dies with its unsettled delivery, and another takes its place."""
        self._consumer.close()
        self._consumer = self._consume()

    def wait(self, duration_ms: int) -> None:
        """Time passes while the consumer holds the message."""
        self._engine.advance_to(self._engine.now_ms + duration_ms)

    def advance_to_next_deadline(self) -> bool:
        """Moves the clock to the next expiry or delayed delivery; False if there is none."""
        next_ms = self._engine.next_deadline_ms
        if next_ms is None:
            return False
        self._engine.advance_to(next_ms)
        return True

    def hops(self) -> list[Hop]:
        """What the broker did with the message since the last call."""
        life = self._engine.journal.history_of(MESSAGE_ID)
        hops = self._engine.life(MESSAGE_ID)
        new = hops[self._read :]
        # The journal is bounded, a simulation is not: what was read is deleted, but for the last hop, which the engine
        # looks at.
        del life[:-1]
        self._read = len(life)
        return new

    def places(self) -> list[MessageLocation]:
        """Where the copies of the message are."""
        return self._engine.whereabouts(MESSAGE_ID)

    def purge(self, queue: str) -> None:
        """Removes the copy in a queue of another application, whose consumer is not simulated."""
        self._publisher.purge_queue(queue)

    def headers_in(self, queue: str) -> dict[str, Any]:
        """The headers of the message in a queue. Consumes the message, so call it last."""
        channel = self._open()
        self._engine.take_effects()
        if not channel.get(queue, no_ack=True):
            return {}
        (got,) = (effect for effect in self._engine.take_effects() if isinstance(effect, GetOk))
        carried = dict(wire.Properties(got.header).headers)
        if carried.get(headers.DELIVERY_COUNT) == 0:
            del carried[headers.DELIVERY_COUNT]  # 3.10 adds that on every basic.get
        return carried

    def _open(self) -> Channel:
        self._channels += 1
        return self._connection.open_channel(self._channels)

    def _consume(self) -> Channel:
        channel = self._open()
        channel.qos(1)
        consumer = channel.consume(self.queue, _TAG, no_ack=False, exclusive=False, arguments={})
        assert consumer is not None
        consumer.queue.dispatch()
        self._engine.flush_dead_letters()
        return channel

    def _declare(self, topology: Topology) -> None:
        """Declares everything. What the engine refuses is left out with a finding; the queue itself must be there."""
        channel = self._open()
        for exchange in topology.exchanges:
            if exchange.name and not exchange.name.startswith("amq."):
                self._try(
                    exchange.address,
                    lambda one=exchange: channel.declare_exchange(  # type: ignore[misc]
                        one.name,
                        one.type,
                        durable=one.durable,
                        auto_delete=one.auto_delete,
                        internal=one.internal,
                        arguments=one.arguments.thaw(),
                    ),
                )
        for queue in topology.queues:
            # As apply does: the type is always explicit.
            arguments = {"x-queue-type": queue.type, **queue.arguments.thaw()}
            self._try(
                queue.address,
                lambda one=queue, table=arguments: channel.declare_queue(  # type: ignore[misc]
                    one.name, durable=one.durable, auto_delete=one.auto_delete, arguments=table
                ),
                needed=queue.name == self.queue,
            )
        for binding in topology.bindings:
            to_queue = binding.destination_type is DestinationType.QUEUE
            bind = channel.bind_queue if to_queue else channel.bind_exchange
            if binding.source:
                self._try(
                    binding.address,
                    lambda one=binding, bind=bind: bind(  # type: ignore[misc]
                        one.destination, one.source, one.routing_key, one.arguments.thaw()
                    ),
                )
        vhost = self._connection.vhost
        for policy in topology.policies:
            vhost.set_policy(policy)

    def _try(self, address: str, declare: Callable[[], object], *, needed: bool = False) -> None:
        try:
            declare()
        except AmqpError as refusal:
            finding = Finding(
                code="left-out",
                severity=Severity.ERROR if needed else Severity.WARNING,
                address=address,
                summary=f"can't be declared: {refusal.text}",
            )
            if needed:
                raise InvalidDeclaration([finding]) from None
            self.left_out.append(finding)


def find_publish_route(topology: Topology, *, vhost: str, queue: str) -> PublishRoute:
    """How a publisher reaches the queue: through the first exchange it is bound to, else straight by its name."""
    for binding in topology.bindings:
        if (binding.vhost, binding.destination, binding.destination_type) != (vhost, queue, DestinationType.QUEUE):
            continue
        exchange = topology.exchange(binding.source, vhost)
        if exchange is None or exchange.internal or exchange.type not in _KEYED:
            continue
        topic = exchange.type == ExchangeType.TOPIC
        key = example_key(binding.routing_key) if topic else binding.routing_key
        return PublishRoute(exchange=exchange.name, key=key)
    return PublishRoute(exchange="", key=queue)


def example_key(pattern: str) -> str:
    """A key that a topic pattern matches: `orders.#` → `orders.example`."""
    return ".".join(_EXAMPLE if word in ("*", "#") else word for word in pattern.split("."))


_KEYED = (ExchangeType.DIRECT, ExchangeType.TOPIC, ExchangeType.FANOUT)
