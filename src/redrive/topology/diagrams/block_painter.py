"""Draws one block: the main queue on top, its consumer to the right, retries and dead letters below.

Messages go round clockwise: from the main queue to the consumer, down the right side into a wait queue, out on its
left and up again. What dies leaves the main queue at its far left and goes down past the retries, so that no two of
these lines ever meet. Exchanges that only serve a block's rows stand under the consumer, beside the row they feed.
"""

from dataclasses import dataclass, field

from redrive.topology.diagrams.block_plan import (
    BlockPlan,
    BlockRow,
    Exit,
    Inlet,
    Port,
    consumer_words,
    describe_exchange,
    describe_queue,
)
from redrive.topology.diagrams.geometry import (
    DEAD_X,
    MAIN_NAME_SIZE,
    REASON_SIZE,
    RETURN_X,
    SMALL_SIZE,
    Geometry,
)
from redrive.topology.diagrams.graph import Graph, named
from redrive.topology.diagrams.message_flows import Mover
from redrive.topology.diagrams.scene import Box, Ink, Label, Look, Point, Scene, Wire
from redrive.topology.diagrams.text import shorten, visible
from redrive.topology.routing import Node

_SOURCE_PITCH = 26.0
_EXIT_PITCH = 22.0
_BESIDE_TRUNK = 42.0
"""The space right of the exchanges in the side, for the consumer's own line."""


@dataclass(slots=True)
class PlacedBlock:
    """A drawn block, and where other parts attach: entries on the left, exits and ports on the right."""

    card: Box
    main_node: Node = ("", "")
    sources: dict[Node, float] = field(default_factory=dict)
    ports: dict[Port, Point] = field(default_factory=dict)
    exits: list[tuple[Port, Mover, tuple[Point, ...]]] = field(default_factory=list)


def place_block(plan: BlockPlan, x: float, y: float, *, geometry: Geometry, graph: Graph, scene: Scene) -> PlacedBlock:
    """Draws a block with its main queue's left edge at `x` and its card's top at `y`."""
    return _Painter(plan, x, y, geometry, graph, scene).paint()


