"""The shapes: one module each, found by name in `SHAPES`.

To add a shape:

1. Write a module here with a frozen dataclass derived from `Shape` (or from `DocumentedShape`, if it comes from a
   document whose names and arguments it keeps). The module's docstring becomes its page in docs/reference/shapes.md:
   one line, a drawing, what is guaranteed and what is not.
2. Give it a `name`, its options (`option(type, default, explanation)`), its `traits` where they are not the defaults,
   and a `backoff`.
3. Write `build`: the queues, exchanges and bindings around a declared queue, from the helpers of `safe_queues`, and the
   `RetryRoutes` that say where messages wait and are parked. `commands` follows from the routes; override `retry` and
   `defer` only if a retry is neither a reject nor a copy into a wait queue (`native`, `requeue`).
4. Add the class to `SHAPES` below. The YAML reader, the JSON Schema, the compiler, the diagrams, the runtime and the
   simulation find it there.
5. Run `make docs`. Which exports, examples, tests and golden files follow is in docs/explanation/walks.md.
"""

from redrive.topology.shapes.documented import DocumentedShape
from redrive.topology.shapes.ladder import LadderShape
from redrive.topology.shapes.native import NativeShape
from redrive.topology.shapes.per_queue import PerQueueShape
from redrive.topology.shapes.quorum import QuorumShape
from redrive.topology.shapes.requeue import RequeueShape
from redrive.topology.shapes.service import ServiceShape
from redrive.topology.shapes.shape import Built, Shape
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
