"""Simulates one message on one queue: deliveries, decisions and waits, until the message ends or never will.

`simulate` takes a topology, the name of a queue and a script, and gives a timeline. A simulation is bounded in every
direction: runs, steps and virtual time. A message that is still moving at the bound is endless.
"""

from typing import assert_never

from redrive.core import (
    AckDelivery,
    Finding,
    InvalidDeclaration,
    InvalidInput,
    Pause,
    PublishCopy,
    RejectDelivery,
    RequeueDelivery,
    Severity,
    did_you_mean,
    format_duration_ms,
)
from redrive.embedded import AmqpError, Hop
from redrive.simulation.script import Script, failing, parse_script
from redrive.simulation.simulated_broker import PublishRoute, SimulatedBroker, SimulatedDelivery, find_publish_route
from redrive.simulation.simulated_consumers import ConsumerReaction, DecidingConsumer, DirectConsumer, SimulatedConsumer
from redrive.simulation.timeline import EndState, EventKind, Timeline, TimelineEvent
from redrive.topology import BrokerVersion, Compiled, QueueType, Topology, check_for

RUNS_EXTRA_MAX = 100
"""Runs beyond the queue's limit and the script's length before a message counts as endless."""
STEPS_EXTRA_MAX, STEPS_PER_RUN = 20_000, 4
"""Deliveries and deadlines before a message counts as endless; a long RetryAfter over a short wait takes many."""
AGE_MS_MAX = 10 * 366 * 86_400_000
_HOLDS_UNTIL_STUCK = 2
PAUSE_MS_FIRST, PAUSE_MS_LONGEST = 1_000, 60_000
"""How long a consumer holds a delivery whose copy was not taken; doubled each time."""
DEFAULT_SCRIPT = "fail"
DEFAULT_DIRECT_SCRIPT = "reject"
_NAMES_SHOWN = 30


class UnknownQueue(InvalidInput):
    """The queue named is not in the file."""


class UnreachableQueue(InvalidInput):
    """A message published to the given exchange with the given key does not reach the queue."""


def simulate(
    topology: Topology,
    *,
    queue: str,
    compiled: Compiled | None = None,
    script: str | None = None,
    fail: int | None = None,
    profile: str = "4.3",
    vhost: str | None = None,
    publish_to: PublishRoute | None = None,
) -> tuple[Timeline, tuple[Finding, ...]]:
    """The timeline of one message on a queue, and what had to be left out of the topology.

    A queue that `compiled` declares is consumed as the runtime would: the handler follows `script`, or fails `fail`
    times and then succeeds; by default every run fails. For any other queue the script says what the consumer tells the
    broker, by default `reject`. `publish_to` None: the first exchange that the queue is bound to. Raises
    `UnknownQueue`, `InvalidScript`, `InvalidDeclaration` for what the profile refuses, and `UnreachableQueue`.
    """
    vhost = _find_vhost(topology, queue, vhost)
    _refuse_for(topology, queue=queue, vhost=vhost, profile=profile)
    consumer: SimulatedConsumer
    if compiled is not None and any(one.name == queue for one in compiled.declared):
        consumer = DecidingConsumer(compiled.queue(queue))
        words = parse_script(DEFAULT_SCRIPT if script is None else script) if fail is None else failing(fail)
    else:
        consumer = DirectConsumer()
        words = _direct_script(script, fail)
    broker = SimulatedBroker(topology, vhost=vhost, queue=queue, profile=profile)
    route = find_publish_route(topology, vhost=vhost, queue=queue) if publish_to is None else publish_to
    try:
        timeline = Simulator(broker, consumer, words).run(route)
    except AmqpError as refusal:
        raise _unreachable(queue, route, refusal.text) from None
    except Misrouted as misrouted:
        raise _unreachable(queue, route, str(misrouted)) from None
    return timeline, tuple(broker.left_out)


