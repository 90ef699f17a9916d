"""Simulated consumers: what a consumer tells the broker about a delivery, given what its handler does.

`DecidingConsumer` is for a declared queue and decides as the runtime does (the same table, the same shape).
`DirectConsumer` is for a queue of which only the topology is known and does what its script says.
"""

from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from redrive.core import (
    AckDelivery,
    Answered,
    Attempt,
    Command,
    Crashed,
    Decision,
    Defer,
    Done,
    Outcome,
    Parked,
    Pause,
    PublishCopy,
    Raised,
    ReceivedMessage,
    RejectDelivery,
    Report,
    Requeued,
    RequeueDelivery,
    Retry,
    Signal,
    Situation,
    Skip,
    Succeeded,
    TimedOut,
    Undecodable,
    count_retries,
    decide,
    describe_outcome,
    format_duration_ms,
    read_history,
)
from redrive.runtime import CRASHES_MAX, Admission, LastRun, ReplaceByCopy, RunExclusively
from redrive.simulation.script import DirectAction, Script
from redrive.topology import QueuePlan

BODY = b"{}"
DRAW = 0.5
"""Stands in for every random number: the middle of its range."""
RUNS_COUNTED_MAX = 1_000_000
"""A limit above this is no limit, and is not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReaction:
    """What a consumer did with a delivery. `attempt` None: no handler ran. `commands` None: the consumer died.

    `follows_script` is False where the handler did not run, so that the script's next word is still to come.
    """

    attempt: int | None
    outcome: str
    decision: str
    text: str
    commands: tuple[Command, ...] | None
    delay_ms: int | None = None
    follows_script: bool = True


class SimulatedConsumer(Protocol):
    """Consumes the queue."""

    @property
    def shape(self) -> str | None:
        """The shape's name, None if there is none."""

    @property
    def attempts_max(self) -> int | None:
        """How many runs there are at most; None if nothing counts them."""

    @property
    def parking(self) -> str | None:
        """The parking queue, if it is known."""

    def take(self, message: ReceivedMessage, script: Script, *, run: int, now_ms: int) -> ConsumerReaction:
        """Handles one delivery; `run` is its place in the script."""


class DecidingConsumer:
    """Decides as Redrive's runtime: admission, outcome, decision, the shape's commands."""

    def __init__(self, plan: QueuePlan) -> None:
        self._plan = plan
        self._policy = plan.policy
        self._now_ms = 0
        self._admission = Admission(plan, crashes_max=CRASHES_MAX, now_ms=lambda: self._now_ms)
        routes = plan.routes
        self.shape: str | None = plan.shape_name
        self.parking: str | None = None if routes is None else routes.parking.queue
        runs = self._policy.attempts_max
        self.attempts_max: int | None = runs if runs <= RUNS_COUNTED_MAX else None

    def take(self, message: ReceivedMessage, script: Script, *, run: int, now_ms: int) -> ConsumerReaction:
        """Handles one delivery."""
        self._now_ms = now_ms
        retries = count_retries(message, self._plan.counted_by)
        # A simulated consumer only dies in its handler, and there is no other consumer.
        verdict = self._admission.judge(message, BODY, last_run=LastRun.ITS_OWN)
        match verdict:
            case None | RunExclusively():
                pass
            case ReplaceByCopy(deliveries=deliveries):
                copy = self._admission.own_queue_copy(message, deliveries=deliveries)
                if copy is not None:
                    return _recounted(copy, deliveries)
            case Crashed() | Answered():
                return replace(self._decided(verdict, message, retries, attempt=None), follows_script=False)
            case Skip() | Defer():
                report = Report(retries=retries, now_ms=now_ms, history=read_history(message))
                outcome = "too early" if isinstance(verdict, Defer) else "another queue's retry"
                reaction = self._reaction(verdict, message, report, attempt=None, outcome=outcome)
                return replace(reaction, follows_script=False)
        does = script.step(run).does
        if isinstance(does, DirectAction):
            return direct_reaction(does, attempt=retries + 1)
        return self._decided(does, message, retries, attempt=None if isinstance(does, Undecodable) else retries + 1)

    def _decided(
        self, outcome: Outcome, message: ReceivedMessage, retries: int, *, attempt: int | None
    ) -> ConsumerReaction:
        now_ms = self._now_ms
        situation = Situation(retries=retries, now_ms=now_ms, age_ms=self._admission.age_ms(message), draw=DRAW)
        decision = decide(outcome, situation, self._policy)
        failure = describe_outcome(outcome)
        history = read_history(message)
        if attempt is not None and failure is not None:
            history += (Attempt(number=attempt, at_ms=now_ms, error=failure.text),)
        report = Report(retries=retries, now_ms=now_ms, failure=failure, history=history)
        return self._reaction(decision, message, report, attempt=attempt, outcome=describe(outcome))

    def _reaction(
        self, decision: Decision, message: ReceivedMessage, report: Report, *, attempt: int | None, outcome: str
    ) -> ConsumerReaction:
        word, phrase, delay_ms = _describe_decision(decision)
        return ConsumerReaction(
            attempt=attempt,
            outcome=outcome,
            decision=word,
            delay_ms=delay_ms,
            text=f"{outcome} → {phrase}",
            commands=self._commands(decision, message, report),
        )

    def _commands(self, decision: Decision, message: ReceivedMessage, report: Report) -> tuple[Command, ...]:
        """As the runtime: where crashes are counted a message goes back by a copy, since a return looks like one."""
        if isinstance(decision, Requeued):
            copy = self._admission.own_queue_copy(message, deliveries=None)
            if copy is not None:
                return Pause(pause_ms=decision.pause_ms), copy, AckDelivery()
        return self._plan.commands(decision, message, report)


