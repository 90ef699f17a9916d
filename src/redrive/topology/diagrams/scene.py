"""The parts of a picture once everything has its position: boxes, labels and wires, in pixels.

No markup here and no decisions: `layout` makes these values and `svg` writes them.
"""

from dataclasses import dataclass, field
from enum import StrEnum

Point = tuple[float, float]


class Look(StrEnum):
    """What a box is; the style sheet has a class for each."""

    CARD = "card"
    ENTRY = "entry"
    RELAY = "relay"
    MAIN = "main"
    WAIT = "wait"
    PARKING = "parking"
    CONSUMER = "consumer"
    LOOP = "loop"
    GHOST = "ghost"


class Ink(StrEnum):
    """What a wire or label is about."""

    ROUTE = "route"
    RETURN = "return"
    DEAD = "dead"
    CONSUME = "consume"
    PUBLISH = "publish"
    """The only one that is dashed: the consumer does it, not the broker."""
    NOTE = "note"
    HEADING = "heading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A queue, exchange or consumer. `tag` stands at the right of the title; the tooltip has everything in full."""

    look: Look
    x: float
    y: float
    width: float
    height: float
    title: str = ""
    detail: str = ""
    tag: str = ""
    tooltip: str = ""
    title_size: float = 12
    repeated: bool = False

    @property
    def middle(self) -> float:
        """The height of its centre."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A text on its own; `x` is its start, middle or end as `anchor` says, `y` its baseline."""

    text: str
    x: float
    y: float
    ink: Ink
    anchor: str = "start"
    size: float = 10.5
    monospace: bool = False
    tooltip: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A line of horizontal and vertical pieces; an arrow has its head at the last point."""

    points: tuple[Point, ...]
    ink: Ink
    arrow: bool = True
    dot: bool = False
    """Whether the line joins another at its last point."""
    in_card: bool = False
    """Whether it lies on a card, whose colour its halo then takes."""
    tooltip: str = ""


@dataclass(slots=True)
class Scene:
    """A picture under construction."""

    boxes: list[Box] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    width: float = 0
    height: float = 0
