"""Rules of auto-retry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRule:
    """How auto-retry treats the dead letters of a queue, a group, or all (`scope` is `*`, `queue:NAME`, `group:ID`).

    Attempt n is due `first_ms` doubled n - 1 times, at most `ceiling_ms`, after the letter died. One that has not come
    back for `settle_ms` is resolved. `is_declared`: a file says it; one that a person set wins over it.
    """

    scope: str
    enabled: bool = True
    attempts: int = 3
    first_ms: int = 1_000
    ceiling_ms: int = 60_000
    settle_ms: int = 600_000
    is_declared: bool = False
    queues: tuple[str, ...] = ()
    """The queues that its author is limited to, names with `*`: it counts for their dead letters alone."""

    def due_at_ms(self, *, died_at_ms: int, recurrences: int) -> int | None:
        """When the next attempt is due; None when they are spent or the rule is off.

        An attempt is spent when its copy came back: one that the broker refused was none. `recurrences` are those since
        a person sent it last: that begins anew.
        """
        if not self.enabled or recurrences >= self.attempts:
            return None
        return died_at_ms + min(self.first_ms << min(recurrences, 40), self.ceiling_ms)