def _direct_script(script: str | None, fail: int | None) -> Script:
    if fail is not None:
        summary = "needs a queue that a redrive.yaml declares: FILE does not say how this queue's consumer decides"
        hint = f"use direct actions, for example --script reject*{max(fail, 1)},ok"
        raise InvalidInput([Finding(code="nobody-decides", address="--fail", summary=summary, hint=hint)])
    return parse_script(DEFAULT_DIRECT_SCRIPT if script is None else script, direct=True)


def _find_vhost(topology: Topology, queue: str, chosen: str | None) -> str:
    homes = [one.vhost for one in topology.queues if one.name == queue and chosen in (None, one.vhost)]
    if len(homes) == 1:
        return homes[0]
    if homes:
        summary = f"is in the vhosts {', '.join(homes)}"
        hint = f"say which: --vhost {homes[0]}"
    else:
        names = [one.name for one in topology.queues if chosen in (None, one.vhost)]
        summary = "is not in the file" if chosen is None else f"is not in the file's vhost {chosen}"
        hint = did_you_mean(queue, names)
        if len(names) > _NAMES_SHOWN and not hint.startswith("did you mean"):
            hint = f"none of its {len(names)} queues has a name like that"
    raise UnknownQueue([Finding(code="unknown-queue", address=f"queue {queue}", summary=summary, hint=hint)])


def _refuse_for(topology: Topology, *, queue: str, vhost: str, profile: str) -> None:
    """Refuses a queue that this version of RabbitMQ can't have as it is declared."""
    found = topology.queue(queue, vhost)
    assert found is not None
    if found.type == QueueType.STREAM:
        summary = "is a stream, which neither retries nor dead-letters"
        raise InvalidDeclaration([Finding(code="stream", address=found.address, summary=summary)])
    errors = [
        one for one in check_for(Topology(queues=(found,)), BrokerVersion(profile)) if one.severity is Severity.ERROR
    ]
    if errors:
        raise InvalidDeclaration(errors)


def _unreachable(queue: str, route: PublishRoute, why: str) -> UnreachableQueue:
    summary = f"does not get there through exchange {route.exchange or '(default)'} with key {route.key!r}: {why}"
    hint = "name another with --exchange and --key"
    return UnreachableQueue([Finding(code="unreachable", address=f"a message for {queue}", summary=summary, hint=hint)])


