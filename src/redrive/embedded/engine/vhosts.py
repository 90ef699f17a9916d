"""A vhost: its exchanges, queues, bindings and policies, and what can be done to them by name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redrive.embedded.engine.amqp_errors import (
    AmqpError,
    access_refused,
    default_exchange,
    locked,
    not_found,
    precondition,
    resource,
    unsupported,
)
from redrive.embedded.engine.amqp_values import type_name
from redrive.embedded.engine.arguments import check_queue
from redrive.embedded.engine.effects import ConsumerCancelled
from redrive.embedded.engine.equivalence import compare_arguments, compare_field, compare_queue_arguments
from redrive.embedded.engine.exchanges import Binding, Destination, Exchange
from redrive.embedded.engine.headers_match import check_match
from redrive.embedded.engine.policies import Policies
from redrive.embedded.engine.queue_settings import CLASSIC, STREAM, effective_settings
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.streams import Stream
from redrive.topology import Policy

if TYPE_CHECKING:
    from redrive.embedded.engine.connections import Connection
    from redrive.embedded.engine.engine import Engine

_KINDS = ("direct", "topic", "fanout", "headers")
_NOT_HERE = (
    "x-local-random",
    "x-modulus-hash",
    "x-consistent-hash",
    "x-delayed-message",
    "x-random",
    "x-recent-history",
)
_BUILT_IN = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


class Vhost:
    """One vhost."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self.engine = engine
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.exchanges = {each: Exchange(each, kind) for each, kind in _BUILT_IN.items()}
        self.exchanges["amq.rabbitmq.trace"] = Exchange("amq.rabbitmq.trace", "topic", internal=True)
        self.policies = Policies()
        self.default_queue_type: str | None = None
        """The type of queues declared without one (4.x; 3.10 accepts it and ignores it)."""
        self._bound: dict[int, dict[int, Binding]] = {}

    # Exchanges

    def exchange(self, name: str) -> Exchange:
        """The exchange of that name. Raises AmqpError (404)."""
        found = self.exchanges.get(name)
        if found is None:
            raise not_found("exchange", name, self.name)
        return found

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        """Create an exchange, or check that the existing one is equivalent. Raises AmqpError."""
        if name == "":
            raise default_exchange()
        if kind in _NOT_HERE:
            raise unsupported(f"exchanges of type {kind}")
        if kind not in _KINDS:
            hard = self.engine.profile.unknown_exchange_type_is_hard
            raise AmqpError(503 if hard else 406, f"unknown exchange type '{kind}'")
        where = resource("exchange", name, self.name)
        found = self.exchanges.get(name)
        if found is None:
            if name.startswith("amq."):
                raise access_refused(f"exchange name '{name}' contains reserved prefix 'amq.*'")
            alternate = arguments.get("alternate-exchange", "")
            if not isinstance(alternate, str):
                raise precondition(f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' in {where}")
            made = Exchange(
                name, kind, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
            )
            self.exchanges[name] = made
            self._apply_policy(made)
            return
        compare_field("type", kind, found.kind, where)
        compare_field("durable", durable, found.durable, where)
        compare_field("auto_delete", auto_delete, found.auto_delete, where)
        compare_field("internal", internal, found.internal, where)
        compare_arguments(arguments, found.arguments, ("alternate-exchange",), where)

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange; a missing one is fine. Raises AmqpError."""
        if name == "":
            raise default_exchange()
        if name.startswith("amq."):
            raise access_refused(f"deletion of system {resource('exchange', name, self.name)} not allowed")
        found = self.exchanges.get(name)
        if found is None:
            return
        if if_unused and found.bindings:
            raise precondition(f"{resource('exchange', name, self.name)} in use")
        self.remove_exchange(found)

    # Queues

    def queue(self, name: str, connection: "Connection | None" = None) -> Queue:
        """The queue of that name, if this connection may use it. Raises AmqpError (404, 405)."""
        found = self.queues.get(name)
        if found is None:
            raise not_found("queue", name, self.name)
        if found.owner is not None and connection is not None and found.owner is not connection:
            raise locked(name, self.name)
        return found

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool,
        auto_delete: bool,
        owner: "Connection | None",
        arguments: Mapping[str, Any],
    ) -> Queue:
        """Create a queue, or check that the existing one is equivalent. Raises AmqpError."""
        where = resource("queue", name, self.name)
        profile = self.engine.profile
        if durable and owner is None and not auto_delete:
            arguments = self._typed(arguments)
        found = self.queues.get(name)
        if found is not None:
            if found.owner is not owner:
                raise locked(name, self.name)
            compare_field("durable", durable, found.durable, where)
            compare_field("auto_delete", auto_delete, found.auto_delete, where)
            compare_queue_arguments(arguments, found.arguments, found.kind, where, profile)
            found.touch()
            return found
        kind = check_queue(
            name,
            self.name,
            arguments,
            profile,
            durable=durable,
            exclusive=owner is not None,
            auto_delete=auto_delete,
        )
        made = (Stream if kind == STREAM else Queue)(
            self,
            name,
            durable=durable,
            auto_delete=auto_delete,
            owner=owner,
            arguments=arguments,
            settings=effective_settings(kind, arguments, self.policies.definition(name, kind), profile),
        )
        self.queues[name] = made
        if owner is not None:
            owner.exclusive[id(made)] = made
        return made

    def _typed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments with the vhost's default queue type where none is given."""
        default = self.default_queue_type
        if default in (None, CLASSIC) or "x-queue-type" in arguments or not self.engine.profile.fills_in_queue_type:
            return arguments
        return {**arguments, "x-queue-type": default}

    def delete_queue(self, queue: Queue, *, why: str = "deleted") -> int:
        """Delete a queue with its messages, bindings and consumers; returns how many messages were ready."""
        count = len(queue.ready)
        self.queues.pop(queue.name, None)
        queue.end(why)
        if queue.owner is not None:
            queue.owner.exclusive.pop(id(queue), None)
        for consumer in list(queue.consumers.all):
            consumer.channel.forget(consumer)
            if consumer.channel.connection.wants_cancel:
                self.engine.effects.append(ConsumerCancelled(consumer.channel, consumer.tag))
        self._unbind_all(queue)
        return count

    def count_consumers(self, queue: Queue) -> int:
        """The number in queue.declare-ok: a quorum queue also counts cancelled consumers that hold a message of it."""
        count = len(queue.consumers)
        if queue.is_stream:
            return 0  # RabbitMQ does not count a stream's readers
        if not (queue.is_quorum and queue.unacked_count):
            return count
        holders: set[int] = set()
        for connection in self.engine.connections:
            for channel in connection.channels.values():
                for entry, held_of, consumer in channel.unacked.values():
                    if held_of is queue and consumer not in queue.consumers.all:
                        holders.add(id(entry) if consumer is None else id(consumer))
        return count + len(holders)

    # Bindings

    def bind(self, source: str, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        """Bind a queue or an exchange to an exchange; twice is once. Raises AmqpError."""
        exchange = self.exchange(source)
        if exchange.kind == "headers":
            check_match(arguments)
        binding = Binding(exchange, destination, key, dict(arguments))
        if exchange.bind(binding):
            self._bound.setdefault(id(destination), {})[id(binding)] = binding

    def unbind(self, source: str, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        """Remove a binding; a missing one is fine."""
        exchange = self.exchanges.get(source)
        if exchange is None:
            return
        for binding in self._bound.get(id(destination), {}).values():
            if binding.source is exchange and binding.routing_key == key and binding.arguments == dict(arguments):
                self._unbind(binding)
                return

    # Policies

    def set_policy(self, policy: Policy) -> None:
        """Add or replace a policy; it applies at once to what exists, but not to messages already queued."""
        self.policies.set(policy)
        self.apply_policies()

    def remove_policy(self, name: str, *, operator: bool = False) -> None:
        """Remove a policy."""
        self.policies.remove(name, operator=operator)
        self.apply_policies()

    def apply_policies(self) -> None:
        """Apply the present policies to every queue and exchange."""
        for queue in list(self.queues.values()):
            definition = self.policies.definition(queue.name, queue.kind)
            queue.apply(effective_settings(queue.kind, queue.arguments, definition, self.engine.profile))
        for exchange in self.exchanges.values():
            self._apply_policy(exchange)
        self.engine.timeout_check_ms = min(
            self.engine.timeout_check_ms, self.engine.now_ms
        )  # a timeout may be shorter now
        self.engine.flush_dead_letters()

    def _apply_policy(self, exchange: Exchange) -> None:
        by_policy = self.policies.definition(exchange.name, "exchange").get("alternate-exchange")
        exchange.alternate = exchange.arguments.get("alternate-exchange", by_policy)

    def remove_exchange(self, exchange: Exchange) -> None:
        """Remove an exchange with every binding from it and to it."""
        del self.exchanges[exchange.name]
        for binding in list(exchange.bindings.values()):
            self._bound[id(binding.destination)].pop(id(binding), None)
        exchange.bindings.clear()
        self._unbind_all(exchange)

    def _unbind_all(self, destination: Destination) -> None:
        for binding in list(self._bound.get(id(destination), {}).values()):
            self._unbind(binding)
        self._bound.pop(id(destination), None)

    def _unbind(self, binding: Binding) -> None:
        source = binding.source
        source.unbind(binding.destination, binding.routing_key, binding.arguments)
        self._bound[id(binding.destination)].pop(id(binding), None)
        if source.auto_delete and not source.bindings and self.exchanges.get(source.name) is source:
            self.remove_exchange(source)
