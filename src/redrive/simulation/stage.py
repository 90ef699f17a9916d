"""A broker with one topology, one consumer and one message, in virtual time: the engine without any I/O.

What a consumer says goes straight to the engine; what came of it is read from the engine's own journal. Time stands
still but for `wait` and `next_moment`, so that the same play always gives the same life.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redrive import wire
from redrive.core import Finding, InvalidDeclaration, PlainMessage, PublishCopy, Severity, headers
from redrive.embedded import PROFILES, Channel, Deliver, Engine, Got, Hop, Place, Refusal, Refused, Return
from redrive.simulation.consumers import BODY
from redrive.topology import DestinationType, ExchangeType, Topology

START_MS = 1_767_225_600_000
"""When every simulation begins: 2026-01-01, midnight, UTC. Only times in headers show it."""
MESSAGE_ID = "simulated"
_TAG = "simulation"
_OF_THE_DELIVERY = frozenset({headers.NOT_BEFORE, headers.DELIVERIES, headers.DEATHS_ALONE})
"""Headers that a copy has only if it is told to, as the runtime's copies."""
_EXAMPLE = "example"
"""Stands in for what a wildcard leaves open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The message in the consumer's hand."""

    letter: PlainMessage
    tag: int
    header: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Where a publisher sends what is to reach the queue."""

    exchange: str
    key: str


class Stage:
    """The part of a topology that is in one vhost, on an engine of one profile, with a consumer on one queue."""

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
        """The version played."""
        return self._engine.profile.name

    def publish(self, entrance: Entrance) -> None:
        """What the application does. Raises Refusal."""
        properties = wire.Properties.of(
            message_id=MESSAGE_ID,
            content_type="application/json",
            delivery_mode=2,
            timestamp=wire.Timestamp(START_MS // 1000),
        )
        self._publisher.publish(entrance.exchange, entrance.key, properties.raw, BODY)

    def take(self) -> Delivery | None:
        """What the consumer has been sent, if anything."""
        self._engine.resume()
        for effect in self._engine.take_effects():
            if isinstance(effect, Deliver):
                properties = wire.Properties(effect.header)
                letter = PlainMessage(
                    queue=self.queue,
                    exchange=effect.message.exchange,
                    routing_key=effect.message.keys[0],
                    redelivered=effect.redelivered,
                    headers=dict(properties.headers),
                    properties=properties.present(),
                )
                return Delivery(letter=letter, tag=effect.delivery_tag, header=effect.header)
        return None

    def ack(self, delivery: Delivery) -> None:
        """basic.ack."""
        self._consumer.ack(delivery.tag)

    def discard(self, delivery: Delivery, *, by_reject: bool) -> None:
        """Without requeue: by basic.reject, which 4.3 counts as a delivery, or by basic.nack, as our client says it."""
        if by_reject:
            self._consumer.reject(delivery.tag, requeue=False)
        else:
            self._consumer.nack(delivery.tag, requeue=False)

    def give_back(self, delivery: Delivery, *, counted: bool) -> None:
        """To the queue again: by basic.reject, which every version counts, or by basic.nack."""
        if counted:
            self._consumer.reject(delivery.tag, requeue=True)
        else:
            self._consumer.nack(delivery.tag, requeue=True)

    def copy(self, delivery: Delivery, command: PublishCopy) -> bool:
        """A confirmed, mandatory copy of what is in hand; whether the broker has it now."""
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
        except Refusal:
            self._publisher.close()
            self._publisher = self._open()
            self._publisher.select_confirms()
            return False
        return not any(isinstance(effect, Refused | Return) for effect in self._engine.effects[before:])

    def crash(self) -> None:
        """The consumer dies with what it has in hand, and another takes its place."""
        self._consumer.close()
        self._consumer = self._consume()

    def wait(self, duration_ms: int) -> None:
        """Time passes while the consumer holds the message."""
        self._engine.advance_to(self._engine.now_ms + duration_ms)

    def next_moment(self) -> bool:
        """On to the next moment at which something happens by itself; False if there is none."""
        next_ms = self._engine.next_deadline_ms
        if next_ms is None:
            return False
        self._engine.advance_to(next_ms)
        return True

    def hops(self) -> list[Hop]:
        """What the broker did with the message since the last call."""
        life = self._engine.journal.life_of(MESSAGE_ID)
        hops = self._engine.life(MESSAGE_ID)
        new = hops[self._read :]
        # The journal is bounded, a play is not: what was read is forgotten, but the last, which the engine looks at.
        del life[:-1]
        self._read = len(life)
        return new

    def places(self) -> list[Place]:
        """Where the copies of the message are."""
        return self._engine.whereabouts(MESSAGE_ID)

    def forget(self, queue: str) -> None:
        """Another application's copy, which it sees to itself."""
        self._publisher.purge_queue(queue)

    def headers_in(self, queue: str) -> dict[str, Any]:
        """The headers of the message in a queue; takes it out, so this is for the end."""
        channel = self._open()
        self._engine.take_effects()
        if not channel.get(queue, no_ack=True):
            return {}
        (got,) = (effect for effect in self._engine.take_effects() if isinstance(effect, Got))
        carried = dict(wire.Properties(got.header).headers)
        if carried.get(headers.DELIVERY_COUNT) == 0:
            del carried[headers.DELIVERY_COUNT]  # 3.10 says that to everybody who looks
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
        self._engine.finish()
        return channel

    def _declare(self, topology: Topology) -> None:
        """Everything; what the engine refuses is left out and said, unless it is the queue itself."""
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
            # As apply does: the type is always said.
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
        except Refusal as refusal:
            finding = Finding(
                code="left-out",
                severity=Severity.ERROR if needed else Severity.WARNING,
                address=address,
                summary=f"can't be declared: {refusal.text}",
            )
            if needed:
                raise InvalidDeclaration([finding]) from None
            self.left_out.append(finding)


def find_entrance(topology: Topology, *, vhost: str, queue: str) -> Entrance:
    """How a publisher reaches the queue: through the first exchange it is bound to, else straight by its name."""
    for binding in topology.bindings:
        if (binding.vhost, binding.destination, binding.destination_type) != (vhost, queue, DestinationType.QUEUE):
            continue
        exchange = topology.exchange(binding.source, vhost)
        if exchange is None or exchange.internal or exchange.type not in _KEYED:
            continue
        topic = exchange.type == ExchangeType.TOPIC
        return Entrance(exchange=exchange.name, key=example_key(binding.routing_key) if topic else binding.routing_key)
    return Entrance(exchange="", key=queue)


def example_key(pattern: str) -> str:
    """A key that a topic pattern matches: `orders.#` → `orders.example`."""
    return ".".join(_EXAMPLE if word in ("*", "#") else word for word in pattern.split("."))


_KEYED = (ExchangeType.DIRECT, ExchangeType.TOPIC, ExchangeType.FANOUT)