class Misrouted(Exception):
    """The published message reaches other queues only."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        super().__init__(f"it goes to {', '.join(queues)}")


class Simulator:
    """One simulation; `run` gives its timeline."""

    def __init__(self, broker: SimulatedBroker, consumer: SimulatedConsumer, script: Script) -> None:
        self._broker = broker
        self._consumer = consumer
        self._script = script
        self._events: list[TimelineEvent] = []
        self._runs = 0
        self._steps = 0
        self._last_reaction: ConsumerReaction | None = None
        self._last_headers: dict[str, object] = {}
        self._not_taken = 0
        self._held = 0

    def run(self, route: PublishRoute) -> Timeline:
        """From the publish to the end. Raises AmqpError if the exchange does not exist, and `Misrouted`."""
        self._broker.publish(route)
        self._note_publish(route)
        counted = self._consumer.attempts_max
        runs_max = (0 if counted is None else counted) + len(self._script.steps) + RUNS_EXTRA_MAX
        for _ in range(STEPS_EXTRA_MAX + runs_max * STEPS_PER_RUN):
            delivery = self._broker.take()
            if delivery is not None:
                if self._steps >= runs_max:
                    return self._timeline(EndState.ENDLESS)
                self._handle(delivery)
            elif self._is_stuck():
                return self._timeline(EndState.STUCK)
            elif self._broker.now_ms > AGE_MS_MAX or not self._broker.advance_to_next_deadline():
                return self._end()
            else:
                self._note_hops()
        return self._timeline(EndState.ENDLESS)

    def _handle(self, delivery: SimulatedDelivery) -> None:
        message = delivery.message
        reaction = self._consumer.take(message, self._script, run=self._steps + 1, now_ms=self._broker.clock_ms)
        self._runs += reaction.attempt is not None
        self._steps += reaction.follows_script
        self._last_reaction = reaction
        self._last_headers = dict(message.headers)
        self._note(
            EventKind.RUN,
            reaction.text,
            queue=self._broker.queue,
            attempt=reaction.attempt,
            outcome=reaction.outcome,
            decision=reaction.decision,
            delay_ms=reaction.delay_ms,
            headers=message.headers,
        )
        if reaction.commands is None:
            self._broker.crash()
        else:
            self._execute(delivery, reaction)
        self._note_hops()

    def _execute(self, delivery: SimulatedDelivery, reaction: ConsumerReaction) -> None:
        broker = self._broker
        for command in reaction.commands or ():
            match command:
                case Pause(pause_ms=pause_ms):
                    self._pause(pause_ms)
                case PublishCopy():
                    if not broker.copy(delivery, command):
                        self._requeue(delivery, command)
                        return
                    self._not_taken = 0
                case AckDelivery():
                    broker.ack(delivery)
                case RejectDelivery():
                    broker.discard(delivery, by_reject=reaction.decision == "reject")
                case RequeueDelivery(counted=counted):
                    broker.requeue(delivery, counted=counted)
                case _:
                    assert_never(command)

    def _requeue(self, delivery: SimulatedDelivery, command: PublishCopy) -> None:
        """As the runtime: the broker did not take the copy, so the delivery is requeued after a pause that grows."""
        way = f"{command.exchange or '(default)'} with {command.routing_key!r}"
        self._note(EventKind.REFUSED, f"the copy to {way} was not taken", queue=self._broker.queue)
        self._note_hops()
        self._pause(min(PAUSE_MS_FIRST << min(self._not_taken, 10), PAUSE_MS_LONGEST))
        self._not_taken += 1
        self._broker.requeue(delivery, counted=False)

    def _pause(self, pause_ms: int) -> None:
        self._note(
            EventKind.PAUSED,
            f"the consumer holds it for {format_duration_ms(pause_ms)}",
            queue=self._broker.queue,
            delay_ms=pause_ms,
            until_ms=self._broker.now_ms + pause_ms,
        )
        self._broker.wait(pause_ms)

    def _is_stuck(self) -> bool:
        """Whether every copy is held for a dead-letter target that failed twice."""
        if self._held < _HOLDS_UNTIL_STUCK:
            return False
        places = self._broker.places()
        return bool(places) and all(place.state == "held" for place in places)

    def _note_publish(self, route: PublishRoute) -> None:
        (hop,) = (one for one in self._broker.hops() if one.rule == "published")
        also = self._other_queues(hop)
        through = route.exchange or "the default exchange"
        through += f", key {route.key}" if route.exchange and route.key else ""
        if hop.targets and self._broker.queue not in hop.targets:
            raise Misrouted(hop.targets)
        home = self._broker.queue if hop.targets else None
        self._note(EventKind.PUBLISHED, f"published to {through}", queue=home, also=also)
        if not hop.targets:
            self._note(EventKind.DROPPED, "dropped: no queue takes it", why="no queue takes it there")

    def _other_queues(self, hop: Hop) -> tuple[str, ...]:
        """Other queues that got a copy together with ours; their consumers are not simulated."""
        if self._broker.queue not in hop.targets:
            return ()
        others = tuple(target for target in hop.targets if target != self._broker.queue)
        for other in others:
            self._broker.purge(other)
        return others

    def _note_hops(self) -> None:
        """Adds what the broker did since the last call to the events."""
        for hop in self._broker.hops():
            match hop.rule:
                case "published" | "died":
                    also = self._other_queues(hop)
                    for target in [one for one in hop.targets if one not in also]:
                        self._note_arrival(hop, target, also)
                case "requeued":
                    self._note(EventKind.REQUEUED, "back in its queue", queue=hop.queue)
                case "delayed":
                    self._note_delay(hop)
                case "held":
                    self._held += 1
                    self._note(EventKind.HELD, f"held: {hop.why}", queue=hop.queue, why=hop.why)
                case "dropped":
                    self._note(EventKind.DROPPED, hop.text, why=hop.why)
                case "refused":
                    self._note(EventKind.REFUSED, f"{hop.queue} is full", queue=hop.queue)
                case "gone" if hop.why != "purged":
                    self._note(EventKind.DROPPED, hop.text, queue=hop.queue, why=hop.why)

    def _note_arrival(self, hop: Hop, queue: str, also: tuple[str, ...]) -> None:
        why = "copied" if hop.rule == "published" else hop.why
        text = "copied here" if hop.rule == "published" else f"dead-lettered here ({hop.why} in {hop.queue})"
        until_ms = None
        for place in self._broker.places():
            if place.queue == queue and place.state == "ready" and place.expires_at_ms is not None:
                until_ms = place.expires_at_ms - self._broker.clock_ms + self._broker.now_ms
        if until_ms is not None and queue != self._broker.queue:
            text += f", waits {format_duration_ms(until_ms - self._broker.now_ms)}"
        elif queue == self._consumer.parking:
            text = f"parked: {text}"
        self._note(EventKind.ARRIVED, text, queue=queue, why=why, until_ms=until_ms, also=also)

    def _note_delay(self, hop: Hop) -> None:
        delay_ms = hop.delay_ms or 0
        self._note(
            EventKind.DELAYED,
            f"delayed by the queue itself for {format_duration_ms(delay_ms)}",
            queue=hop.queue,
            delay_ms=delay_ms,
            until_ms=self._broker.now_ms + delay_ms,
        )

    def _note(self, kind: EventKind, text: str, **known: object) -> None:
        self._events.append(TimelineEvent(at_ms=self._broker.now_ms, kind=kind, text=text, **known))  # type: ignore[arg-type]

    def _end(self) -> Timeline:
        """The timeline once no deadline is left."""
        places = self._broker.places()
        if places:
            return self._timeline(EndState.STUCK if all(one.state == "held" for one in places) else EndState.PARKED)
        handled = self._last_reaction is not None and self._last_reaction.decision == "ack"
        return self._timeline(EndState.HANDLED if handled else EndState.LOST)

    def _timeline(self, end_state: EndState) -> Timeline:
        places = list(dict.fromkeys(place.queue for place in self._broker.places()))
        at_ms = self._events[-1].at_ms
        headers = self._last_headers
        if end_state is EndState.PARKED:
            headers = self._broker.headers_in(places[0])
        return Timeline(
            queue=self._broker.queue,
            shape=self._consumer.shape,
            profile=self._broker.profile,
            script=self._script.text,
            attempts_max=self._consumer.attempts_max,
            events=tuple(self._events),
            end_state=end_state,
            text=self._summary(end_state, places, at_ms),
            at_ms=at_ms,
            final_queue=places[0] if places else None,
            headers=headers if end_state in (EndState.PARKED, EndState.HANDLED) else {},
        )

    def _summary(self, end_state: EndState, places: list[str], at_ms: int) -> str:
        """The end in one sentence."""
        runs = {0: "no run", 1: "1 run"}.get(self._runs, f"{self._runs} runs")
        when = f"{format_duration_ms(at_ms)} after it was published"
        match end_state:
            case EndState.HANDLED:
                return f"Handled after {runs}, {when}."
            case EndState.PARKED:
                word = "Parked" if places == [self._consumer.parking] else "Kept"
                return f"{word} in {', '.join(places)} after {runs}, {when}."
            case EndState.LOST:
                drops = [event.why for event in self._events if event.kind is EventKind.DROPPED]
                return f"Lost after {runs}, {when}: {drops[-1] if drops else 'no queue has it'}."
            case EndState.STUCK:
                return f"Stuck in {', '.join(places)} after {runs}: no dead-letter target takes it."
            case EndState.ENDLESS:
                where = f" in {', '.join(places)}" if places else ""
                return f"Endless: still{where} after {runs}, and nothing bounds how often it comes back."
            case _:
                assert_never(end_state)
