"""In which order a topology is declared: targets before sources.

A queue that dead-letters at least once must find its target when it is declared, and a message must not enter a queue
before its dead-letter target exists. So: exchanges, alternates first; queues, each after those it dead-letters to; then
bindings, those for retries and dead letters before those through which messages come in. A cycle (main → retry → main)
has no right order; it is cut where it is met, which is harmless, because no message comes in yet.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from redrive.topology import DEFAULT_EXCHANGE, Binding, DestinationType, Exchange, Queue, Topology

_Node = TypeVar("_Node", Exchange, Queue)


def exchanges_in_order(topology: Topology) -> list[Exchange]:
    """Every exchange, after its alternate exchange and after those it is bound to lead to."""
    by_name = {one.name: one for one in topology.exchanges}
    leads_to: dict[str, list[str]] = {}
    for binding in topology.bindings:
        if binding.destination_type is DestinationType.EXCHANGE:
            leads_to.setdefault(binding.source, []).append(binding.destination)

    def targets(exchange: Exchange) -> Iterator[str]:
        if exchange.alternate_exchange is not None:
            yield exchange.alternate_exchange
        yield from leads_to.get(exchange.name, ())

    return _targets_first(topology.exchanges, by_name, targets)


def queues_in_order(topology: Topology) -> list[Queue]:
    """Every queue, after the queues its dead letters may reach."""
    by_name = {one.name: one for one in topology.queues}
    leads_to: dict[str, list[Binding]] = {}
    for binding in topology.bindings:
        leads_to.setdefault(binding.source, []).append(binding)

    def targets(queue: Queue) -> Iterator[str]:
        exchange = queue.dead_letter_exchange
        if exchange is None:
            return
        key = queue.dead_letter_routing_key
        if exchange == DEFAULT_EXCHANGE:
            yield queue.name if key is None else key
            return
        for binding in leads_to.get(exchange, ()):
            # A key that certainly does not match would only put a retry queue's neighbours in the way.
            if (
                key is None
                or binding.routing_key in ("", key)
                or "*" in binding.routing_key
                or "#" in binding.routing_key
            ):
                yield binding.destination

    return _targets_first(topology.queues, by_name, targets)


def bindings_in_order(topology: Topology) -> list[Binding]:
    """Every binding, the entrances last: those into queues that dead-letter what they can't handle.

    A queue with a TTL and a way out waits, one without a way out keeps: both must be bound before anything comes in.
    """
    entered = {
        one.name for one in topology.queues if one.dead_letter_exchange is not None and one.message_ttl_ms is None
    }
    return sorted(
        topology.bindings,
        key=lambda one: one.destination_type is DestinationType.EXCHANGE or one.destination in entered,
    )


def _targets_first(
    nodes: Iterable[_Node], by_name: dict[str, _Node], targets: Callable[[_Node], Iterable[str]]
) -> list[_Node]:
    """Depth first without recursion: a chain of ten thousand queues is no reason to run out of stack."""
    ordered: dict[str, _Node] = {}
    entered: set[str] = set()
    for start in nodes:
        path = [(start, iter(targets(start)))] if start.name not in entered else []
        entered.add(start.name)
        while path:
            node, rest = path[-1]
            name = next((one for one in rest if one in by_name and one not in entered), None)
            if name is None:
                path.pop()
                ordered[node.name] = node
            else:
                entered.add(name)
                path.append((by_name[name], iter(targets(by_name[name]))))
    return list(ordered.values())
