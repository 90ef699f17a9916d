"""When to stop taking messages: a dependency is down, and every message would only spend its attempts.

So many failures in a row, of the kinds that mean "not there" (`pause_on`), and no success between them: the queue is
paused. From then on such a failure costs a message nothing; it goes back. After a while one message is let through; if
it fares no better the pause grows, else the queue resumes. Whoever owns this is told by `on_pause`.
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


class Pausing:
    """Counts failures in a row, and remembers whether the queue is paused."""

    def __init__(self, *, pause_after: int | None, pause_on: Rule, on_pause: Callable[[str], None]) -> None:
        self._pause_after = pause_after
        self._pause_on = pause_on
        self._on_pause = on_pause
        self.failures = 0
        self.is_paused = False
        self.is_probing = False
        self.probed: Callable[[bool], None] | None = None
        """Told how a run ended while paused: True if the dependency is there again."""

    def succeeded(self) -> None:
        """A handler returned."""
        self.failures = 0
        if self.is_paused and self.probed is not None:
            self.probed(True)

    def judge(self, outcome: Outcome, decision: Decision) -> bool:
        """Takes note of a run that did not simply return; whether its message must not pay for it."""
        if self._pause_after is None:
            return False
        if not self._is_absence(outcome):
            if isinstance(decision, Done):
                self.succeeded()
            elif isinstance(decision, Requeued) or isinstance(outcome, Undecodable):
                pass  # what can't be read has not asked for the dependency
            elif self.is_paused and self.probed is not None:
                self.probed(True)  # it failed, but not for want of the dependency
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

    def _is_absence(self, outcome: Outcome) -> bool:
        match outcome:
            case Raised(error=error):
                return self._pause_on.matches(error=error, status=None)
            case Answered(status=status, error=error):
                return self._pause_on.matches(error=error, status=status)
            case TimedOut():
                return self._pause_on.matches(error=TimeoutError(), status=None)
            case _:
                return False
