"""The measures of a drawing: how wide each part of a block is, so that what stands in it fits.

Widths follow the longest text up to a limit, beyond which texts are shortened; all blocks share them, so that columns
line up. Many blocks are drawn tighter.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redrive.topology.diagrams.block_plan import BlockPlan, binding_keys, consumer_words, entry_words
from redrive.topology.diagrams.graph import Graph, named
from redrive.topology.diagrams.text import keys_in_two_lines, text_width, visible

NAME_SIZE = 12.0
MAIN_NAME_SIZE = 13.5
SMALL_SIZE = 10.5
REASON_SIZE = 11.0
DEAD_X = 16.0
"""Where, from a main queue's left edge, its dead letters go down, and (next) where its retries come up again."""
RETURN_X = 36.0
COMPACT_FROM = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Widths from left to right, then heights.

    A block is a main queue as wide as `gutter + centre + rim`, rows as wide as `centre` below it, a `gap` for the
    labels of what comes from the right, and a `side` with the consumer and the exchanges.
    """

    gutter: float
    centre: float
    rim: float
    gap: float
    side: float
    entry: float
    keys: float
    main_height: float
    row_height: float
    lane: float
    row_gap: float
    drop: float
    relay_height: float
    block_gap: float
    pad: float
    details: bool

    @property
    def main(self) -> float:
        """The width of a main queue."""
        return self.gutter + self.centre + self.rim

    @property
    def block(self) -> float:
        """The width of a block without its padding."""
        return self.main + self.gap + self.side


def fit_geometry(plans: Sequence[BlockPlan], shared: Sequence[BlockPlan], graph: Graph) -> Geometry:
    """Measures in which these blocks can be drawn."""
    rows = [row for plan in (*plans, *shared) for row in plan.rows]
    inlets = [inlet for row in rows for inlet in row.inlets]
    relays = {inlet.relay for inlet in inlets if inlet.relay is not None}
    compact = len(plans) >= COMPACT_FROM
    plain = compact or not any(row.detail for row in rows)
    back = _widest((row.leaves for row in rows), REASON_SIZE) + RETURN_X
    dead = _widest((row.dies_here for row in rows), REASON_SIZE) + DEAD_X
    mains = [visible(named(plan.block.main)) for plan in plans if plan.block is not None]
    keys = [
        key for plan in plans for bindings in plan.sources.values() for key in keys_in_two_lines(binding_keys(bindings))
    ]
    tag = 60
    centre = _clamp(
        max(
            _widest((row.title for row in rows), NAME_SIZE, monospace=True) + tag + 24,
            _widest((row.detail for row in rows), SMALL_SIZE) + 34,
        ),
        200,
        330,
    )
    gutter = _clamp(max(back, dead) + 22, 104, 210)
    rim = 44.0
    wanted = _widest(mains, MAIN_NAME_SIZE, monospace=True) + tag + 30
    return Geometry(
        gutter=gutter,
        centre=max(centre, min(wanted, 560) - gutter - rim),
        rim=rim,
        gap=_clamp(
            max(
                _widest((inlet.over for inlet in inlets), REASON_SIZE),
                _widest((inlet.under for inlet in inlets), SMALL_SIZE, monospace=True),
                _widest((plan.rejected_reason for plan in plans), REASON_SIZE),
            )
            + 34,
            76,
            210,
        ),
        side=_clamp(
            max(
                _widest((visible(named(relay)) for relay in relays), NAME_SIZE, monospace=True)
                + (128 if compact else 84),
                _widest((consumer_words(plan.block.routes) for plan in plans if plan.block), SMALL_SIZE) + 30,
            ),
            150,
            310,
        ),
        entry=_clamp(
            max(
                _widest((visible(named(node)) for node in graph.entries), NAME_SIZE, monospace=True),
                _widest((entry_words(node, graph) for node in graph.entries), SMALL_SIZE),
            )
            + 38,
            132,
            250,
        ),
        keys=_clamp(_widest(keys, SMALL_SIZE, monospace=True) + 22, 56, 200),
        main_height=42 if compact else 56,
        row_height=24 if compact else 34 if plain else 40,
        lane=42 if compact else 58,
        row_gap=8 if compact else 16,
        drop=22 if compact else 32,
        relay_height=24 if compact else 40,
        block_gap=16 if compact else 26,
        pad=12 if compact else 18,
        details=not compact,
    )


def _widest(texts: Iterable[str], size: float, *, monospace: bool = False) -> float:
    return max((text_width(text, size, monospace=monospace) for text in texts), default=0)


def _clamp(wanted: float, least: float, most: float) -> float:
    return float(round(min(max(wanted, least), most)))
