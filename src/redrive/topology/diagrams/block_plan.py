"""The content of each block of the drawing, and what leads there, before anything has a position.

A block has rows: its wait queues, a retry in place, its dead letters, and references to what is drawn elsewhere. A row
has inlets; an inlet may come through an exchange, which then stands beside the row. Messages that leave for a queue
shared by several blocks take an exit, which ends at that queue's port.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from redrive.topology.diagrams.graph import Block, Graph, named
from redrive.topology.diagrams.message_flows import MessageFlow, Mover
from redrive.topology.diagrams.queue_roles import QueueRole
from redrive.topology.diagrams.scene import Look
from redrive.topology.diagrams.text import keys_in_two_lines, visible
from redrive.topology.effective_settings import duration
from redrive.topology.model import Binding, DestinationType
from redrive.topology.retry_routes import RetryRoutes
from redrive.topology.routing import Node

Port = tuple[str, Node]
"""Where an exit ends: ("exchange", node) or ("queue", node), in the shared part of the picture."""


@dataclass(slots=True)
class Inlet:
    """One way into a row. `relay` is the exchange it comes through, None if it comes straight from its movers."""

    relay: Node | None = None
    movers: set[Mover] = field(default_factory=set)
    over: str = ""
    under: str = ""
    tooltip: str = ""


@dataclass(slots=True)
class BlockRow:
    """One box under a main queue. `leaves` is the reason on the arrow back to the main queue."""

    look: Look
    title: str
    detail: str = ""
    tag: str = ""
    tooltip: str = ""
    node: Node | None = None
    inlets: list[Inlet] = field(default_factory=list)
    leaves: str = ""
    dies_here: str = ""
    """The reason on the arrow by which the broker moves messages of the main queue straight here."""


@dataclass(slots=True)
class Exit:
    """Messages that leave a block for a shared exchange or queue."""

    port: Port
    mover: Mover
    reason: str


@dataclass(slots=True)
class BlockPlan:
    """A block to be drawn."""

    block: Block | None
    rows: list[BlockRow] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    sources: dict[Node, list[Binding]] = field(default_factory=dict)
    rejected_into: list[Node | None] = field(default_factory=list)
    """The relays (None: a row itself) that the broker dead-letters the main queue's messages into."""
    rejected_reason: str = ""
    back_through: str = ""
    users: int = 0
    """For a shared block: how many blocks send messages here."""
    repeated: set[Node] = field(default_factory=set)
    """The relays that are drawn in other blocks, too."""


def plan_block(block: Block, graph: Graph) -> BlockPlan:
    """The rows, inlets and exits of one main queue."""
    plan = BlockPlan(block=block)
    for binding in graph.bindings_to(block.main):
        plan.sources.setdefault((binding.vhost, binding.source), []).append(binding)
    rows = {node: _queue_row(node, graph) for node in (*block.waits, *block.parkings)}
    loops = [_loop_row(flow) for flow in graph.published.get(block.main, ()) if flow.in_place]
    ghosts: list[BlockRow] = []
    for flow in graph.flows(block.main):
        if not flow.in_place:
            _plan_flow(flow, plan, rows, ghosts, graph)
    for node in block.waits:
        back = graph.dead_letters.get(node)
        if back is not None and back.exchange[1]:
            key = "its own key" if back.routing_key is None else visible(back.routing_key)
            plan.back_through = f"back through {visible(back.exchange[1])} as {key}"
    waits = sorted((rows[node] for node in block.waits), key=lambda row: not _fed_by_broker(row))
    plan.rows = waits + loops + [rows[node] for node in block.parkings] + ghosts
    return plan


def plan_shared(graph: Graph) -> list[BlockPlan]:
    """Plans for the shared queues; those that one exchange feeds are in one plan."""
    group_of: dict[Node, BlockPlan] = {}
    plans: list[BlockPlan] = []
    for node in graph.shared:
        row = _queue_row(node, graph)
        relays = [inlet.relay for inlet in row.inlets if inlet.relay is not None]
        plan = next((group_of[relay] for relay in relays if relay in group_of), None)
        if plan is None:
            plan = BlockPlan(block=None)
            plans.append(plan)
        group_of.update(dict.fromkeys(relays, plan))
        back = graph.dead_letters.get(node)
        if back is not None:
            through = visible(back.exchange[1]) or "the default exchange"
            row.detail = " · ".join(filter(None, (f"{row.leaves} back through {through}", row.detail)))
        row.leaves = ""
        plan.rows.append(row)
    return plans


def mark_repeated(plans: list[BlockPlan], graph: Graph) -> None:
    """Marks in every plan the relays that the picture shows more than once."""
    seen, entries = Counter[Node](), set(graph.entries)
    relays = [{inlet.relay for row in plan.rows for inlet in row.inlets if inlet.relay is not None} for plan in plans]
    for each in relays:
        seen.update(each)
    for plan, each in zip(plans, relays, strict=True):
        plan.repeated = {relay for relay in each if seen[relay] > 1 or relay in entries}


def consumer_words(routes: RetryRoutes | None) -> str:
    """What the picture says about the consumer of a queue."""
    if routes is None:
        return ""
    return f"{visible(routes.shape)} · up to {routes.attempts} run" + ("" if routes.attempts == 1 else "s")


def describe_exchange(node: Node, graph: Graph) -> str:
    """Type and flags of an exchange."""
    exchange = graph.exchanges.get(node)
    if exchange is None:
        return "not declared"
    flags = [word for word, said in (("internal", exchange.internal), ("transient", not exchange.durable)) if said]
    return " · ".join([visible(exchange.type), *flags])