def _recounted(copy: PublishCopy, deliveries: int) -> ConsumerReaction:
    times = "once" if deliveries == 1 else f"{deliveries} times"
    return ConsumerReaction(
        attempt=None,
        outcome="redelivered",
        decision="recount",
        text=f"its consumers may have died of it {times} → a copy that says so takes its place",
        commands=(copy, AckDelivery()),
        follows_script=False,
    )


class DirectConsumer:
    """Does what the script says, for a queue of which only the topology is known."""

    shape: str | None = None
    attempts_max: int | None = None
    parking: str | None = None

    def take(self, message: ReceivedMessage, script: Script, *, run: int, now_ms: int) -> ConsumerReaction:
        """Handles one delivery."""
        does = script.step(run).does
        assert isinstance(does, DirectAction)
        return direct_reaction(does, attempt=run)


def direct_reaction(action: DirectAction, *, attempt: int) -> ConsumerReaction:
    """What follows from a direct action."""
    commands: tuple[Command, ...]
    match action:
        case DirectAction.ACK:
            word, text, commands = "ack", "ok → ack", (AckDelivery(),)
        case DirectAction.REJECT:
            word, text, commands = "reject", "rejected without requeue", (RejectDelivery(),)
        case DirectAction.NACK:
            word, text, commands = "requeue", "nacked with requeue", (RequeueDelivery(counted=False),)
        case DirectAction.RETURN:
            word, text, commands = "requeue", "rejected with requeue", (RequeueDelivery(counted=True),)
        case DirectAction.CRASH:
            return ConsumerReaction(
                attempt=attempt, outcome=action.value, decision="crash", text="the consumer dies", commands=None
            )
        case _:
            assert_never(action)
    return ConsumerReaction(attempt=attempt, outcome=action.value, decision=word, text=text, commands=commands)


def describe(outcome: Outcome) -> str:
    """An outcome as a short phrase."""
    match outcome:
        case Succeeded():
            return "ok"
        case Raised(error=Signal() as signal):
            return type(signal).__name__
        case Raised():
            return "fails"
        case Answered(status=status, retry_after_ms=delay_ms):
            asked = "" if delay_ms is None else f", Retry-After {format_duration_ms(delay_ms)}"
            return f"HTTP {status}{asked}"
        case TimedOut():
            return "times out"
        case Undecodable():
            return "undecodable"
        case Crashed(deliveries=deliveries):
            return f"crashed {deliveries} times"
        case _:
            assert_never(outcome)


def _describe_decision(decision: Decision) -> tuple[str, str, int | None]:
    """A decision as the word in the logs, as a phrase, and its delay."""
    match decision:
        case Done():
            return "ack", "ack", None
        case Retry(delay_ms=0):
            return "retry", "retry at once", 0
        case Retry(delay_ms=delay_ms):
            return "retry", f"retry in {format_duration_ms(delay_ms)}", delay_ms
        case Defer(wait_ms=wait_ms):
            return "defer", f"waits {format_duration_ms(wait_ms)} more", wait_ms
        case Requeued(pause_ms=pause_ms):
            return "requeue", f"back to the queue after {format_duration_ms(pause_ms)}", pause_ms
        case Skip():
            return "skipped", "skipped", None
        case Parked(reason=reason):
            return "park", f"park ({reason})", None
        case _:
            assert_never(decision)
