"""The rectangles that the parts of a picture fill, to find what overlaps."""

from dataclasses import dataclass

from redrive.topology.diagrams.scene import Box, Label
from redrive.topology.diagrams.text import text_width


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """A rectangle that something fills."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Bounds") -> bool:
        """Whether they share more than an edge."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def bounds_of(part: Box | Label) -> Bounds:
    """The space that a box or a label fills, descenders included."""
    if isinstance(part, Box):
        return Bounds(left=part.x, top=part.y, right=part.x + part.width, bottom=part.y + part.height)
    width = text_width(part.text, part.size, monospace=part.monospace)
    left = part.x - {"start": 0.0, "middle": width / 2, "end": width}[part.anchor]
    return Bounds(left=left, top=part.y - part.size * 0.78, right=left + width, bottom=part.y + part.size * 0.22)
