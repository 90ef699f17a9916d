"""A minimal consumer on the embedded broker's engine in virtual time: it does what a queue's plan says.

It takes a delivery, asks the pure rooms (foreign? too early? which decision? which commands?) and executes the
commands. Nothing here knows a shape; where a message ends is read from the engine, not from the commands."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from redrive import wire
from redrive.core import (
    AckDelivery,
    Attempt,
    Command,
    Decision,
    Defer,
    Outcome,
    Parked,
    Pause,
    PlainMessage,
    PublishCopy,
    Raised,
    RejectDelivery,
    Report,
    RequeueDelivery,
    Situation,
    Skip,
    count_retries,
    decide,
    describe_outcome,
    headers,
    read_history,
)
from redrive.embedded.engine import Confirm, GetOk
from redrive.topology import Compiled, DestinationType, QueuePlan
from tests.unit.embedded.engine_rig import START_MS, Rig

STEPS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the handler: seconds since the start, the queue, the attempt, and the key the handler saw."""

    at_s: float
    queue: str
    attempt: int
    routing_key: str


@dataclass(slots=True)
class Walk:
    """What happened: runs of handlers, decisions of every kind, and commands."""

    runs: list[Run] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)

    @property
    def moments_s(self) -> list[float]:
        return [run.at_s for run in self.runs]


Script = Callable[[int], Outcome]
"""How the n-th run (from 1) of any handler ends."""


def always_failing(_run: int) -> Outcome:
    return Raised(ValueError("no"))


class Walker:
    """One engine with a compiled topology on it, and a consumer for some of its queues."""

    def __init__(self, compiled: Compiled, profile: str) -> None:
        self.compiled = compiled
        self.rig = Rig(profile)
        for exchange in compiled.topology.exchanges:
            self.rig.channel.declare_exchange(exchange.name, exchange.type, durable=True, arguments={})
        for queue in compiled.topology.queues:
            self.rig.channel.declare_queue(queue.name, durable=True, arguments=queue.arguments.thaw())
        for binding in compiled.topology.bindings:
            assert binding.destination_type is DestinationType.QUEUE
            self.rig.channel.bind_queue(binding.destination, binding.source, binding.routing_key, {})
        self.publishing = self.rig.open_channel()
        self.publishing.select_confirms()
        self.walk = Walk()

    def publish(self, exchange: str, routing_key: str, **properties: object) -> None:
        raw = wire.Properties.of(delivery_mode=2, message_id="m-1", **properties).raw  # type: ignore[arg-type]
        self.rig.channel.publish(exchange, routing_key, raw, b"{}")

    def consume(self, queues: Iterable[str], script: Script = always_failing, *, until_s: float = 1e6) -> Walk:
        """Consumes until nothing is ready and nothing will be, or until so much virtual time has passed."""
        plans = [self.compiled.queue(name) for name in queues]
        engine = self.rig.engine
        for _ in range(STEPS_MAX):
            if self._now_s() > until_s:
                return self.walk
            if any(self._take(plan, script) for plan in plans):
                continue
            deadline_ms = engine.next_deadline_ms
            if deadline_ms is None:
                return self.walk
            engine.advance_to(max(deadline_ms, engine.now_ms))
        raise AssertionError(f"no end after {STEPS_MAX} steps: {self.walk.runs[-3:]}")

    def places(self) -> list[str]:
        """Where the message is now, every copy of it."""
        return sorted(f"{place.state} in {place.queue}" for place in self.rig.engine.whereabouts("m-1"))

    def headers_in(self, queue: str) -> dict[str, object]:
        """The headers of the one message in a queue, which is taken."""
        got = self.rig.got(queue, no_ack=True)
        assert got is not None
        return dict(wire.Properties(got.header).headers)

    def _now_s(self) -> float:
        return round((self.rig.engine.now_ms - START_MS) / 1000, 3)

    def _take(self, plan: QueuePlan, script: Script) -> bool:
        got = self.rig.got(plan.name)
        if got is None:
            return False
        message = _letter(plan.name, got)
        now_ms = self.rig.engine.now_ms
        retries = count_retries(message, plan.counted_by)
        not_before_ms = read_not_before(message)
        report = Report(retries=retries, now_ms=now_ms)
        decision: Decision
        if plan.is_foreign(message):
            decision = Skip()
        elif not_before_ms > now_ms:
            decision = Defer(wait_ms=not_before_ms - now_ms, not_before_ms=not_before_ms)
        else:
            self.walk.runs.append(Run(self._now_s(), plan.name, retries + 1, plan.handler_routing_key(message)))
            outcome = script(len(self.walk.runs))
            decision = decide(outcome, Situation(retries=retries, now_ms=now_ms), plan.policy)
            failure = describe_outcome(outcome)
            told = () if failure is None else (Attempt(number=retries + 1, at_ms=now_ms, error=failure.text),)
            report = Report(retries=retries, now_ms=now_ms, failure=failure, history=(*read_history(message), *told))
        self.walk.decisions.append(decision)
        self._obey(plan.commands(decision, message, report), got)
        return True

    def _obey(self, commands: tuple[Command, ...], got: GetOk) -> None:
        channel, tag = self.rig.channel, got.delivery_tag
        for command in commands:
            self.walk.commands.append(command)
            match command:
                case PublishCopy():
                    self._copy(command, got)
                case Pause(pause_ms=pause_ms):
                    self.rig.pass_time(pause_ms / 1000)
                case AckDelivery():
                    channel.ack(tag)
                case RejectDelivery():
                    channel.reject(tag, requeue=False)
                case RequeueDelivery(counted=True):
                    channel.reject(tag)
                case RequeueDelivery():
                    channel.nack(tag)

    def _copy(self, command: PublishCopy, got: GetOk) -> None:
        expiration = None if command.expiration_ms is None else str(command.expiration_ms)
        properties = wire.Properties(got.header).edit(
            headers=command.set_headers, drop=command.drop_headers, expiration=expiration, delivery_mode=2
        )
        self.rig.effects()
        self.publishing.publish(command.exchange, command.routing_key, properties.raw, got.message.body, mandatory=True)
        taken = self.rig.effects()
        assert [type(effect) for effect in taken] == [Confirm], f"{command} was not taken: {taken}"


def _letter(queue: str, got: GetOk) -> PlainMessage:
    return PlainMessage(
        queue=queue,
        exchange=got.message.exchange,
        routing_key=got.message.keys[0],
        redelivered=got.redelivered,
        headers=dict(wire.Properties(got.header).headers),
    )


def read_not_before(message: PlainMessage) -> int:
    value = message.header(headers.NOT_BEFORE)
    return value if isinstance(value, int) else 0


def parked(walk: Walk) -> list[Parked]:
    return [decision for decision in walk.decisions if isinstance(decision, Parked)]
