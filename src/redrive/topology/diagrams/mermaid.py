"""A topology as a Mermaid flowchart, in the dialect GitHub renders.

Identifiers come from names, not from positions: a queue keeps its own when others come and go, so a diff of two charts
shows what changed. Labels are quoted, and every character that means something to Mermaid is written as an entity.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from redrive.topology.diagrams.block_plan import binding_keys, consumer_words, describe_exchange
from redrive.topology.diagrams.graph import Graph, build_graph, named
from redrive.topology.diagrams.message_flows import MessageFlow, Mover
from redrive.topology.diagrams.queue_roles import QueueRole
from redrive.topology.diagrams.text import visible
from redrive.topology.effective_settings import duration
from redrive.topology.model import Binding, DestinationType, Topology
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.routing import Node

_PLAIN = re.compile(r"[^\w .,·–×→-]", re.ASCII)
_CLASSES = (
    "classDef exchange fill:#fbf7ff,stroke:#8250df,color:#1f2328",
    "classDef main fill:#ddf4ff,stroke:#0969da,stroke-width:2px,color:#1f2328",
    "classDef wait fill:#fff8c5,stroke:#bf8700,color:#1f2328",
    "classDef parking fill:#ffebe9,stroke:#cf222e,color:#1f2328",
    "classDef consumer fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "classDef missing fill:#ffffff,stroke:#cf222e,stroke-dasharray:4,color:#1f2328",
)


def render_mermaid(topology: Topology, retry_routes: Iterable[RetryRoutes] = ()) -> str:
    """The flowchart of a topology, without a fence around it. Dotted arrows are what consumers publish."""
    graph = build_graph(topology, retry_routes)
    body = list(_body(graph)) or ['    empty["no exchanges, no queues"]']
    return "\n".join(["flowchart LR", *body, *(f"    {line}" for line in _CLASSES)]) + "\n"


def _body(graph: Graph) -> Iterator[str]:
    for node in graph.exchanges:
        label = _label(visible(named(node)), describe_exchange(node, graph))
        yield f"    {_exchange(node)}([{label}])"
        yield f"    class {_exchange(node)} exchange"
    retry_routes = {block.main: block.routes for block in graph.blocks}
    for node in graph.queues:
        yield from _queue_lines(node, retry_routes.get(node), graph)
    for node, exchange in graph.exchanges.items():
        yield from _binding_lines(node, graph)
        if (alternate := graph.alternates.get(node)) and (exchange.vhost, alternate) in graph.exchanges:
            yield f"    {_exchange(node)} -->|{_label('unrouted')}| {_exchange((exchange.vhost, alternate))}"
    for node in graph.queues:
        for flow in graph.flows(node):
            yield from _flow_lines(flow, graph)


def _queue_lines(node: Node, routes: RetryRoutes | None, graph: Graph) -> Iterator[str]:
    role, queue = graph.role(node), graph.queues[node]
    words = [visible(queue.type), *(visible(fact) for fact in graph.settings[node].facts)]
    yield f"    {_queue(node)}[({_label(visible(named(node)), ' · '.join(words))})]"
    yield f"    class {_queue(node)} {role}"
    if role == QueueRole.MAIN:
        yield f"    {_consumer(node)}[{_label('consumer', consumer_words(routes))}]"
        yield f"    class {_consumer(node)} consumer"
        yield f"    {_queue(node)} --> {_consumer(node)}"


def _binding_lines(source: Node, graph: Graph) -> Iterator[str]:
    grouped: dict[str, list[Binding]] = {}
    for binding in graph.bindings_from(source):
        target = binding.vhost, binding.destination
        if binding.destination_type == DestinationType.EXCHANGE:
            grouped.setdefault(_exchange(target), []).append(binding)
            continue
        if target not in graph.queues and _queue(target) not in grouped:
            yield f"    {_queue(target)}[{_label(visible(named(target)), 'no such queue')}]"
            yield f"    class {_queue(target)} missing"
        grouped.setdefault(_queue(target), []).append(binding)
    for end, bindings in grouped.items():
        keys = ", ".join(visible(key) for key in binding_keys(bindings) if key)
        yield f"    {_exchange(source)} -->{_on_arrow(keys)} {end}"


def _flow_lines(flow: MessageFlow, graph: Graph) -> Iterator[str]:
    start = _consumer(flow.source) if flow.mover == Mover.CONSUMER else _queue(flow.source)
    arrow = "-.->" if flow.mover == Mover.CONSUMER else "-->"
    reason = flow.reason
    settings = graph.settings[flow.source]
    if flow.mover == Mover.BROKER and graph.role(flow.source) == QueueRole.WAIT:
        reason = "when expired" if settings.ttl_ms is None else f"after {duration(settings.ttl_ms)}"
    if flow.exchange[1]:
        key = "" if flow.routing_key is None else visible(flow.routing_key)
        end = _exchange(flow.exchange)
        if flow.exchange not in graph.exchanges:
            yield f"    {end}([{_label(visible(named(flow.exchange)), flow.gap)}])"
            yield f"    class {end} missing"
        yield f"    {start} {arrow}{_on_arrow(', '.join(filter(None, (reason, key))))} {end}"
        return
    if not flow.targets:
        lost = "lost_" + _digest(flow.source)
        yield f"    {lost}[{_label(visible(flow.gap))}]"
        yield f"    class {lost} missing"
        yield f"    {start} {arrow}{_on_arrow(reason)} {lost}"
    for target in flow.targets:
        yield f"    {start} {arrow}{_on_arrow(reason)} {_queue(target)}"


def _exchange(node: Node) -> str:
    return _identifier("ex", node)


def _queue(node: Node) -> str:
    return _identifier("qu", node)


def _consumer(node: Node) -> str:
    return _identifier("co", node)


def _identifier(kind: str, node: Node) -> str:
    """Readable, and different for any two names: what is legible of the name, then a digest of all of it."""
    legible = re.sub(r"[^a-z0-9]+", "_", node[1].lower(), flags=re.ASCII).strip("_")[:32].strip("_")
    return "_".join(filter(None, (kind, legible, _digest(node))))


def _digest(node: Node) -> str:
    return sha256("\0".join(node).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _on_arrow(text: str) -> str:
    return f"|{_label(text)}|" if text else ""


def _label(title: str, detail: str = "") -> str:
    shown = _escaped(title) + (f"<br/>{_escaped(detail)}" if detail else "")
    return f'"{shown}"'


def _escaped(text: str) -> str:
    """Letters, digits and a few harmless signs stay; other ASCII becomes `#35;`, which Mermaid turns back."""
    return _PLAIN.sub(lambda match: _entity(match.group()), text)


def _entity(character: str) -> str:
    return f"#{ord(character)};" if character.isascii() else character
