"""The cells of the matrix: a shape, what becomes of the message, and the place where its consumer is killed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

SETTLED_BY_COPY = (
    "handled, before commands",
    "before publish",
    "published, before confirm",
    "after confirm, before ack",
    "before settle",
    "after ack written",
)
"""The places of a decision that is carried out by a confirmed copy and an ack."""
SETTLED_ALONE = ("handled, before commands", "before settle", "after settle written")
"""The places of a decision that is one reject or nack."""
ACKED = ("handled, before commands", "before settle", "after ack written")

SHAPES = ("ladder", "native", "tiered", "service", "per-queue", "quorum", "requeue")
FLOWS = ("ack", "retry", "park", "requeue")

RUN_AGAIN = frozenset({"handled, before commands", "before settle", "before publish"})
"""Killed here the broker still has the original, and nothing else: it comes again, and its handler runs again."""
COPIED = frozenset({"published, before confirm", "after confirm, before ack", "before settle"})
"""Killed here the broker may have the original and its copy: the documented window in which one becomes two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kill."""

    shape: str
    flow: str
    place: str

    @property
    def by_copy(self) -> bool:
        """Whether the decision is carried out by a copy and an ack."""
        return places_of(self.shape, self.flow) == SETTLED_BY_COPY

    @property
    def may_duplicate(self) -> bool:
        """Whether this place lies in a documented window in which a copy and its original both live on."""
        return self.by_copy and self.place in COPIED

    @property
    def may_repeat(self) -> bool:
        """Whether a handler that ended well may run again: its success was not acked yet."""
        return self.flow == "ack" and self.place in RUN_AGAIN


def places_of(shape: str, flow: str) -> tuple[str, ...]:
    """Where a consumer can be killed while it carries out a flow."""
    match flow:
        case "ack":
            return ACKED
        case "park":
            return SETTLED_BY_COPY
        case "retry" if shape in ("ladder", "tiered", "requeue"):
            return SETTLED_BY_COPY
        case "requeue" if shape != "native":
            # Given back by a copy wherever crashes are counted: a plain return would look like one.
            return SETTLED_BY_COPY
        case _:
            return SETTLED_ALONE


def all_cells(version: str) -> Iterator[Cell]:
    """Every cell there is on a version; native needs 4.3."""
    for shape in SHAPES:
        if shape == "native" and version != "4.3":
            continue
        for flow in FLOWS:
            for place in places_of(shape, flow):
                yield Cell(shape=shape, flow=flow, place=place)


def sample_cells(version: str, *, seed: int, count: int) -> list[Cell]:
    """A few cells, drawn from a seed: for each shape at least one where the shapes suffice."""
    cells = list(all_cells(version))
    dice = random.Random(seed)
    dice.shuffle(cells)
    first: dict[str, Cell] = {}
    for cell in cells:
        first.setdefault(cell.shape, cell)
    chosen = list(first.values())[:count]
    chosen += [cell for cell in cells if cell not in chosen][: count - len(chosen)]
    return chosen


def declaration_of(cell: Cell, name: str) -> str:
    """A redrive.yaml for the cell, its queue called `name`, with delays that a test can wait for."""
    exchange = f"{name}-events"
    head = f"exchanges: {{{exchange}: topic}}\nqueues:\n  {name}:\n    from: {{{exchange}: ['{name}.#']}}\n    retry: "
    retry = {
        "ladder": "{shape: ladder, delays: [100ms, 200ms]}",
        "native": "{shape: native, min: 100ms, max: 200ms, attempts: 4}",
        "tiered": f"{{shape: tiered, exchange: {exchange}, domain: {name}, delays: [100ms, 200ms]}}",
        "service": f"{{shape: service, service: {name}, delays: [100ms], attempts: 3}}",
        "per-queue": "{shape: per-queue, delays: [100ms], attempts: 3}",
        "quorum": "{shape: quorum, delays: [100ms], attempts: 3}",
        "requeue": "{shape: requeue, attempts: 3}",
    }[cell.shape]
    return head + retry + "\n"
