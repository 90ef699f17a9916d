"""What must follow from the end of a run: the promises of policy and shape, written a second time, kept small.

Where chance or time decides (jitter, a paused queue, an age limit), several verdicts are right.
"""

from dataclasses import dataclass

from redrive.core import ParkReason, Rule
from redrive.topology import MoveBy, QueuePlan
from tests.simulation.consumer_options import ConsumerOptions
from tests.simulation.errors import Absent, Answer, Broken, Refused
from tests.simulation.runs import Run

_PAUSE_MS_MAX = 60_000
_ABSENT_STATUSES = (502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """No run follows, and nothing is parked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Another run follows, not before `wait_ms` from the end of this one."""

    counted: bool
    wait_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parks:
    """It is parked, with this reason; `error` is what x-final-error begins with."""

    reason: ParkReason
    error: str | None = None
    status: int | None = None


Verdict = Done | Again | Parks

_REQUEUED = Again(counted=False)
"""In every shape, and whatever the broker counts: a requeue costs the message no attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for the runs of one queue."""

    plan: QueuePlan
    options: ConsumerOptions
    counts_requeues: bool

    @property
    def runs_max(self) -> int:
        """The most runs that any rule allows."""
        assert self.plan.routes is not None
        ruled = [rule.attempts_max for rule in self.options.rules if rule.attempts_max is not None]
        return max(self.plan.routes.attempts, *ruled, 0)


def expect(run: Run, terms: Terms, *, published_ms: int | None, has_expired: bool = False) -> tuple[Verdict, ...]:
    """The verdicts that are right for a run that has ended; `has_expired`: its message did once, in this queue."""
    error, status = _error_of(run, terms.options)
    if error is None and status is None:
        return (Done(),)
    if run.end == "park":
        return (Parks(reason=ParkReason.ASKED, error="Park"),)
    if run.end == "requeue":
        return (_REQUEUED,)
    rule = None if run.end == "again" else _rule_of(error, status, terms.options)
    answers = _decide(run, terms, rule, status, published_ms, has_expired)
    absent = isinstance(error, ConnectionError) or status in _ABSENT_STATUSES
    if isinstance(error, TimeoutError):
        absent = TimeoutError in terms.options.pause_on
    if absent and terms.options.pause_after is not None:
        return (*answers, _REQUEUED)  # the queue may be paused; then it costs the message nothing
    return answers


def _error_of(run: Run, options: ConsumerOptions) -> tuple[BaseException | None, int | None]:
    """What was raised, and the status it had."""
    match run.end:
        case "ok" | "publish":
            return None, None
        case "broken":
            return Broken(), None
        case "refused":
            return Refused(), None
        case "absent":
            return Absent(), None
        case "answer":
            # An exception is a failure, even with a 2xx status.
            is_success = 200 <= run.step.status < 300
            return Answer(run.step.status), None if is_success else run.step.status
        case "cut":
            return TimeoutError(), None
        case "exit":
            return SystemExit(), None
        case _:  # signals, CancelledError and PublishFailed: no rule here is about them but "any Exception"
            return (BaseException() if run.end == "cancel" else Exception()), None


_ERRORS = {
    "broken": "Broken",
    "refused": "Refused",
    "absent": "Absent",
    "answer": "Answer",
    "cut": "TimeoutError",
    "exit": "SystemExit",
    "cancel": "CancelledError",
    "unpublished": "PublishFailed",
    "again": "RetryAfter",
}
"""What x-final-error begins with."""


def _rule_of(error: BaseException | None, status: int | None, options: ConsumerOptions) -> Rule | None:
    rules = [*options.rules]
    if options.park_on:
        rules.append(Rule(options.park_on, "park"))
    if options.retry_on is not None:
        rules += [Rule(options.retry_on, "retry"), Rule(Exception, "park")]
    for rule in rules:
        for cause in rule.on:
            if isinstance(cause, type):
                matches = isinstance(error, cause)
            else:
                matches = status is not None and (status in cause if isinstance(cause, range) else status == cause)
            if matches:
                return rule
    return None


def _decide(
    run: Run,
    terms: Terms,
    rule: Rule | None,
    status: int | None,
    published_ms: int | None,
    has_expired: bool,
) -> tuple[Verdict, ...]:
    text = _ERRORS[run.end or ""]
    asked_ms = None if run.step.value_s is None else round(run.step.value_s * 1000)
    if rule is not None and rule.then == "ack":
        return (Done(),)
    if rule is not None and rule.then == "park":
        if status is None:
            return (Parks(reason=ParkReason.PERMANENT, error=text),)
        return (Parks(reason=ParkReason.STATUS, error=text, status=status),)
    if rule is None and status is not None:
        if status == 425:
            return (_REQUEUED,)
        others = terms.plan.shape.unlisted_4xx if terms.plan.shape is not None else "park"
        if 400 <= status < 500 and status not in (408, 409, 429) and others == "park":
            return (Parks(reason=ParkReason.STATUS, error=text, status=status),)
    routes = terms.plan.routes
    assert routes is not None
    runs = routes.attempts if rule is None or rule.attempts_max is None else rule.attempts_max
    if run.attempt >= runs:
        return (Parks(reason=ParkReason.ATTEMPTS, error=text, status=status),)
    if run.end == "again":
        least_ms = most_ms = asked_ms or 0
    else:
        backoff = terms.plan.policy.backoff if terms.options.backoff is None else terms.options.backoff
        if rule is not None and rule.backoff is not None:
            backoff = rule.backoff
        whole_ms = backoff.delay_ms(run.attempt)
        retry_after_ms = (asked_ms or 0) if status is not None else 0
        least_ms = max(whole_ms - int(whole_ms * (terms.options.jitter or 0.0)), retry_after_ms)
        most_ms = max(whole_ms, retry_after_ms)
    again = Again(counted=_is_counted(run, terms), wait_ms=_shape_wait_ms(run, terms, least_ms, has_expired))
    age_s_max = terms.options.age_s_max
    if age_s_max is None:
        return (again,)
    aged = Parks(reason=ParkReason.AGE, error=text, status=status)
    if published_ms is None:  # counted from when a consumer saw it first, if a copy says so
        return (again, aged)
    age_ms = run.end_ms - published_ms
    if age_ms + least_ms > age_s_max * 1000:
        return (aged,)
    return (again, aged) if age_ms + most_ms > age_s_max * 1000 - 2_000 else (again,)


def retries_by_requeue(run: Run, terms: Terms) -> bool:
    """Whether a retry after this run is a requeue, which only the broker counts. A run above the queue's attempts,
    which only a rule allows, goes by a copy with its number."""
    routes = terms.plan.routes
    assert routes is not None
    return routes.retry_by is MoveBy.REQUEUE and run.attempt < routes.attempts


def _is_counted(run: Run, terms: Terms) -> bool:
    return terms.counts_requeues or not retries_by_requeue(run, terms)


def _shape_wait_ms(run: Run, terms: Terms, asked_ms: int, has_expired: bool) -> int:
    """The shortest that a shape makes of a delay. What has expired before goes by a copy where others are rejected."""
    routes = terms.plan.routes
    assert routes is not None
    if routes.retry_by is MoveBy.REJECT and not has_expired:
        return max(asked_ms, routes.waits[0].delay_ms)
    if not retries_by_requeue(run, terms):
        return asked_ms
    if terms.plan.shape_name == "native":
        return max(asked_ms, terms.plan.policy.backoff.delay_ms(1))
    return min(asked_ms, _PAUSE_MS_MAX)  # the literal nack has nowhere to wait
