"""What becomes of a message: one literal table, read from the top, the first row that matches counts.

    outcome           when                            then
    any               the policy's own function says  what it says
    Crashed           always                          Parked(crashes)
    Undecodable       always                          Parked(undecodable)
    Raised            Park                            Parked(park)
    Raised            Requeue                         Requeued(the pause asked for, else 0.5–1.5 s)
    Raised            RetryAfter                      Retry(exactly that delay) *
    failed, Answered  a rule says ack                 Done
    failed, Answered  a rule says requeue             Requeued(0.5–1.5 s, or Retry-After)
    failed, Answered  a rule says park                Parked(permanent), Parked(status) if it came with a status
    failed, Answered  a rule says retry               Retry(by the rule's backoff) *
    Succeeded         always                          Done
    Answered          2xx                             Done
    Answered          425                             Requeued(0.5–1.5 s, or Retry-After)
    Answered          408, 409, 429                   Retry(by the backoff) *
    Answered          another 4xx, other_4xx: park    Parked(status)
    Answered          any other                       Retry(by the backoff) *
    failed            always                          Retry(by the backoff) *

    failed: Raised or TimedOut. * unless a budget is spent; then, in this order:

    no run is left (retries + 1 ≥ attempts_max)            Parked(attempts)
    older than age_ms_max now, or when the delay is over   Parked(age)

A backoff's delay is shortened by the jitter and is at least the Retry-After; a delay that a handler asked for is not
shortened. No delay is longer than `DELAY_MS_MAX`, no pause longer than `PAUSE_MS_MAX`.

`docs/reference/decisions.md` is made from the same table.
"""

from collections.abc import Callable
from dataclasses import dataclass

from redrive.core.decisions import Decision, Done, Parked, ParkReason, Requeued, Retry
from redrive.core.outcomes import Answered, Crashed, Outcome, Raised, Succeeded, TimedOut, Undecodable
from redrive.core.retry_policies import Backoff, RetryPolicy, Rule, Situation
from redrive.core.signals import Park, Requeue, RetryAfter, Signal

PAUSE_MS_MAX = 60_000
"""The longest pause in the consumer: far below the broker's consumer timeout of 30 minutes."""
PAUSE_MS_SHORTEST, PAUSE_MS_LONGEST = 500, 1_500
"""The range of a pause whose length nobody asked for."""
DELAY_MS_MAX = 366 * 86_400_000
"""A year. A longer Retry-After is a mistake, and might not fit into a header."""
DELAY_MS_UNKNOWN = 30_000
"""If the author's own backoff raises or returns no number."""

TRANSIENT_4XX = (408, 409, 429)
TOO_EARLY = 425


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run as the rows see it: `own` is the answer of the policy's function, `rule` the first rule that matches."""

    outcome: Outcome
    situation: Situation
    policy: RetryPolicy
    own: Decision | None
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One row of the table: as text (`outcome`, `condition`, `consequence`) and as functions (`when`, `then`)."""

    outcome: str
    condition: str
    consequence: str
    when: Callable[[Case], bool]
    then: Callable[[Case], Decision]


def decide(outcome: Outcome, situation: Situation, policy: RetryPolicy) -> Decision:
    """Decides what becomes of the message. Every outcome has exactly one decision; no policy makes this raise."""
    case = _case(outcome, situation, policy)
    return _first_row(case).then(case)


def row_of(outcome: Outcome, situation: Situation, policy: RetryPolicy) -> DecisionRow:
    """The row that decides: what `decide` obeys, for people who ask why."""
    return _first_row(_case(outcome, situation, policy))


def _case(outcome: Outcome, situation: Situation, policy: RetryPolicy) -> Case:
    return Case(
        outcome=outcome,
        situation=situation,
        policy=policy,
        own=_ask_own(outcome, situation, policy),
        rule=_find_rule(outcome, policy.rules),
    )


def _first_row(case: Case) -> DecisionRow:
    for row in TABLE:
        if row.when(case):
            return row
    raise AssertionError("the table has a row for every outcome")


def _ask_own(outcome: Outcome, situation: Situation, policy: RetryPolicy) -> Decision | None:
    if policy.own is None:
        return None
    try:
        answer = policy.own(outcome, situation)
        return answer if isinstance(answer, Decision) else None
    except Exception:  # noqa: BLE001 - the author's code, as a handler is: its bug must not leave a message undecided
        return None


def _find_rule(outcome: Outcome, rules: tuple[Rule, ...]) -> Rule | None:
    match outcome:
        case Raised(error=Signal()):  # the handler has decided
            return None
        case Raised(error=error):
            status = None
        case Answered(status=status, error=error):
            pass
        case TimedOut():
            error, status = TimeoutError(), None
        case _:
            return None
    return next((rule for rule in rules if rule.matches(error=error, status=status)), None)


def _signals(kind: type[Signal]) -> Callable[[Case], bool]:
    return lambda case: isinstance(case.outcome, Raised) and isinstance(case.outcome.error, kind)


def _is(*kinds: type[Outcome]) -> Callable[[Case], bool]:
    return lambda case: isinstance(case.outcome, kinds)


def _rule_says(verdict: str) -> Callable[[Case], bool]:
    return lambda case: case.rule is not None and case.rule.then == verdict


def _answers(*statuses: range | int) -> Callable[[Case], bool]:
    known = frozenset(status for one in statuses for status in (one if isinstance(one, range) else (one,)))
    return lambda case: isinstance(case.outcome, Answered) and case.outcome.status in known


def _parks(reason: ParkReason) -> Callable[[Case], Decision]:
    decision = Parked(reason=reason)
    return lambda case: decision


def _own(case: Case) -> Decision:
    assert case.own is not None
    return case.own


def _park_by_rule(case: Case) -> Decision:
    return Parked(reason=ParkReason.STATUS if isinstance(case.outcome, Answered) else ParkReason.PERMANENT)


def _requeue(case: Case) -> Decision:
    pause_ms = PAUSE_MS_SHORTEST + int(case.situation.draw * (PAUSE_MS_LONGEST - PAUSE_MS_SHORTEST))
    match case.outcome:
        case Raised(error=Requeue(pause_ms=int(asked_ms))) | Answered(retry_after_ms=int(asked_ms)):
            pause_ms = asked_ms
    return Requeued(pause_ms=min(max(pause_ms, 0), PAUSE_MS_MAX))


def _retry_as_asked(case: Case) -> Decision:
    assert isinstance(case.outcome, Raised)
    assert isinstance(case.outcome.error, RetryAfter)
    return _retry(case, delay_ms=case.outcome.error.delay_ms)


def _retry_by_backoff(case: Case) -> Decision:
    rule = case.rule
    backoff = case.policy.backoff if rule is None or rule.backoff is None else rule.backoff
    delay_ms = _shorten_by_jitter(_ask_backoff(backoff, case), case)
    if isinstance(case.outcome, Answered) and case.outcome.retry_after_ms is not None:
        delay_ms = max(delay_ms, case.outcome.retry_after_ms)
    return _retry(case, delay_ms=delay_ms)


def _ask_backoff(backoff: Backoff, case: Case) -> int:
    try:
        delay_ms = int(backoff.delay_ms(case.situation.retries + 1))
    except Exception:  # noqa: BLE001 - the author's code again
        delay_ms = DELAY_MS_UNKNOWN
    return min(max(delay_ms, 0), DELAY_MS_MAX)


def _shorten_by_jitter(delay_ms: int, case: Case) -> int:
    return delay_ms - int(delay_ms * case.policy.jitter * case.situation.draw)


def _retry(case: Case, *, delay_ms: int) -> Decision:
    delay_ms = min(max(delay_ms, 0), DELAY_MS_MAX)
    for budget in BUDGETS:
        if budget.is_spent(case, delay_ms):
            return Parked(reason=budget.reason)
    return Retry(delay_ms=delay_ms, not_before_ms=case.situation.now_ms + delay_ms)


def _no_run_is_left(case: Case, delay_ms: int) -> bool:
    rule = case.rule
    runs = case.policy.attempts_max if rule is None or rule.attempts_max is None else rule.attempts_max
    return case.situation.retries + 1 >= runs


def _too_old(case: Case, delay_ms: int) -> bool:
    age_ms, age_ms_max = case.situation.age_ms, case.policy.age_ms_max
    return age_ms is not None and age_ms_max is not None and age_ms + delay_ms > age_ms_max


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit that may forbid another run: as text (`condition`) and as a function of the case and the delay."""

    condition: str
    reason: ParkReason
    is_spent: Callable[[Case, int], bool]


