"""The cells of the matrix: a shape, what becomes of the message, and the place where its consumer is killed.

A message is parked in three ways, each through code of its own:

    park                a persistent message: its copy is built from a template, and nobody waits for the confirm
    park, waiting       the same where the publisher has no room at once: a task waits for the confirm
    park, transient     a transient message: its copy is made by itself, and a task waits for the confirm
"""

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
FLOWS = ("ack", "retry", "park", "park, waiting", "park, transient", "requeue")

RUN_AGAIN = frozenset({"handled, before commands", "before settle", "before publish"})
"""Killed here the broker still has the original, and nothing else: it comes again, and its handler runs again."""
WRITTEN = "published, before confirm"
COPIED = frozenset({WRITTEN, "after confirm, before ack", "before settle"})
"""Killed here the broker has the original and its copy: the documented window in which one becomes two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kill."""

    shape: str
    flow: str
    place: str

    @property
    def deed(self) -> str:
        """What the handler does to the message."""
        return self.flow.partition(",")[0]

    @property
    def is_persistent(self) -> bool:
        """Whether the message is one that a restart of the broker would leave."""
        return self.flow != "park, transient"

    @property
    def has_room(self) -> bool:
        """Whether the consumer's publisher takes a copy at once."""
        return self.flow != "park, waiting"

    @property
    def ends(self) -> int:
        """How often the message must end, no more and no less. One end where there should be two is an original that
        was acked too soon, or a place that is not where it says: either way this cell would prove nothing."""
        return 2 if self.may_duplicate or self.may_repeat else 1

    @property
    def by_copy(self) -> bool:
        """Whether the decision is carried out by a copy and an ack."""
        return places_of(self.shape, self.flow) == SETTLED_BY_COPY

    @property
    def may_duplicate(self) -> bool:
        """Whether this place lies in a documented window in which a copy and its original both live on."""
        return self.by_copy and self.place in COPIED

    @property
    def shows_early_ack(self) -> bool:
        """Whether this is the first place in which an original that is acked before its time is missed."""
        return self.place == ("handled, before commands" if self.flow == "ack" else WRITTEN)

    @property
    def may_repeat(self) -> bool:
        """Whether a handler that ended well may run again: its success was not acked yet."""
        return self.flow == "ack" and self.place in RUN_AGAIN


def places_of(shape: str, flow: str) -> tuple[str, ...]:
    """Where a consumer can be killed while it carries out a flow."""
    match flow:
        case "ack":
            return ACKED
        case "park" | "park, waiting" | "park, transient":
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
    """A few cells, drawn from a seed: every flow in the place that shows an ack that is too early, each on another
    shape; then the other shapes, then any."""
    cells = list(all_cells(version))
    random.Random(seed).shuffle(cells)
    telling = {flow: [cell for cell in cells if cell.flow == flow and cell.shows_early_ack] for flow in FLOWS}
    chosen: dict[str, Cell] = {}
    # A flow that few shapes carry out by a copy comes first, or they would be taken.
    for found in sorted(telling.values(), key=len):
        cell = next(one for one in found if one.shape not in chosen)
        chosen[cell.shape] = cell
    for cell in cells:
        chosen.setdefault(cell.shape, cell)
    sample = [*chosen.values()]
    return [*sample, *(cell for cell in cells if cell not in sample)][:count]


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
