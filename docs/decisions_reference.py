"""docs/reference/decisions.md: the decision table, its decision for every HTTP status, and the
policies."""

from redrive.core import (
    Answered,
    Decision,
    Done,
    Fixed,
    Parked,
    Requeued,
    Retry,
    RetryPolicy,
    Situation,
    decide,
)
from redrive.core.decision_table import BUDGETS, DELAY_MS_MAX, PAUSE_MS_MAX, TABLE

_STATUSES = {
    "2xx": range(200, 300),
    "429, 409": [429, 409],
    "425": [425],
    "5xx": range(500, 600),
    "408": [408],
    "other 4xx": [status for status in range(400, 500) if status not in (408, 409, 425, 429)],
    "1xx, 3xx": [*range(100, 200), *range(300, 400)],
    "what is no status": [0, 42, 600, 999, -1],
}
_BACKOFFS = (
    ('`Fixed("30s")`', "30 s every time"),
    ('`Listed(["30s", "5m", "30m"])`', "in order; the last repeats"),
    ('`Exponential("1s", factor=2, longest="10m")`', "1 s, 2 s, 4 s, … up to 10 minutes"),
    ('`Linear("10s", longest="10m")`', "10 s, 20 s, 30 s, … up to 10 minutes"),
    ("`Immediate(then, times=2)`", "twice at once, then by another backoff"),
)
_POLICY = (
    ("`attempts_max`", "", "runs of the handler, the first included"),
    ("`backoff`", "", "how long before each retry"),
    ("`jitter`", "0", "0 to 1: shortens a delay by up to that part of it, never lengthens it"),
    ("`rules`", "none", "certain errors or statuses have a way of their own; the first that matches counts"),
    ("`age_ms_max`", "none", "the oldest a message may be when it is run again"),
    ("`other_4xx`", "`park`", "`retry` is what the event-bus document does"),
    ("`own`", "none", "a function of the outcome and the situation, asked before all else; None leaves it to the rest"),
)


def decisions_reference() -> str:
    """docs/reference/decisions.md."""
    parts = [
        "# Decisions",
        "Made from the code by `make docs`. What becomes of a message after a run, read from the top; the first row"
        " that matches counts.",
        _table(
            ("outcome", "when", "then"),
            [(row.outcome, row.condition, row.consequence.replace("*", "\\*")) for row in TABLE],
        ),
        "failed: the handler raised or ran out of time.",
        "\\* Unless a budget is spent; then, in this order:",
        _table(("when", "then"), [(one.condition, f"Parked({one.reason})") for one in BUDGETS]),
        "A backoff's delay is shortened by the jitter, and is at least what `Retry-After` said; a delay that was asked"
        f" for is not shortened. Nothing waits longer than {DELAY_MS_MAX // 86_400_000} days, and no pause holds a"
        f" message longer than {PAUSE_MS_MAX // 1000} s.",
        "## HTTP statuses",
        "Of an endpoint's answer, or of an exception with `status_code` or `response.status_code`. The names in"
        " capitals are the event-bus document's.",
        _table(
            ("status", "in the document", "what happens", "`other_4xx: retry`", "when no run is left"),
            [_status_row(name, list(statuses)) for name, statuses in _STATUSES.items()],
        ),
        "An exception without a status and a handler that ran out of time are `DROP`, as 5xx are.",
        "## Policies",
        _table(("", "default", ""), list(_POLICY)),
        "A `Rule(on, then)` is about exception types (their subclasses too), statuses, or ranges of statuses, and says"
        " `ack`, `retry`, `park` or `requeue`. With `retry` it may have a `backoff` and an `attempts_max` of its own. A"
        " handler that ran out of time counts as `TimeoutError`. Rules have no say over `Park`, `RetryAfter` and"
        " `Requeue`.",
        _table(("backoff", "waits"), list(_BACKOFFS)),
    ]
    return "\n\n".join(parts) + "\n"


def _status_row(name: str, statuses: list[int]) -> tuple[str, str, str, str, str]:
    """What `decide` says about every status of the row: the page can't say anything else."""
    parked = RetryPolicy(attempts_max=2, backoff=Fixed("5s"))
    retried = RetryPolicy(attempts_max=2, backoff=Fixed("5s"), other_4xx="retry")
    first, last = Situation(retries=0, now_ms=0), Situation(retries=1, now_ms=0)
    word, what = _one(statuses, first, parked)
    return name, f"`{word}`", what, f"`{_one(statuses, first, retried)[0]}`", _one(statuses, last, parked)[1]


def _one(statuses: list[int], situation: Situation, policy: RetryPolicy) -> tuple[str, str]:
    answers = {_words(decide(Answered(status=status), situation, policy)) for status in statuses}
    (answer,) = answers
    return answer


def _words(decision: Decision) -> tuple[str, str]:
    match decision:
        case Done():
            return "ACK", "done"
        case Retry():
            return "DROP", "run again by the backoff, counted"
        case Requeued():
            return "REQUEUE", "a short pause, back to the queue, not counted"
        case Parked(reason=reason):
            return "ACK", f"parked (`{reason}`): moved to the dead letters, then acked"
        case _:
            raise AssertionError(f"no answer is {decision!r}")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
