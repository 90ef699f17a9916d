"""The left side of the picture: the exchanges people publish to, and their lines to the queues and to one another."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from redrive.topology.diagrams.block_painter import PlacedBlock
from redrive.topology.diagrams.block_plan import binding_keys, describe_binding, describe_exchange, entry_words
from redrive.topology.diagrams.geometry import NAME_SIZE, REASON_SIZE, SMALL_SIZE, Geometry
from redrive.topology.diagrams.graph import Graph, named
from redrive.topology.diagrams.scene import Box, Ink, Label, Look, Point, Scene, Wire
from redrive.topology.diagrams.text import keys_in_two_lines, shorten, text_width, visible
from redrive.topology.model import Binding, DestinationType
from redrive.topology.routing import Node

_TRACK = 11.0
_PORT_PITCH = 28.0
_HEIGHT = 46.0
_GAP = 22.0
_OVER_TOP_GAP = 14.0


class _Column(Protocol):
    entries: list[Node]
    entries_x: float
    tracks: dict[Node, float]
    main_x: float
    placed: list[PlacedBlock]


class EntryExchanges:
    """The exchanges on the left, and how much room they take."""

    def __init__(self, graph: Graph, geometry: Geometry) -> None:
        self.graph = graph
        self.geometry = geometry
        self.links = list(_links(graph))
        labels = [text for _, _, keys, _ in self.links for text in keys]
        self.label_width = min(max((text_width(text, SMALL_SIZE, monospace=True) for text in labels), default=0), 150)
        self.brackets = self.label_width + 26 + _TRACK * len(self.links) if self.links else 0.0
        self.width = self.brackets + geometry.entry if graph.entries else 0.0


def place_entries(
    entries: EntryExchanges, columns: Sequence[_Column], over_top: Sequence[Node], *, top: float, scene: Scene
) -> None:
    """Draws the exchanges beside the first queue each feeds, then every line that leaves them."""
    boxes: dict[Node, Box] = {}
    lanes = {node: top - _OVER_TOP_GAP - _TRACK * number for number, node in enumerate(over_top)}
    for number, column in enumerate(columns):
        for node, box in _stand_beside(column, entries, top):
            boxes[node] = box
            scene.boxes.append(box)
            _feed(node, box, columns[number:], lanes.get(node), entries, scene)
    _bracket(entries, boxes, scene)
    _unbound(columns, entries, scene)


def _stand_beside(column: _Column, entries: EntryExchanges, top: float) -> Iterator[tuple[Node, Box]]:
    stubs = {
        node: min((placed.sources[node] for placed in column.placed if node in placed.sources), default=None)
        for node in column.entries
    }
    y = top
    # Exchanges that feed no queue of the column come last, in their own order.
    for node in sorted(stubs, key=lambda node: float("inf") if (stub := stubs[node]) is None else stub):
        ports = sum((source == node) + (target == node) for source, target, _, _ in entries.links)
        height, stub = max(_HEIGHT, ports * _PORT_PITCH), stubs[node]
        y = max(y, top + entries.geometry.pad if stub is None else stub - height / 2)
        yield node, _box(node, column.entries_x, y, height, entries)
        y += height + _GAP


def _box(node: Node, x: float, y: float, height: float, entries: EntryExchanges) -> Box:
    graph = entries.graph
    bindings = graph.bindings_from(node)
    lines = [f"exchange {named(node)}", describe_exchange(node, graph), *map(describe_binding, bindings)]
    if node in graph.alternates:
        lines.append(f"unrouted messages → {graph.alternates[node]}")
    return Box(
        look=Look.ENTRY,
        x=x,
        y=y,
        width=entries.geometry.entry,
        height=height,
        title=visible(named(node)),
        detail=entry_words(node, graph),
        tooltip="\n".join(visible(line) for line in lines),
        title_size=NAME_SIZE,
    )


def _feed(
    node: Node, box: Box, columns: Sequence[_Column], lane: float | None, entries: EntryExchanges, scene: Scene
) -> None:
    right = box.x + box.width
    for number, column in enumerate(columns):
        stubs = [(placed, placed.sources[node]) for placed in column.placed if node in placed.sources]
        if not stubs:
            continue
        track = column.tracks[node]
        if number == 0:
            approach: list[Point] = [(right, box.middle), (track, box.middle)]
        else:
            assert lane is not None
            first = columns[0].tracks[node]
            approach = [(right, box.middle), (first, box.middle), (first, lane), (track, lane)]
        _comb(approach, [y for _, y in stubs], column.main_x, scene)
        for placed, y in stubs:
            _keys(node, placed, y, column, entries, scene)


def _comb(approach: list[Point], ys: list[float], end_x: float, scene: Scene) -> None:
    """Wires from the end of the approach along a track to every height in `ys`, with the fewest lines."""
    x, start = approach[-1]
    below = sorted(y for y in ys if y > start)
    above = sorted((y for y in ys if y < start), reverse=True)
    for side in (below, above):
        for y in side[:-1]:
            scene.wires.append(Wire(points=((x, y), (end_x, y)), ink=Ink.ROUTE))
        if side:
            scene.wires.append(Wire(points=(*approach, (x, side[-1]), (end_x, side[-1])), ink=Ink.ROUTE))
    if start in ys:
        scene.wires.append(Wire(points=(*approach, (end_x, start)), ink=Ink.ROUTE))


def _keys(node: Node, placed: PlacedBlock, y: float, column: _Column, entries: EntryExchanges, scene: Scene) -> None:
    bindings = [
        binding for binding in entries.graph.bindings_to(placed.main_node) if (binding.vhost, binding.source) == node
    ]
    tooltip = "\n".join(describe_binding(binding) for binding in bindings)
    _two_lines(
        keys_in_two_lines(binding_keys(bindings)),
        column.main_x - entries.geometry.pad - entries.geometry.keys + 6,
        y,
        entries.geometry.keys - 10,
        tooltip,
        scene,
    )


def _two_lines(texts: tuple[str, str], x: float, y: float, room: float, tooltip: str, scene: Scene) -> None:
    for text, baseline in zip(texts, (y - 5, y + 12), strict=True):
        if text:
            shown = shorten(text, room, SMALL_SIZE, monospace=True)
            scene.labels.append(
                Label(text=shown, x=x, y=baseline, ink=Ink.ROUTE, size=SMALL_SIZE, monospace=True, tooltip=tooltip)
            )


def _links(graph: Graph) -> Iterable[tuple[Node, Node, tuple[str, str], str]]:
    """Links from one exchange to another: bindings and alternate exchanges."""
    grouped: dict[tuple[Node, Node], list[Binding]] = defaultdict(list)
    for source in graph.entries:
        for binding in graph.bindings_from(source):
            if binding.destination_type == DestinationType.EXCHANGE:
                grouped[source, (binding.vhost, binding.destination)].append(binding)
    for (source, target), bindings in grouped.items():
        tooltip = "\n".join(describe_binding(binding) for binding in bindings)
        yield source, target, keys_in_two_lines(binding_keys(bindings)), tooltip
    for source, name in graph.alternates.items():
        target = source[0], name
        if target in graph.exchanges:
            yield source, target, ("unrouted", ""), f"what no binding of {visible(named(source))} matches"


def _bracket(entries: EntryExchanges, boxes: dict[Node, Box], scene: Scene) -> None:
    """Lines between exchanges, on their left: out of one, along a track, into the other."""
    ports: dict[Node, int] = defaultdict(int)
    total: dict[Node, int] = defaultdict(int)
    for source, target, _, _ in entries.links:
        total[source] += 1
        total[target] += 1

    def port(node: Node) -> Point:
        box = boxes[node]
        ports[node] += 1
        return box.x, box.y + box.height * (ports[node] - 0.5) / total[node]

    for number, (source, target, keys, tooltip) in enumerate(entries.links):
        start, end = port(source), port(target)
        x = start[0] - entries.label_width - 22 - _TRACK * number
        scene.wires.append(Wire(points=(start, (x, start[1]), (x, end[1]), end), ink=Ink.ROUTE, tooltip=tooltip))
        _two_lines(keys, end[0] - entries.label_width - 14, end[1], entries.label_width, tooltip, scene)


def _unbound(columns: Sequence[_Column], entries: EntryExchanges, scene: Scene) -> None:
    for column in columns:
        for placed in column.placed:
            if not placed.sources and column.tracks:
                scene.labels.append(
                    Label(
                        text="not bound",
                        x=placed.card.x - 8,
                        y=placed.card.y + entries.geometry.pad + entries.geometry.main_height / 2 + 4,
                        ink=Ink.NOTE,
                        anchor="end",
                        size=REASON_SIZE,
                    )
                )
