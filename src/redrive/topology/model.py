"""The model of a RabbitMQ topology: vhosts, exchanges, queues, bindings and policies, as immutable values.

Two values are equal when the broker could not tell them apart: the order of arguments does not matter, an absent
`x-queue-type` equals an explicit `classic`, an absent argument map an empty one. Keys that this model does not know are
kept in `extra`, survive a round trip and take no part in equality.

The model knows neither YAML nor JSON (see `declaration` and `definitions`), nor what is wise (see `arguments` and the
shapes). Every object has an address that people can read: "queue orders.wait.30s", the vhost named when it isn't "/".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from redrive.topology.argument_table import NO_ARGUMENTS, Arguments, Value

DEFAULT_VHOST = "/"
DEFAULT_EXCHANGE = ""
"""The nameless exchange: it routes to the queue named by the routing key, and nothing can be bound to it."""


class QueueType(StrEnum):
    """The kinds of queue. Their arguments and their guarantees differ; a queue's type can never be changed."""

    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


class ExchangeType(StrEnum):
    """The kinds of exchange every broker has; plugins add others, which the model keeps as plain text."""

    DIRECT = "direct"
    TOPIC = "topic"
    FANOUT = "fanout"
    HEADERS = "headers"


class DestinationType(StrEnum):
    """What a binding leads to."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


_Named = TypeVar("_Named", "Exchange", "Queue")


def address(kind: str, name: str, vhost: str = DEFAULT_VHOST) -> str:
    """The name of an object in every text: "queue orders", "queue orders (vhost billing)"."""
    return f"{kind} {name or '(default)'}" + ("" if vhost == DEFAULT_VHOST else f" (vhost {vhost})")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Vhost:
    """A vhost; `default_queue_type` fills in the type of queues declared there without one."""

    name: str
    default_queue_type: str | None = None
    extra: Arguments = NO_ARGUMENTS

    @property
    def address(self) -> str:
        """ "vhost /"."""
        return f"vhost {self.name}"

    def _meaning(self) -> tuple[str, str]:
        # 4.x exports "classic" or "undefined" where nothing was ever set.
        unset = self.default_queue_type in (None, "undefined", QueueType.CLASSIC)
        return self.name, QueueType.CLASSIC if unset else str(self.default_queue_type)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vhost):
            return NotImplemented
        return self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash(self._meaning())


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """An exchange. `type` is one of `ExchangeType`, or a plugin's own."""

    name: str
    type: str
    vhost: str = DEFAULT_VHOST
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = NO_ARGUMENTS
    extra: Arguments = field(default=NO_ARGUMENTS, compare=False)

    @property
    def address(self) -> str:
        """ "exchange domain.events"."""
        return address("exchange", self.name, self.vhost)

    @property
    def alternate_exchange(self) -> str | None:
        """The exchange that gets messages no binding matches, by argument; None without one."""
        return _text(self.arguments.get("alternate-exchange"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queue:
    """A queue. Its type is the `x-queue-type` argument; absent means classic."""

    name: str
    vhost: str = DEFAULT_VHOST
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    extra: Arguments = NO_ARGUMENTS

    @property
    def address(self) -> str:
        """ "queue orders.wait.30s"."""
        return address("queue", self.name, self.vhost)

    @property
    def type(self) -> str:
        """One of `QueueType`, or what a newer broker calls its own."""
        written = self.arguments.get("x-queue-type")
        return QueueType.CLASSIC if written is None else str(written)

    @property
    def dead_letter_exchange(self) -> str | None:
        """The DLX by argument ("" is the default exchange), None without one; a policy may still give one."""
        return _text(self.arguments.get("x-dead-letter-exchange"))

    @property
    def dead_letter_routing_key(self) -> str | None:
        """The routing key that dead letters get; None: they keep their own."""
        return _text(self.arguments.get("x-dead-letter-routing-key"))

    @property
    def message_ttl_ms(self) -> int | None:
        """How long a message may wait, by argument."""
        return _number(self.arguments.get("x-message-ttl"))

    @property
    def delivery_limit(self) -> int | None:
        """How often a quorum queue redelivers a message before it dead-letters it, by argument."""
        return _number(self.arguments.get("x-delivery-limit"))

    def _meaning(self) -> tuple[Any, ...]:
        return (
            self.name,
            self.vhost,
            self.durable,
            self.auto_delete,
            self.type,
            self.arguments.without("x-queue-type"),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Queue):
            return NotImplemented
        return self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash((self.name, self.vhost, self.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A binding from an exchange to a queue or another exchange."""

    source: str
    destination: str
    destination_type: DestinationType = DestinationType.QUEUE
    routing_key: str = ""
    vhost: str = DEFAULT_VHOST
    arguments: Arguments = NO_ARGUMENTS
    extra: Arguments = field(default=NO_ARGUMENTS, compare=False)

    @property
    def address(self) -> str:
        """ "binding domain.events → orders (orders.#)"."""
        arrow = f"{self.source} → {self.destination}" + (f" ({self.routing_key})" if self.routing_key else "")
        return address("binding", arrow, self.vhost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy, or an operator policy: settings for every queue or exchange whose name matches a pattern."""

    name: str
    pattern: str
    definition: Arguments
    apply_to: str = "all"
    priority: float = 0  # a whole number by habit, but the broker takes and orders by any
    operator: bool = False
    vhost: str = DEFAULT_VHOST
    extra: Arguments = field(default=NO_ARGUMENTS, compare=False)

    @property
    def address(self) -> str:
        """ "policy limits", "operator policy limits"."""
        return address("operator policy" if self.operator else "policy", self.name, self.vhost)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Topology:
    """A whole topology: every object once, in the order of its source. Equal to one with the same objects in any order.

    `extra` holds what a definitions file says beyond the topology (users, permissions, parameters, the version it was
    exported from), so that it survives a round trip.
    """

    vhosts: tuple[Vhost, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[Policy, ...] = ()
    extra: Arguments = NO_ARGUMENTS

    def objects(self) -> Iterator[Vhost | Exchange | Queue | Binding | Policy]:
        """Every object, kind by kind."""
        yield from self.vhosts
        yield from self.exchanges
        yield from self.queues
        yield from self.bindings
        yield from self.policies

    def exchange(self, name: str, vhost: str = DEFAULT_VHOST) -> Exchange | None:
        """The exchange of that name, or None. A linear search: for many look-ups, build an index."""
        return _find(self.exchanges, name, vhost)

    def queue(self, name: str, vhost: str = DEFAULT_VHOST) -> Queue | None:
        """The queue of that name, or None. A linear search: for many look-ups, build an index."""
        return _find(self.queues, name, vhost)

    def used_vhosts(self) -> list[str]:
        """The vhosts of all objects, in the order of the objects."""
        used: dict[str, None] = {}
        for exchange in self.exchanges:
            used.setdefault(exchange.vhost)
        for queue in self.queues:
            used.setdefault(queue.vhost)
        for binding in self.bindings:
            used.setdefault(binding.vhost)
        for policy in self.policies:
            used.setdefault(policy.vhost)
        return list(used)

    def moved(self, vhost: str) -> "Topology":
        """The same topology in another vhost; for a topology of a single vhost."""
        return Topology(
            vhosts=(Vhost(name=vhost),),
            exchanges=tuple(replace(one, vhost=vhost) for one in self.exchanges),
            queues=tuple(replace(one, vhost=vhost) for one in self.queues),
            bindings=tuple(replace(one, vhost=vhost) for one in self.bindings),
            policies=tuple(replace(one, vhost=vhost) for one in self.policies),
            extra=self.extra,
        )

    def only(self, vhost: str) -> "Topology":
        """The part that is in one vhost."""
        return Topology(
            vhosts=tuple(one for one in self.vhosts if one.name == vhost),
            exchanges=tuple(one for one in self.exchanges if one.vhost == vhost),
            queues=tuple(one for one in self.queues if one.vhost == vhost),
            bindings=tuple(one for one in self.bindings if one.vhost == vhost),
            policies=tuple(one for one in self.policies if one.vhost == vhost),
            extra=self.extra,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return set(self.objects()) == set(other.objects())

    def __hash__(self) -> int:
        return hash((len(self.queues), len(self.exchanges), len(self.bindings)))


def _find(objects: Iterable[_Named], name: str, vhost: str) -> _Named | None:
    return next((one for one in objects if one.name == name and one.vhost == vhost), None)


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
