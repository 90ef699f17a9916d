"""The shapes: one module each, found by name in `SHAPES`. A new shape is a new module and a line here."""

from redrive.topology.shapes.base import Built, Shape
from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.ladder import LadderShape
from redrive.topology.shapes.native import NativeShape
from redrive.topology.shapes.per_queue import PerQueueShape
from redrive.topology.shapes.quorum import QuorumShape
from redrive.topology.shapes.requeue import RequeueShape
from redrive.topology.shapes.service import ServiceShape
from redrive.topology.shapes.tiered import TieredShape

SHAPES: dict[str, type[Shape]] = {
    shape.name: shape
    for shape in (LadderShape, NativeShape, TieredShape, ServiceShape, PerQueueShape, QuorumShape, RequeueShape)
}
"""Every shape by its name in a declaration."""

DEFAULT_SHAPE = LadderShape.name
"""What `retry: [30s, 5m]` means."""

__all__ = [
    "DEFAULT_SHAPE",
    "SHAPES",
    "Built",
    "DocumentedShape",
    "LadderShape",
    "NativeShape",
    "PerQueueShape",
    "QuorumShape",
    "RequeueShape",
    "ServiceShape",
    "Shape",
    "TieredShape",
]
