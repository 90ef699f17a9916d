"""The graph of a topology: blocks of a main queue with its wait and parking queues, what blocks share, and flows.

The three renderers read this and nothing else, so that they can't disagree about what a queue is for. Building it is
linear in the topology; nothing here knows how anything is drawn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redrive.topology.diagrams.message_flows import MessageFlow, broker_flow, consumer_flows
from redrive.topology.diagrams.queue_roles import QueueRole, QueueRoles, assign_roles
from redrive.topology.effective_settings import PolicyMatcher, Settings, alternate_exchange, queue_settings
from redrive.topology.model import DEFAULT_EXCHANGE, DEFAULT_VHOST, Binding, DestinationType, Exchange, Queue, Topology
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.routing import Node, Routing

NOT_DECLARED = "not declared"
"""The type of an exchange that bindings name but the topology does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A main queue, its own wait queues and its own dead letters."""

    main: Node
    routes: RetryRoutes | None
    waits: tuple[Node, ...]
    parkings: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Everything the renderers ask for. `entries` are the exchanges people publish to; the others only serve retries
    and dead letters. `shared` are wait queues and dead letters of several blocks, or of none."""

    exchanges: dict[Node, Exchange]
    queues: dict[Node, Queue]
    settings: dict[Node, Settings]
    alternates: dict[Node, str]
    routing: Routing
    queue_roles: QueueRoles
    dead_letters: dict[Node, MessageFlow]
    published: dict[Node, tuple[MessageFlow, ...]]
    blocks: tuple[Block, ...]
    shared: tuple[Node, ...]
    entries: tuple[Node, ...]

    def role(self, queue: Node) -> QueueRole:
        """What the queue is there for."""
        return self.queue_roles.roles[queue]

    def owner(self, queue: Node) -> Node | None:
        """The main queue in whose block the queue is drawn, None for a shared one."""
        return self.queue_roles.owner[queue]

    def flows(self, queue: Node) -> tuple[MessageFlow, ...]:
        """All ways out of a queue: the consumer's retries, the broker's dead letters, the consumer's parking."""
        broker = self.dead_letters.get(queue)
        published = self.published.get(queue, ())
        waits = tuple(flow for flow in published if any(self.role(one) != QueueRole.PARKING for one in flow.targets))
        rest = tuple(flow for flow in published if flow not in waits)
        return waits + ((broker,) if broker else ()) + rest

    def bindings_from(self, exchange: Node) -> list[Binding]:
        """The bindings of an exchange, in the order of their declaration."""
        return self.routing.from_exchange.get(exchange, [])

    def bindings_to(self, queue: Node) -> list[Binding]:
        """The bindings that lead to a queue."""
        return self.routing.to_queue.get(queue, [])


def build_graph(topology: Topology, retry_routes: Iterable[RetryRoutes] = ()) -> Graph:
    """The graph of a topology. Routes of queues that are not in the topology are left out."""
    policies = PolicyMatcher(topology.policies)
    exchanges = {(one.vhost, one.name): one for one in topology.exchanges if one.name != DEFAULT_EXCHANGE}
    queues = {(one.vhost, one.name): one for one in topology.queues}
    alternates = {
        node: name for node, one in exchanges.items() if (name := alternate_exchange(one, policies)) is not None
    }
    # Every queue is bound to the default exchange; exports that list these bindings add nothing.
    bindings = dict.fromkeys(one for one in topology.bindings if one.source != DEFAULT_EXCHANGE)
    for node in _mentioned(bindings, alternates):
        exchanges.setdefault(node, Exchange(name=node[1], vhost=node[0], type=NOT_DECLARED))
    routing = Routing(exchanges, queues, bindings, alternates)
    routes_of = {(one.vhost, one.queue): one for one in retry_routes}
    settings = {node: queue_settings(queue, policies) for node, queue in queues.items()}
    dead_letters = {
        node: flow
        for node in queues
        if (flow := broker_flow(node, settings[node], routes_of.get(node), routing=routing, exchanges=exchanges))
    }
    queue_roles = assign_roles(
        queues, settings=settings, dead_letters=dead_letters, routing=routing, retry_routes=routes_of.values()
    )
    names = frozenset(queues)
    alternate_targets = frozenset((vhost, name) for (vhost, _), name in alternates.items())
    published = {
        node: tuple(consumer_flows(node, settings[node], routes_of.get(node), queues=names))
        for node in queues
        if queue_roles.roles[node] == QueueRole.MAIN
    }
    return Graph(
        exchanges=exchanges,
        queues=queues,
        settings=settings,
        alternates=alternates,
        routing=routing,
        queue_roles=queue_roles,
        dead_letters=dead_letters,
        published=published,
        blocks=_blocks(queues, queue_roles, settings, routes_of),
        shared=tuple(node for node in queues if queue_roles.owner[node] is None),
        entries=tuple(
            node for node in exchanges if _is_entry(node, alternate_targets, alternates, routing, queue_roles)
        ),
    )


def named(node: Node) -> str:
    """A name for people; the vhost is added where it is not "/"."""
    shown = node[1] or "(default exchange)"
    return shown if node[0] == DEFAULT_VHOST else f"{shown} (vhost {node[0]})"


def _blocks(
    queues: dict[Node, Queue],
    queue_roles: QueueRoles,
    settings: dict[Node, Settings],
    routes_of: dict[Node, RetryRoutes],
) -> tuple[Block, ...]:
    members: dict[Node, tuple[list[Node], list[Node]]] = {
        node: ([], []) for node in queues if queue_roles.roles[node] == QueueRole.MAIN
    }
    for node in queues:
        owner, role = queue_roles.owner[node], queue_roles.roles[node]
        if owner is not None and role != QueueRole.MAIN:
            members[owner][role == QueueRole.PARKING].append(node)

    def delay_ms(node: Node) -> int:
        return settings[node].ttl_ms or 0

    return tuple(
        Block(
            main=main,
            routes=routes_of.get(main),
            waits=tuple(sorted(waits, key=delay_ms)),
            parkings=tuple(parkings),
        )
        for main, (waits, parkings) in members.items()
    )


def _mentioned(bindings: Iterable[Binding], alternates: dict[Node, str]) -> Iterator[Node]:
    for binding in bindings:
        yield binding.vhost, binding.source
        if binding.destination_type == DestinationType.EXCHANGE:
            yield binding.vhost, binding.destination
    for (vhost, _), name in alternates.items():
        if name != DEFAULT_EXCHANGE:
            yield vhost, name


def _is_entry(
    node: Node,
    alternate_targets: frozenset[Node],
    alternates: dict[Node, str],
    routing: Routing,
    queue_roles: QueueRoles,
) -> bool:
    bindings = routing.from_exchange.get(node, [])
    if not bindings or node in alternates or node in alternate_targets or routing.to_exchange.get(node):
        return True
    # What leads to a main queue, to another exchange, or to a queue that nobody declared.
    return any(
        binding.destination_type == DestinationType.EXCHANGE
        or queue_roles.roles.get((binding.vhost, binding.destination), QueueRole.MAIN) == QueueRole.MAIN
        for binding in bindings
    )