def entry_words(node: Node, graph: Graph) -> str:
    """What stands under the name of an exchange that people publish to."""
    return describe_exchange(node, graph) + ("" if graph.bindings_from(node) else " · nothing bound")


def describe_queue(node: Node, graph: Graph) -> str:
    """The tooltip of a queue: everything that matters, in full."""
    queue, lines = graph.queues[node], [f"queue {named(node)}"]
    lines.append(" · ".join([str(queue.type), *graph.settings[node].facts]))
    lines += [f"{key} = {value}" for key, value in queue.arguments.items()]
    lines += [describe_binding(binding) for binding in graph.bindings_to(node)]
    return "\n".join(visible(line) for line in lines)


def describe_binding(binding: Binding) -> str:
    """A binding in one line, its arguments included."""
    arguments = ", ".join(f"{key}={value}" for key, value in binding.arguments.items())
    exchange = "exchange " if binding.destination_type == DestinationType.EXCHANGE else ""
    said = f"{binding.source} → {exchange}{binding.destination}"
    said += f" with {binding.routing_key}" if binding.routing_key else ""
    return visible(said + (f" where {arguments}" if arguments else ""))


def binding_keys(bindings: list[Binding]) -> list[str]:
    """The bindings' routing keys, or the conditions of a headers binding."""
    return [
        binding.routing_key
        or " ".join(f"{key}={value}" for key, value in binding.arguments.items() if key != "x-match")
        for binding in bindings
    ]


def _queue_row(node: Node, graph: Graph) -> BlockRow:
    queue, settings, role = graph.queues[node], graph.settings[node], graph.role(node)
    waits = role == QueueRole.WAIT
    facts = [fact for fact in settings.facts if not (waits and fact.startswith("TTL "))]
    row = BlockRow(
        look=Look.WAIT if waits else Look.PARKING,
        title=visible(named(node)),
        detail=visible(" · ".join(facts)),
        tag=visible(queue.type),
        tooltip=describe_queue(node, graph),
        node=node,
    )
    if waits:
        row.leaves = "when expired" if settings.ttl_ms is None else f"after {duration(settings.ttl_ms)}"
    by_source: dict[Node, list[Binding]] = defaultdict(list)
    for binding in graph.bindings_to(node):
        by_source[binding.vhost, binding.source].append(binding)
    for relay, bindings in by_source.items():
        first, second = keys_in_two_lines(binding_keys(bindings))
        tooltip = "\n".join(describe_binding(binding) for binding in bindings)
        under = f"{first} {second}".strip()
        row.inlets.append(Inlet(relay=relay, under=under, tooltip=tooltip))
    return row


def _loop_row(flow: MessageFlow) -> BlockRow:
    reason, _, how = flow.reason.partition(": ")
    row = BlockRow(look=Look.LOOP, title=how or reason, tooltip=f"{visible(named(flow.source))} {flow.reason}")
    row.leaves = "again"
    row.inlets.append(Inlet(movers={Mover.CONSUMER}, over=reason))
    return row


def _plan_flow(
    flow: MessageFlow, plan: BlockPlan, rows: dict[Node, BlockRow], ghosts: list[BlockRow], graph: Graph
) -> None:
    elsewhere = not flow.targets
    for target in flow.targets:
        if target in rows:
            _into_row(flow, rows[target], plan)
        elif graph.owner(target) is None and (port := _port(flow, target, graph)) is not None:
            known = [(exit.port, exit.mover) for exit in plan.exits]
            if (port, flow.mover) not in known:
                plan.exits.append(Exit(port=port, mover=flow.mover, reason=flow.reason))
        else:
            elsewhere = True
    if elsewhere:
        ghosts.append(_ghost(flow, plan, graph))


def _into_row(flow: MessageFlow, row: BlockRow, plan: BlockPlan) -> None:
    relay = flow.exchange if flow.exchange[1] else None
    if relay is not None or row.look == Look.WAIT or flow.mover == Mover.CONSUMER:
        inlet = next((one for one in row.inlets if one.relay == relay and (relay or flow.mover in one.movers)), None)
        if inlet is None:
            inlet = Inlet(relay=relay, tooltip=flow.reason)
            row.inlets.append(inlet)
        inlet.movers.add(flow.mover)
        if flow.mover == Mover.CONSUMER:
            inlet.over = flow.reason
        else:
            plan.rejected_reason = flow.reason
            if relay not in plan.rejected_into:
                plan.rejected_into.append(relay)
    else:
        row.dies_here = flow.reason


def _port(flow: MessageFlow, target: Node, graph: Graph) -> Port | None:
    if not flow.exchange[1]:
        return "queue", target
    sources = {(binding.vhost, binding.source) for binding in graph.bindings_to(target)}
    return ("exchange", flow.exchange) if flow.exchange in sources else None


def _ghost(flow: MessageFlow, plan: BlockPlan, graph: Graph) -> BlockRow:
    target = flow.exchange if flow.exchange[1] else (flow.targets or ((flow.exchange[0], flow.routing_key or ""),))[0]
    kind = "exchange" if flow.exchange[1] else "queue"
    row = BlockRow(
        look=Look.GHOST,
        title=f"{kind} {visible(named(target))}" if target[1] else flow.gap,
        detail=visible(flow.gap) if flow.gap and target[1] else "drawn elsewhere",
        tooltip=f"{flow.reason}: {kind} {visible(named(target))} {visible(flow.gap)}",
    )
    if flow.mover == Mover.BROKER:
        row.dies_here = flow.reason
    else:
        row.inlets.append(Inlet(movers={Mover.CONSUMER}, over=flow.reason))
    return row


def _fed_by_broker(row: BlockRow) -> bool:
    return any(Mover.BROKER in inlet.movers for inlet in row.inlets)
