"""A topology as a tree for a terminal: exchange, queues with their keys, and below each queue where its messages go.

Every queue is shown in full once and referred to after that. Colours are plain ANSI escapes; a name can't add
its own, since `text.visible` has replaced them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from redrive.topology.diagrams.block_plan import binding_keys, consumer_words, describe_exchange
from redrive.topology.diagrams.graph import Block, Graph, build_graph, named
from redrive.topology.diagrams.message_flows import MessageFlow, Mover
from redrive.topology.diagrams.queue_roles import QueueRole
from redrive.topology.diagrams.text import visible
from redrive.topology.effective_settings import duration
from redrive.topology.model import Binding, DestinationType, Topology
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.routing import Node

_RESET = "\x1b[0m"
_COLOURS = {
    "exchange": "\x1b[1;35m",
    QueueRole.MAIN: "\x1b[1;34m",
    QueueRole.WAIT: "\x1b[33m",
    QueueRole.PARKING: "\x1b[31m",
    "soft": "\x1b[2m",
    "missing": "\x1b[1;31m",
}
_PUBLISHED = "┄▸"
_DEAD_LETTERED = "─▸"


@dataclass(slots=True)
class _Branch:
    text: str
    below: list["_Branch"] = field(default_factory=list)


def render_tree(topology: Topology, retry_routes: Iterable[RetryRoutes] = (), *, colour: bool) -> str:
    """The tree of a topology, lines ending in a newline; `┄▸` is what consumers publish, `─▸` what the broker moves."""
    graph = build_graph(topology, retry_routes)
    if not graph.queues and not graph.exchanges:
        return "(no exchanges, no queues)\n"
    return "".join(f"{line}\n" for root in _Grower(graph, colour).roots() for line in _lines(root, "", ""))


def _lines(branch: _Branch, first: str, rest: str) -> Iterator[str]:
    yield first + branch.text
    for number, child in enumerate(branch.below, start=1):
        last = number == len(branch.below)
        yield from _lines(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))


class _Grower:
    def __init__(self, graph: Graph, colour: bool) -> None:
        self.graph, self.colour = graph, colour
        self.blocks: dict[Node, Block] = {block.main: block for block in graph.blocks}
        self.shown: set[Node] = set()

    def roots(self) -> Iterator[_Branch]:
        for node in self.graph.entries:
            yield self._exchange(node)
        entries = set(self.graph.entries)
        for node in self.graph.exchanges:
            if node not in entries:
                yield self._exchange(node)
        unbound = [node for node in self.graph.queues if node not in self.shown]
        if unbound:
            mains = [node for node in unbound if node in self.blocks]
            branches = [self._queue(node) for node in mains]
            branches += [self._queue(node) for node in unbound if node not in self.shown]
            yield _Branch(self._paint("soft", "(bound to no exchange)"), branches)

    def _exchange(self, node: Node) -> _Branch:
        title = self._paint("exchange", visible(named(node))) + self._soft(f"  {describe_exchange(node, self.graph)}")
        bindings = self.graph.bindings_from(node)
        root = _Branch(title if bindings else title + self._soft(" · nothing bound"))
        grouped: dict[tuple[str, Node], list[Binding]] = {}
        for binding in bindings:
            target = binding.vhost, binding.destination
            grouped.setdefault((binding.destination_type, target), []).append(binding)
        for (kind, target), group in grouped.items():
            keys = ", ".join(visible(key) for key in binding_keys(group) if key)
            lead = f"{keys} → " if keys else "→ "
            if kind == DestinationType.EXCHANGE:
                root.below.append(_Branch(self._soft(lead) + self._paint("exchange", visible(named(target)))))
            elif target in self.graph.queues:
                root.below.append(self._queue(target, lead))
            else:
                gone = self._paint("missing", f"{visible(named(target))} (no such queue)")
                root.below.append(_Branch(self._soft(lead) + gone))
        if (alternate := self.graph.alternates.get(node)) is not None:
            name = self._paint("exchange", visible(alternate))
            root.below.append(_Branch(self._soft("what matches nothing → ") + name))
        return root

    def _queue(self, node: Node, lead: str = "") -> _Branch:
        role = self.graph.role(node)
        name = self._soft(lead) + self._paint(role, visible(named(node)))
        if node in self.shown:
            return _Branch(name + self._soft(" ↑"))
        self.shown.add(node)
        branch = _Branch(name + self._soft(f"  {self._words(node)}"))
        if role == QueueRole.MAIN:
            branch.below = [*self._below(node)]
        return branch

    def _words(self, node: Node) -> str:
        queue, settings, role = self.graph.queues[node], self.graph.settings[node], self.graph.role(node)
        words = [visible(queue.type)]
        facts = [visible(fact) for fact in settings.facts]
        if role == QueueRole.WAIT:
            flow = self.graph.dead_letters.get(node)
            how_long = "until expired" if settings.ttl_ms is None else duration(settings.ttl_ms)
            facts = [fact for fact in facts if not fact.startswith("TTL ")]
            words = [f"wait {how_long} → {self._back(node, flow)}", *words]
        elif role == QueueRole.PARKING:
            words = ["dead letters", *words]
        else:
            facts += filter(None, [consumer_words(self.blocks[node].routes)])
        return " · ".join([*words, *facts])

    def _back(self, node: Node, flow: MessageFlow | None) -> str:
        if flow is None:
            return "?"
        if flow.exchange[1]:
            key = "" if flow.routing_key is None else f" as {visible(flow.routing_key)}"
            return f"{visible(flow.exchange[1])}{key}"
        return visible(named(flow.targets[0])) if flow.targets else visible(flow.gap)

    def _below(self, main: Node) -> Iterator[_Branch]:
        by_target: dict[tuple[Node, ...], list[MessageFlow]] = {}
        for flow in self.graph.flows(main):
            by_target.setdefault(flow.targets, []).append(flow)
        block = self.blocks[main]
        for targets, flows in by_target.items():
            lead = self._lead(flows)
            if not targets:
                where = visible(named(flows[0].exchange))
                gap = self._paint("missing", visible(flows[0].gap))
                yield _Branch(f"{self._soft(lead)}{where} {gap}")
            elif flows[0].in_place:
                yield _Branch(self._soft(f"↻ {flows[0].reason}"))
            for target in () if targets and flows[0].in_place else targets:
                yield self._queue(target, lead)
        for node in (*block.waits, *block.parkings):
            if node not in self.shown:
                yield self._queue(node)

    def _lead(self, flows: list[MessageFlow]) -> str:
        parts = []
        for flow in flows:
            arrow = _PUBLISHED if flow.mover == Mover.CONSUMER else _DEAD_LETTERED
            parts.append(f"{flow.reason} {arrow}")
        through = [visible(flow.exchange[1]) for flow in flows if flow.exchange[1]]
        via = f" {through[0]} →" if through and flows[0].targets else ""
        return " or ".join(parts) + via + " "

    def _soft(self, text: str) -> str:
        return self._paint("soft", text) if text else ""

    def _paint(self, what: str, text: str) -> str:
        return f"{_COLOURS[what]}{text}{_RESET}" if self.colour else text
