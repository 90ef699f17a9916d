"""When to stop taking messages: a dependency is down, and every message would only spend its attempts. A circuit
breaker.

After `pause_after` failures in a row of the kinds that mean "not available" (`pause_on`), with no success between them,
the queue is paused. From then on such a failure costs a message nothing; it is requeued. After a while one message is
let through as a probe. If it fails in the same way the pause grows, else the queue resumes. `on_pause` tells the owner.
"""

from collections.abc import Callable

from redrive.core import (
    Answered,
    Decision,
    Done,
    Outcome,
    Raised,
    Requeued,
    Rule,
    TimedOut,
    Undecodable,
    describe_outcome,
)


class QueuePause:
    """Counts failures in a row, and remembers whether the queue is paused."""

    def __init__(self, *, pause_after: int | None, pause_on: Rule, on_pause: Callable[[str], None]) -> None:
        self._pause_after = pause_after
        self._pause_on = pause_on
        self._on_pause = on_pause
        self.failures = 0
        self.is_paused = False
        self.is_probing = False
        self.probed: Callable[[bool], None] | None = None
        """Called with the result of a run while paused: True if the dependency is available again."""

    def succeeded(self) -> None:
        """Notes that a handler returned."""
        self.failures = 0
        if self.is_paused and self.probed is not None:
            self.probed(True)

    def judge(self, outcome: Outcome, decision: Decision) -> bool:
        """Notes a run that did not simply return; True if the run must not count as an attempt."""
        if self._pause_after is None:
            return False
        if not self._is_unavailable(outcome):
            if isinstance(decision, Done):
                self.succeeded()
            elif isinstance(decision, Requeued) or isinstance(outcome, Undecodable):
                pass  # an undecodable message has not used the dependency
            elif self.is_paused and self.probed is not None:
                self.probed(True)  # it failed, but not because of the dependency
            return False
        self.failures += 1
        if self.is_paused:
            if self.probed is not None:
                self.probed(False)
            return True
        if self.failures < self._pause_after:
            return False
        failure = describe_outcome(outcome)
        self._on_pause("" if failure is None else failure.text)
        return True

    def _is_unavailable(self, outcome: Outcome) -> bool:
        match outcome:
            case Raised(error=error):
                return self._pause_on.matches(error=error, status=None)
            case Answered(status=status, error=error):
                return self._pause_on.matches(error=error, status=status)
            case TimedOut():
                return self._pause_on.matches(error=TimeoutError(), status=None)
            case _:
                return False
