"""The whole picture: exchanges on the left, blocks in columns, what they share at the bottom, and the lines between.

Lines run only where no box ever stands: entries through a channel left of each column (and over the top to further
columns), exits through a channel right of it and down. Each exchange and each port has a track of its own there, so
lines may cross but never lie on one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.topology.diagrams.block_painter import PlacedBlock, place_block
from redrive.topology.diagrams.block_plan import BlockPlan, Inlet, Port, mark_repeated, plan_block, plan_shared
from redrive.topology.diagrams.entry_exchanges import EntryExchanges, place_entries
from redrive.topology.diagrams.geometry import Geometry, fit_geometry
from redrive.topology.diagrams.graph import Graph
from redrive.topology.diagrams.message_flows import Mover
from redrive.topology.diagrams.scene import Ink, Label, Point, Scene, Wire
from redrive.topology.routing import Node

MARGIN = 28.0
HEADER = 90.0
TRACK = 11.0
COLUMN_GAP = 26.0
_WIDE_ENOUGH = 0.42
"""Columns are added until the picture is not much narrower than half its height."""


@dataclass(slots=True)
class LayoutColumn:
    """A stack of blocks with the exchanges beside it: where its parts start, and what stands in it."""

    entries: list[Node] = field(default_factory=list)
    entries_x: float = 0
    tracks: dict[Node, float] = field(default_factory=dict)
    main_x: float = 0
    exits_x: float = 0
    placed: list[PlacedBlock] = field(default_factory=list)


def lay_out(graph: Graph) -> Scene:
    """The picture of a graph, every part in its place; `HEADER` pixels at the top stay free for a title."""
    plans = _in_order([plan_block(block, graph) for block in graph.blocks], graph)
    shared = plan_shared(graph)
    _open_ports(plans, shared)
    mark_repeated([*plans, *shared], graph)
    geometry = fit_geometry(plans, shared, graph)
    scene = Scene()
    heights = [_height(plan, geometry, graph) for plan in plans]
    ports = list(dict.fromkeys(exit.port for plan in plans for exit in plan.exits))
    entries = EntryExchanges(graph, geometry)
    stacks = _stacks(plans, heights, geometry, left=entries.width + MARGIN, ports=len(ports))
    feeding = [{node for plan in stack for node in plan.sources} for stack in stacks]
    homes = _homes(entries, feeding)
    # Each exchange that feeds more columns than its own has a line over the top.
    over_top = [node for node in graph.entries if any(node in used for used in feeding[homes[node] + 1 :])]
    top = HEADER + 24 + TRACK * len(over_top) + (10 if over_top else 0)
    columns: list[LayoutColumn] = []
    left = MARGIN
    for number, (stack, used) in enumerate(zip(stacks, feeding, strict=True)):
        here = [node for node in graph.entries if homes[node] == number]
        column = LayoutColumn(entries=here, entries_x=left + (0 if columns else entries.brackets))
        left = column.entries_x + (geometry.entry if here else 0)
        passing = {node for node in over_top if homes[node] == number}
        _set_tracks(column, [node for node in graph.entries if node in used or node in passing], left, geometry)
        column.exits_x = column.main_x + geometry.block + geometry.pad + (14 if ports else 0)
        _stack_blocks(column, stack, top, geometry, graph, scene)
        left = column.exits_x + TRACK * len(ports) + COLUMN_GAP
        columns.append(column)
    place_entries(entries, columns, over_top, top=top, scene=scene)
    bottom = max((box.y + box.height for box in scene.boxes), default=top)
    bottom = _place_shared(shared, columns, bottom, ports, geometry=geometry, graph=graph, scene=scene)
    _headings(columns, geometry, scene)
    scene.width = max(left - COLUMN_GAP + MARGIN, 460)
    scene.height = bottom + MARGIN
    return scene


def _in_order(plans: list[BlockPlan], graph: Graph) -> list[BlockPlan]:
    """Blocks of one exchange together, in the order of the exchanges; what nothing is bound to comes last."""
    place = {node: number for number, node in enumerate(graph.entries)}
    for plan in plans:
        plan.sources = dict(sorted(plan.sources.items(), key=lambda one: place[one[0]]))
    return sorted(plans, key=lambda plan: min((place[node] for node in plan.sources), default=len(place)))


def _open_ports(plans: Sequence[BlockPlan], shared: Sequence[BlockPlan]) -> None:
    rows = {row.node: row for plan in shared for row in plan.rows}
    for port in dict.fromkeys(exit.port for plan in plans for exit in plan.exits):
        kind, node = port
        if kind == "queue":
            rows[node].inlets.append(Inlet())
    for plan in shared:
        own = {("queue", row.node) for row in plan.rows}
        own |= {("exchange", inlet.relay) for row in plan.rows for inlet in row.inlets}
        plan.users = sum(any(exit.port in own for exit in each.exits) for each in plans)


def _height(plan: BlockPlan, geometry: Geometry, graph: Graph) -> float:
    return place_block(plan, 0, 0, geometry=geometry, graph=graph, scene=Scene()).card.height


def _stacks(
    plans: list[BlockPlan], heights: list[float], geometry: Geometry, *, left: float, ports: int
) -> list[list[BlockPlan]]:
    width = geometry.keys + geometry.block + 2 * geometry.pad + COLUMN_GAP + TRACK * (ports + 2)
    total = sum(heights) + geometry.block_gap * len(heights)
    count = 1
    while count < len(plans) and (left + count * width) / (total / count + HEADER) < _WIDE_ENOUGH:
        count += 1
    stacks: list[list[BlockPlan]] = [[]]
    filled = 0.0
    for plan, height in zip(plans, heights, strict=True):
        if filled + height / 2 > total / count * len(stacks) and len(stacks) < count:
            stacks.append([])
        stacks[-1].append(plan)
        filled += height + geometry.block_gap
    return stacks


def _homes(entries: EntryExchanges, feeding: Sequence[set[Node]]) -> dict[Node, int]:
    """The column beside which each exchange stands: the first it feeds. Those bound to one another stay together."""
    if entries.links:
        return dict.fromkeys(entries.graph.entries, 0)
    return {
        node: next((number for number, used in enumerate(feeding) if node in used), 0) for node in entries.graph.entries
    }


def _set_tracks(column: LayoutColumn, feeding: list[Node], left: float, geometry: Geometry) -> None:
    # The first exchange turns last: its line then passes outside those of the exchanges below it.
    for number, node in enumerate(reversed(feeding)):
        column.tracks[node] = left + 16 + TRACK * number
    column.main_x = left + 16 + TRACK * len(feeding) + (geometry.keys if feeding else 0) + geometry.pad


def _stack_blocks(
    column: LayoutColumn, stack: list[BlockPlan], top: float, geometry: Geometry, graph: Graph, scene: Scene
) -> None:
    y = top
    for plan in stack:
        placed = place_block(plan, column.main_x, y, geometry=geometry, graph=graph, scene=scene)
        column.placed.append(placed)
        y += placed.card.height + geometry.block_gap


def _place_shared(
    shared: Sequence[BlockPlan],
    columns: Sequence[LayoutColumn],
    bottom: float,
    ports: Sequence[Port],
    *,
    geometry: Geometry,
    graph: Graph,
    scene: Scene,
) -> float:
    ends: dict[Port, Point] = {}
    for plan in shared:
        placed = place_block(
            plan, columns[0].main_x, bottom + geometry.block_gap, geometry=geometry, graph=graph, scene=scene
        )
        ends.update((port, end) for port, end in placed.ports.items() if port not in ends)
        bottom = placed.card.y + placed.card.height
    # The highest port gets the innermost track, so that lines to lower ports pass outside it.
    order = sorted(ports, key=lambda port: ends[port][1])
    for column in columns:
        for number, port in enumerate(order):
            _exit_track(column, port, column.exits_x + TRACK * number, ends[port], scene)
    return bottom


def _exit_track(column: LayoutColumn, port: Port, x: float, end: Point, scene: Scene) -> None:
    leaving = [(mover, start) for placed in column.placed for wanted, mover, start in placed.exits if wanted == port]
    if not leaving:
        return
    for mover, start in leaving:
        ink = Ink.DEAD if mover == Mover.BROKER else Ink.PUBLISH
        scene.wires.append(Wire(points=(*start, (x, start[-1][1])), ink=ink, arrow=False, dot=True))
    ink = Ink.DEAD if any(mover == Mover.BROKER for mover, _ in leaving) else Ink.PUBLISH
    top = min(start[-1][1] for _, start in leaving)
    scene.wires.append(Wire(points=((x, top), (x, end[1]), end), ink=ink))


def _headings(columns: Sequence[LayoutColumn], geometry: Geometry, scene: Scene) -> None:
    y = HEADER + 10
    places = [(column.entries_x, "exchanges") for column in columns if column.entries]
    for column in columns:
        if column.placed:
            places += [
                (column.main_x, "queues"),
                (column.main_x + geometry.main + geometry.gap, "consumers"),
            ]
    for x, text in places:
        scene.labels.append(Label(text=text.upper(), x=x, y=y, ink=Ink.HEADING, size=10))