class _Painter:
    def __init__(self, plan: BlockPlan, x: float, y: float, geometry: Geometry, graph: Graph, scene: Scene) -> None:
        self.plan, self.geometry, self.graph, self.scene = plan, geometry, graph, scene
        self.x, self.top = x, y
        self.row_left = x + geometry.gutter
        self.row_right = self.row_left + geometry.centre
        self.rim_x = self.row_right + 20
        self.side_left = x + geometry.main + geometry.gap
        self.side_right = self.side_left + geometry.side
        self.trunk_x = self.side_right - 14
        self.main: Box | None = None
        self.relays: dict[Node, Box] = {}
        self.placed = PlacedBlock(card=Box(look=Look.CARD, x=0, y=0, width=0, height=0))
        self.returns: list[float] = []
        self.dead: list[Point] = []
        self.consumed: list[Point] = []
        self.fans: dict[float, list[tuple[float, str]]] = {}
        # Exchanges into which the broker dead-letters, and which only feed parking queues of this block.
        self.below = [
            relay
            for relay in plan.rejected_into
            if relay is not None and all(row.look == Look.PARKING for row in plan.rows if _fed_through(row, relay))
        ]
        self.beside = [relay for relay in plan.rejected_into if relay not in self.below]

    def paint(self) -> PlacedBlock:
        bottom = self._main() if self.plan.block else self._caption()
        for row in self.plan.rows:
            bottom = self._row(row, bottom)
            bottom = self._dead_letters_below(bottom)
        bottom = self._exits(bottom)
        self._trunks()
        width = self.side_right - self.x + 2 * self.geometry.pad
        card = Box(
            look=Look.CARD,
            x=self.x - self.geometry.pad,
            y=self.top,
            width=width,
            height=bottom + self.geometry.pad - self.top,
        )
        self.scene.boxes.append(card)
        self.placed.card = card
        return self.placed

    def _main(self) -> float:
        assert self.plan.block is not None
        geometry, node = self.geometry, self.plan.block.main
        settings = self.graph.settings[node]
        height = max(geometry.main_height, len(self.plan.sources) * _SOURCE_PITCH)
        main = self._add(
            Box(
                look=Look.MAIN,
                x=self.x,
                y=self.top + self.geometry.pad,
                width=geometry.main,
                height=height,
                title=visible(named(node)),
                detail=visible(" · ".join(settings.facts)),
                tag=visible(self.graph.queues[node].type),
                tooltip=describe_queue(node, self.graph),
                title_size=MAIN_NAME_SIZE,
            )
        )
        self.main = main
        self.placed.main_node = node
        pitch = height / max(1, len(self.plan.sources))
        for number, source in enumerate(self.plan.sources):
            self.placed.sources[source] = main.y + pitch * (number + 0.5)
        self._add(
            Box(
                look=Look.CONSUMER,
                x=self.side_left,
                y=main.y,
                width=geometry.side,
                height=height,
                title="consumer",
                detail=consumer_words(self.plan.block.routes),
                tooltip=f"the consumer of {visible(named(node))}",
            )
        )
        self._wire([(main.x + main.width, main.middle), (self.side_left, main.middle)], Ink.CONSUME)
        bottom = main.y + height
        if self.plan.back_through and any(row.leaves for row in self.plan.rows):
            room = self.rim_x - self.x - RETURN_X - 16
            self._label(self.plan.back_through, (self.x + RETURN_X + 8, bottom + 14), Ink.NOTE, room=room)
        return bottom + (geometry.drop - geometry.row_gap if self.plan.rows or self.plan.exits else 0)

    def _caption(self) -> float:
        users = self.plan.users
        shared = (
            f"shared by {users} queues" if users > 1 else "of one queue" if users else "nothing is dead-lettered here"
        )
        self._label(shared, (self.x, self.top + self.geometry.pad + 6), Ink.NOTE, room=self.geometry.main)
        return self.top + self.geometry.pad + 8

    def _row(self, row: BlockRow, above: float) -> float:
        geometry = self.geometry
        lanes = row.inlets if row.look != Look.PARKING or row.inlets else []
        height = max(geometry.row_height, len(lanes) * geometry.lane if len(lanes) > 1 else 0)
        tall = any(inlet.relay not in self.relays and inlet.relay is not None for inlet in lanes)
        top = above + geometry.row_gap + (max(0.0, 16 - geometry.row_gap + 4) if tall and self.relays else 0)
        box = self._add(
            Box(
                look=row.look,
                x=self.row_left,
                y=top,
                width=geometry.centre,
                height=height,
                title=row.title,
                detail=row.detail if geometry.details or row.look == Look.GHOST else "",
                tag=row.tag,
                tooltip=row.tooltip,
            )
        )
        for number, inlet in enumerate(lanes):
            self._inlet(row, inlet, box.y + height * (number + 0.5) / len(lanes))
        if row.leaves:
            self.returns.append(box.middle)
            middle = (self.x + RETURN_X + self.row_left) / 2
            room = self.row_left - self.x - RETURN_X - 12
            self._label(row.leaves, (middle, box.middle - 5), Ink.RETURN, anchor="middle", room=room)
        if row.dies_here:
            self.dead.append((self.row_left, box.middle))
            middle = (self.x + DEAD_X + self.row_left) / 2
            room = self.row_left - self.x - DEAD_X - 12
            self._label(row.dies_here, (middle, box.middle - 5), Ink.DEAD, anchor="middle", room=room)
        return box.y + height

    def _inlet(self, row: BlockRow, inlet: Inlet, y: float) -> None:
        if inlet.relay is not None:
            self._through_relay(inlet.relay, inlet, y)
        elif self.plan.block is None:
            assert row.node is not None
            self.placed.ports["queue", row.node] = (self.row_right, y)
        elif Mover.CONSUMER in inlet.movers:
            self.consumed.append((self.row_right, y))
            self._gap_label(inlet.over, y - 5, Ink.PUBLISH)
        else:
            self._wire([(self.rim_x, self._main_bottom()), (self.rim_x, y), (self.row_right, y)], Ink.DEAD)
            self._label(
                self.plan.rejected_reason,
                (self.rim_x + 7, self._main_bottom() + 15),
                Ink.DEAD,
                room=self.side_left - self.rim_x - 12,
            )

    def _dead_letters_below(self, bottom: float) -> float:
        """Draws the dead letters for an exchange beside a parking row: under the row, clear of what the consumer
        sends."""
        for relay in [one for one in self.below if one in self.relays]:
            self.below.remove(relay)
            bottom += _EXIT_PITCH
            box, x = self.relays[relay], self.x + DEAD_X
            middle = box.x + box.width / 2
            self._wire(
                [(x, self._main_bottom()), (x, bottom), (middle, bottom), (middle, box.y + box.height)], Ink.DEAD
            )
            self._label(self.plan.rejected_reason, (x + 10, bottom - 5), Ink.DEAD, room=self.geometry.gutter - 30)
        return bottom

    def _through_relay(self, relay: Node, inlet: Inlet, y: float) -> None:
        rejected = relay in self.beside
        alone = self._reasons_through(relay)
        if relay not in self.relays:
            self._relay(relay, y, alone, rejected)
        box = self.relays[relay]
        leaving = box.middle + (box.height / 4 if rejected else 0)
        into = y + (box.height / 4 if rejected else 0)
        if into == leaving:
            self._wire([(self.side_left, into), (self.row_right, into)], Ink.ROUTE, tooltip=inlet.tooltip)
        else:
            self.fans.setdefault(leaving, []).append((into, inlet.tooltip))
        if len(alone) > 1:
            self._gap_label(inlet.over, into - 5, Ink.PUBLISH)
        self._gap_label(inlet.under, into + 12, Ink.ROUTE, monospace=True, tooltip=inlet.tooltip)

    def _relay(self, relay: Node, y: float, reasons: list[str], rejected: bool) -> None:
        height = self.geometry.relay_height
        box = self._add(
            Box(
                look=Look.RELAY,
                x=self.side_left,
                y=y - height / 2,
                width=self.geometry.side - _BESIDE_TRUNK,
                height=height,
                title=visible(named(relay)),
                detail=describe_exchange(relay, self.graph) if self.geometry.details else "",
                tag="" if self.geometry.details else describe_exchange(relay, self.graph),
                tooltip=f"exchange {visible(named(relay))}\n{describe_exchange(relay, self.graph)}",
                repeated=relay in self.plan.repeated,
            )
        )
        self.relays[relay] = box
        if self.plan.block is None:
            self.placed.ports["exchange", relay] = (box.x + box.width, box.middle)
        if rejected:
            above = box.middle - height / 4
            self._wire([(self.rim_x, self._main_bottom()), (self.rim_x, above), (box.x, above)], Ink.DEAD)
            self._gap_label(self.plan.rejected_reason, above - 5, Ink.DEAD)
        if reasons:
            self.consumed.append((box.x + box.width, box.middle))
        if len(reasons) == 1:
            room = self.geometry.side - 30
            self._label(reasons[0], (self.trunk_x - 8, box.y - 5), Ink.PUBLISH, anchor="end", room=room)

    def _reasons_through(self, relay: Node) -> list[str]:
        inlets = [inlet for row in self.plan.rows for inlet in row.inlets if inlet.relay == relay]
        return list(dict.fromkeys(inlet.over for inlet in inlets if Mover.CONSUMER in inlet.movers))

    def _exits(self, bottom: float) -> float:
        if not self.plan.exits:
            return bottom
        y = bottom
        consumers_last = max(
            (n for n, one in enumerate(self._exits_in_order()) if one.mover == Mover.CONSUMER), default=-1
        )
        for number, exit in enumerate(self._exits_in_order()):
            y += _EXIT_PITCH
            start: tuple[Point, ...]
            if exit.mover == Mover.CONSUMER:
                start = ((self.trunk_x, y),)
                if number == consumers_last:
                    start = (self.trunk_x, self._main_bottom()), *start
                self._label(
                    exit.reason, (self.trunk_x - 8, y + 4), Ink.PUBLISH, anchor="end", room=self.geometry.side - 30
                )
            else:
                start = (self.x + DEAD_X, self._main_bottom()), (self.x + DEAD_X, y)
                self._label(exit.reason, (self.x + DEAD_X + 10, y - 5), Ink.DEAD, room=self.geometry.main - 40)
            self.placed.exits.append((exit.port, exit.mover, start))
        return y

    def _exits_in_order(self) -> list[Exit]:
        return sorted(self.plan.exits, key=lambda one: one.mover == Mover.BROKER)

    def _trunks(self) -> None:
        bottom = self._main_bottom() if self.main else 0
        back_x = self.x + RETURN_X
        for number, y in enumerate(reversed(self.returns)):
            stub = [(self.row_left, y), (back_x, y)]
            self._wire(stub if number else [*stub, (back_x, bottom)], Ink.RETURN, arrow=not number)
        fan_x = self.side_left - 12
        for leaving, ends in self.fans.items():
            for number, (into, tooltip) in enumerate(reversed(ends)):
                start = [(fan_x, into)] if number else [(self.side_left, leaving), (fan_x, leaving), (fan_x, into)]
                self._wire([*start, (self.row_right, into)], Ink.ROUTE, tooltip=tooltip)
        exiting = {exit.mover for exit in self.plan.exits}
        self._hang(self.dead, self.x + DEAD_X, bottom, Ink.DEAD, onto=Mover.BROKER in exiting)
        self._hang(self.consumed, self.trunk_x, bottom, Ink.PUBLISH, onto=Mover.CONSUMER in exiting)

    def _hang(self, ends: list[Point], x: float, bottom: float, ink: Ink, *, onto: bool) -> None:
        """Draws arrows that branch off a vertical line. The lowest draws the line too, unless an exit already did
        (`onto`)."""
        for number, (end, y) in enumerate(sorted(ends, key=lambda one: -one[1])):
            start = [(x, y)] if number or onto else [(x, bottom), (x, y)]
            self._wire([*start, (end, y)], ink)

    def _main_bottom(self) -> float:
        assert self.main is not None
        return self.main.y + self.main.height

    def _gap_label(self, text: str, y: float, ink: Ink, *, monospace: bool = False, tooltip: str = "") -> None:
        left, right = self.x + self.geometry.main, self.side_left - 16
        self._label(
            text, ((left + right) / 2, y), ink, anchor="middle", room=right - left, monospace=monospace, tooltip=tooltip
        )

    def _label(
        self,
        text: str,
        at: Point,
        ink: Ink,
        *,
        room: float,
        anchor: str = "start",
        monospace: bool = False,
        tooltip: str = "",
    ) -> None:
        if text:
            size = SMALL_SIZE if monospace else REASON_SIZE
            shown = shorten(text, room, size, monospace=monospace)
            self.scene.labels.append(
                Label(
                    text=shown,
                    x=at[0],
                    y=at[1],
                    ink=ink,
                    anchor=anchor,
                    size=size,
                    monospace=monospace,
                    tooltip=tooltip or (text if shown != text else ""),
                )
            )

    def _wire(self, points: list[Point], ink: Ink, *, arrow: bool = True, tooltip: str = "") -> None:
        self.scene.wires.append(Wire(points=tuple(points), ink=ink, arrow=arrow, in_card=True, tooltip=tooltip))

    def _add(self, box: Box) -> Box:
        self.scene.boxes.append(box)
        return box


def _fed_through(row: BlockRow, relay: Node) -> bool:
    return any(inlet.relay == relay for inlet in row.inlets)
