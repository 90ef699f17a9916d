"""The shapes: one module each, found by name in `SHAPES`. A new shape is a new module and a line here."""

from redrive.topology.shapes.base import Built, DocumentedShape, Shape
from redrive.topology.shapes.ladder import Ladder
from redrive.topology.shapes.native import Native
from redrive.topology.shapes.per_queue import PerQueue
from redrive.topology.shapes.quorum import Quorum
from redrive.topology.shapes.requeue import Requeue
from redrive.topology.shapes.service import Service
from redrive.topology.shapes.tiered import Tiered

SHAPES: dict[str, type[Shape]] = {
    shape.name: shape for shape in (Ladder, Native, Tiered, Service, PerQueue, Quorum, Requeue)
}
"""Every shape by its name in a declaration."""

DEFAULT_SHAPE = Ladder.name
"""What `retry: [30s, 5m]` means."""

__all__ = [
    "DEFAULT_SHAPE",
    "SHAPES",
    "Built",
    "DocumentedShape",
    "Ladder",
    "Native",
    "PerQueue",
    "Quorum",
    "Requeue",
    "Service",
    "Shape",
    "Tiered",
]