BUDGETS: tuple[Budget, ...] = (
    Budget("no run is left (retries + 1 ≥ attempts_max)", ParkReason.ATTEMPTS, _no_run_is_left),
    Budget("older than age_ms_max now, or when the delay is over", ParkReason.AGE, _too_old),
)

_ANY, _FAILED, _RULED = "any", "failed", "failed, Answered"
_PAUSED = "Requeued(0.5–1.5 s, or Retry-After)"
_BACKOFF = "Retry(by the backoff) *"
_any_4xx = _answers(range(400, 500))

# fmt: off
TABLE: tuple[DecisionRow, ...] = (
    DecisionRow(_ANY, "the policy's own function says", "what it says", lambda case: case.own is not None, _own),
    DecisionRow("Crashed", "always", "Parked(crashes)", _is(Crashed), _parks(ParkReason.CRASHES)),
    DecisionRow("Undecodable", "always", "Parked(undecodable)", _is(Undecodable), _parks(ParkReason.UNDECODABLE)),
    DecisionRow("Raised", "Park", "Parked(park)", _signals(Park), _parks(ParkReason.ASKED)),
    DecisionRow("Raised", "Requeue", "Requeued(the pause asked for, else 0.5–1.5 s)", _signals(Requeue), _requeue),
    DecisionRow("Raised", "RetryAfter", "Retry(exactly that delay) *", _signals(RetryAfter), _retry_as_asked),
    DecisionRow(_RULED, "a rule says ack", "Done", _rule_says("ack"), lambda case: Done()),
    DecisionRow(_RULED, "a rule says requeue", _PAUSED, _rule_says("requeue"), _requeue),
    DecisionRow(_RULED, "a rule says park", "Parked(permanent), Parked(status) if it came with a status", _rule_says("park"), _park_by_rule),  # noqa: E501
    DecisionRow(_RULED, "a rule says retry", "Retry(by the rule's backoff) *", _rule_says("retry"), _retry_by_backoff),
    DecisionRow("Succeeded", "always", "Done", _is(Succeeded), lambda case: Done()),
    DecisionRow("Answered", "2xx", "Done", _answers(range(200, 300)), lambda case: Done()),
    DecisionRow("Answered", "425", _PAUSED, _answers(TOO_EARLY), _requeue),
    DecisionRow("Answered", "408, 409, 429", _BACKOFF, _answers(*TRANSIENT_4XX), _retry_by_backoff),
    DecisionRow("Answered", "another 4xx, other_4xx: park", "Parked(status)", lambda case: case.policy.other_4xx == "park" and _any_4xx(case), _parks(ParkReason.STATUS)),  # noqa: E501
    DecisionRow("Answered", "any other", _BACKOFF, _is(Answered), _retry_by_backoff),
    DecisionRow(_FAILED, "always", _BACKOFF, _is(Raised, TimedOut), _retry_by_backoff),
)
# fmt: on
