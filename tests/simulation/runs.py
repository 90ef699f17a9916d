"""One run of a handler, as it happened."""

from dataclasses import dataclass

from tests.simulation.scripts import Step


@dataclass(slots=True, kw_only=True)
class Run:
    """`end` is how the handler ended: a step's kind, `unpublished` where it could not publish, `cut` where it was
    cancelled, None where its process died."""

    number: int
    queue: str
    process: int
    index: int
    attempt: int
    step: Step
    begin_ms: int
    end: str | None = None
    end_ms: int = 0
    requeued_by_stop: bool = False
    """Cancelled because its process was stopped: the message is requeued as it was, and this run is not counted."""

    def finish(self, end: str, at_ms: int) -> None:
        """It has ended."""
        self.end = end
        self.end_ms = at_ms
