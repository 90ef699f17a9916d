"""One message through one queue: deliveries, decisions and waits until it has an end, or has none.

Bounded in every direction: runs, moments, and virtual time. A message that is still on its way then is endless.
"""

from typing import assert_never

from redrive.core import AckDelivery, Pause, PublishCopy, RejectDelivery, RequeueDelivery, format_duration_ms
from redrive.embedded import Hop
from redrive.simulation.consumers import Consumer, Said
from redrive.simulation.lives import Ending, Event, Kind, Life
from redrive.simulation.script import Script
from redrive.simulation.stage import Delivery, Entrance, Stage

RUNS_BEYOND = 100
"""Runs more than a queue's own and its script's, before a message counts as endless."""
MOMENTS_BEYOND, MOMENTS_OF_A_RUN = 20_000, 4
"""Deliveries and deadlines before a message counts as endless; a long RetryAfter over a short wait takes many."""
AGE_MS_MAX = 10 * 366 * 86_400_000
_TRIES_IN_VAIN = 2
PAUSE_MS_FIRST, PAUSE_MS_LONGEST = 1_000, 60_000
"""How long a consumer holds a delivery whose copy was not taken; doubled each time."""


class Astray(Exception):
    """What was published goes to other queues only."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        super().__init__(f"it goes to {', '.join(queues)}")


class Play:
    """One performance; `run` gives the life."""

    def __init__(self, stage: Stage, consumer: Consumer, script: Script) -> None:
        self._stage = stage
        self._consumer = consumer
        self._script = script
        self._events: list[Event] = []
        self._runs = 0
        self._steps = 0
        self._last: Said | None = None
        self._last_letter_headers: dict[str, object] = {}
        self._not_taken = 0
        self._held = 0

    def run(self, entrance: Entrance) -> Life:
        """From the publish to the end. Raises Refusal where the entrance is none, and `Astray`."""
        self._stage.publish(entrance)
        self._note_publish(entrance)
        counted = self._consumer.attempts_max
        runs_max = (0 if counted is None else counted) + len(self._script.steps) + RUNS_BEYOND
        for _ in range(MOMENTS_BEYOND + runs_max * MOMENTS_OF_A_RUN):
            delivery = self._stage.take()
            if delivery is not None:
                if self._steps >= runs_max:
                    return self._life(Ending.ENDLESS)
                self._handle(delivery)
            elif self._is_stuck():
                return self._life(Ending.STUCK)
            elif self._stage.now_ms > AGE_MS_MAX or not self._stage.next_moment():
                return self._end()
            else:
                self._note_hops()
        return self._life(Ending.ENDLESS)

    def _handle(self, delivery: Delivery) -> None:
        letter = delivery.letter
        said = self._consumer.take(letter, self._script, run=self._steps + 1, now_ms=self._stage.clock_ms)
        self._runs += said.attempt is not None
        self._steps += said.follows_script
        self._last = said
        self._last_letter_headers = dict(letter.headers)
        self._note(
            Kind.RUN,
            said.text,
            queue=self._stage.queue,
            attempt=said.attempt,
            outcome=said.outcome,
            decision=said.decision,
            delay_ms=said.delay_ms,
            headers=letter.headers,
        )
        if said.commands is None:
            self._stage.crash()
        else:
            self._execute(delivery, said)
        self._note_hops()

    def _execute(self, delivery: Delivery, said: Said) -> None:
        stage = self._stage
        for command in said.commands or ():
            match command:
                case Pause(pause_ms=pause_ms):
                    self._pause(pause_ms)
                case PublishCopy():
                    if not stage.copy(delivery, command):
                        self._put_back(delivery, command)
                        return
                    self._not_taken = 0
                case AckDelivery():
                    stage.ack(delivery)
                case RejectDelivery():
                    stage.discard(delivery, by_reject=said.decision == "reject")
                case RequeueDelivery(counted=counted):
                    stage.give_back(delivery, counted=counted)
                case _:
                    assert_never(command)

    def _put_back(self, delivery: Delivery, command: PublishCopy) -> None:
        """As the runtime: the copy was not taken, so the delivery goes back, after a pause that grows."""
        way = f"{command.exchange or '(default)'} with {command.routing_key!r}"
        self._note(Kind.REFUSED, f"the copy to {way} was not taken", queue=self._stage.queue)
        self._note_hops()
        self._pause(min(PAUSE_MS_FIRST << min(self._not_taken, 10), PAUSE_MS_LONGEST))
        self._not_taken += 1
        self._stage.give_back(delivery, counted=False)

    def _pause(self, pause_ms: int) -> None:
        self._note(
            Kind.PAUSED,
            f"the consumer holds it for {format_duration_ms(pause_ms)}",
            queue=self._stage.queue,
            delay_ms=pause_ms,
            until_ms=self._stage.now_ms + pause_ms,
        )
        self._stage.wait(pause_ms)

    def _is_stuck(self) -> bool:
        """Whether every copy is held for a target that has been tried in vain twice."""
        if self._held < _TRIES_IN_VAIN:
            return False
        places = self._stage.places()
        return bool(places) and all(place.state == "held" for place in places)

    def _note_publish(self, entrance: Entrance) -> None:
        (hop,) = (one for one in self._stage.hops() if one.rule == "published")
        also = self._bystanders(hop)
        through = entrance.exchange or "the default exchange"
        through += f", key {entrance.key}" if entrance.exchange and entrance.key else ""
        if hop.targets and self._stage.queue not in hop.targets:
            raise Astray(hop.targets)
        home = self._stage.queue if hop.targets else None
        self._note(Kind.PUBLISHED, f"published to {through}", queue=home, also=also)
        if not hop.targets:
            self._note(Kind.DROPPED, "dropped: no queue takes it", why="no queue takes it there")

    def _bystanders(self, hop: Hop) -> tuple[str, ...]:
        """Other queues that got it together with ours: their consumers see to it, this play does not."""
        if self._stage.queue not in hop.targets:
            return ()
        others = tuple(target for target in hop.targets if target != self._stage.queue)
        for other in others:
            self._stage.forget(other)
        return others

    def _note_hops(self) -> None:
        """What the broker did, as events; where the message waits now, until when."""
        for hop in self._stage.hops():
            match hop.rule:
                case "published" | "died":
                    also = self._bystanders(hop)
                    for target in [one for one in hop.targets if one not in also]:
                        self._note_arrival(hop, target, also)
                case "requeued":
                    self._note(Kind.RETURNED, "back in its queue", queue=hop.queue)
                case "delayed":
                    self._note_delay(hop)
                case "held":
                    self._held += 1
                    self._note(Kind.HELD, f"held: {hop.why}", queue=hop.queue, why=hop.why)
                case "dropped":
                    self._note(Kind.DROPPED, hop.text, why=hop.why)
                case "refused":
                    self._note(Kind.REFUSED, f"{hop.queue} is full", queue=hop.queue)
                case "gone" if hop.why != "purged":
                    self._note(Kind.DROPPED, hop.text, queue=hop.queue, why=hop.why)

    def _note_arrival(self, hop: Hop, queue: str, also: tuple[str, ...]) -> None:
        why = "copied" if hop.rule == "published" else hop.why
        text = "copied here" if hop.rule == "published" else f"dead-lettered here ({hop.why} in {hop.queue})"
        until_ms = None
        for place in self._stage.places():
            if place.queue == queue and place.state == "ready" and place.expires_at_ms is not None:
                until_ms = place.expires_at_ms - self._stage.clock_ms + self._stage.now_ms
        if until_ms is not None and queue != self._stage.queue:
            text += f", waits {format_duration_ms(until_ms - self._stage.now_ms)}"
        elif queue == self._consumer.parking:
            text = f"parked: {text}"
        self._note(Kind.ARRIVED, text, queue=queue, why=why, until_ms=until_ms, also=also)

    def _note_delay(self, hop: Hop) -> None:
        delay_ms = hop.delay_ms or 0
        self._note(
            Kind.DELAYED,
            f"delayed by the queue itself for {format_duration_ms(delay_ms)}",
            queue=hop.queue,
            delay_ms=delay_ms,
            until_ms=self._stage.now_ms + delay_ms,
        )

    def _note(self, kind: Kind, text: str, **known: object) -> None:
        self._events.append(Event(at_ms=self._stage.now_ms, kind=kind, text=text, **known))  # type: ignore[arg-type]

    def _end(self) -> Life:
        """Nothing will happen any more."""
        places = self._stage.places()
        if places:
            return self._life(Ending.STUCK if all(one.state == "held" for one in places) else Ending.PARKED)
        handled = self._last is not None and self._last.decision == "ack"
        return self._life(Ending.HANDLED if handled else Ending.LOST)

    def _life(self, ending: Ending) -> Life:
        places = list(dict.fromkeys(place.queue for place in self._stage.places()))
        at_ms = self._events[-1].at_ms
        headers = self._last_letter_headers
        if ending is Ending.PARKED:
            headers = self._stage.headers_in(places[0])
        return Life(
            queue=self._stage.queue,
            shape=self._consumer.shape,
            profile=self._stage.profile,
            script=self._script.text,
            attempts_max=self._consumer.attempts_max,
            events=tuple(self._events),
            ending=ending,
            text=self._epitaph(ending, places, at_ms),
            at_ms=at_ms,
            resting_in=places[0] if places else None,
            headers=headers if ending in (Ending.PARKED, Ending.HANDLED) else {},
        )

    def _epitaph(self, ending: Ending, places: list[str], at_ms: int) -> str:
        """The end in one sentence."""
        runs = {0: "no run", 1: "1 run"}.get(self._runs, f"{self._runs} runs")
        when = f"{format_duration_ms(at_ms)} after it was published"
        match ending:
            case Ending.HANDLED:
                return f"Handled after {runs}, {when}."
            case Ending.PARKED:
                word = "Parked" if places == [self._consumer.parking] else "Kept"
                return f"{word} in {', '.join(places)} after {runs}, {when}."
            case Ending.LOST:
                drops = [event.why for event in self._events if event.kind is Kind.DROPPED]
                return f"Lost after {runs}, {when}: {drops[-1] if drops else 'no queue has it'}."
            case Ending.STUCK:
                return f"Stuck in {', '.join(places)} after {runs}: no dead-letter target takes it."
            case Ending.ENDLESS:
                where = f" in {', '.join(places)}" if places else ""
                return f"Endless: still{where} after {runs}, and nothing bounds how often it comes back."
            case _:
                assert_never(ending)
