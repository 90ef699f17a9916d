"""Accounts for every message of a scenario that was played.

A unit is a message in a queue that consumes it. It ends by being handled or by being parked; `ends` counts both.

    entered = 0                                    nothing may run, nothing may be parked
    ends ≥ 1                                       else it is lost, unless an exception below holds
    ends ≤ entered + disturbances                  a duplicate needs a cause in the life of this very message
    disturbances = 0 and entered = 1               then everything is exact: the number of every attempt, what followed
                                                   from each run, no delay shorter than the policy's, one end, the
                                                   headers of a parked copy

A disturbance is a delivery that was unsettled when its connection or channel ended, or a copy that was published and
not confirmed. A copy that the broker refused and did not keep disturbs too, but makes no duplicate. The exceptions, all
of them documented, and all of them publishers' own choices: a transient message in a classic queue is gone after a
restart of the broker; a message with an `expiration` that is over before anybody takes it is dead-lettered by the
broker, and in the reject loops (`service`, `per-queue`, `quorum`) dropped or held as a cycle; on 3.10 such a message
that brings another's x-death comes back from the loop, and its exchange and key can't be known any more
(`_may_have_forgotten`).
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from redrive import wire
from redrive.core import Counter as CountedBy
from redrive.core import ParkReason, headers
from redrive.embedded.engine import journal
from redrive.topology import MoveBy
from tests.simulation.expectations import Again, Done, Parks, Terms, Verdict, expect, retries_by_requeue
from tests.simulation.ledger import properties_of
from tests.simulation.runs import Run
from tests.simulation.workloads import Sent, Unit, body_of, number_of
from tests.simulation.world import PlayedScenario

_EARLY_MS = 2
"""Timers are in whole milliseconds."""


@dataclass(slots=True, kw_only=True)
class Account:
    """The account of a scenario's messages."""

    faults_found: list[str] = field(default_factory=list)
    """Everything that is wrong; empty is good."""
    units: int = 0
    handled: int = 0
    parked: int = 0
    runs: int = 0
    duplicates: int = 0
    lost: int = 0
    excepted: Counter[str] = field(default_factory=Counter)
    exact: int = 0
    """Units that nothing disturbed, checked to the last run."""


def audit(played: PlayedScenario) -> Account:
    """The account; what is wrong is in `faults_found`."""
    return _Auditor(played).account()


class _Auditor:
    def __init__(self, played: PlayedScenario) -> None:
        self._played = played
        self._scenario = played.scenario
        self._ledger = played.ledger
        self._sent = {sent.number: sent for sent in played.scenario.messages}
        self._plans = played.scenario.plans
        self._terms = {
            name: Terms(
                plan=plan,
                options=played.scenario.consumer_options[name],
                counts_requeues=played.scenario.counts_requeues(name),
            )
            for name, plan in self._plans.items()
        }
        self._parked: defaultdict[Unit, list[wire.Properties]] = defaultdict(list)
        self._forgotten: Counter[Unit] = Counter()
        self._account = Account(faults_found=list(played.complaints))

    def account(self) -> Account:
        self._look_into_queues()
        account = self._account
        for unit in sorted({*self._ledger.entered, *self._played.runs, *self._parked}):
            account.units += 1
            self._audit_unit(unit)
        self._audit_publishers()
        return account

    # Where everything is

    def _look_into_queues(self) -> None:
        parkings = {plan.routes.parking.queue for plan in self._plans.values() if plan.routes is not None}
        for queue, state, entry in self._ledger.contents():
            number = number_of(entry.message.body)
            if number is None:
                self._wrong(f"a message nobody published is {state} in {queue.name}")
                continue
            if queue.name not in parkings or state != "ready":
                if not (state == "held" and self._expired(number)):
                    self._wrong(f"message {number} is {state} in {queue.name} at the end")
                continue
            if entry.message.body != self._body(number):
                self._wrong(f"message {number} has another body in {queue.name}")
            home = self._home(queue.name, properties_of(entry))
            if home is None:
                self._wrong(f"message {number} in {queue.name} does not say where it comes from")
            else:
                self._parked[number, home].append(properties_of(entry))

    def _home(self, parking: str, properties: wire.Properties) -> str | None:
        """Which consumed queue a parked copy comes from: there may be one that parks here, or more."""
        homes = [
            name
            for name, plan in self._plans.items()
            if plan.routes is not None and plan.routes.parking.queue == parking
        ]
        if len(homes) == 1:
            return homes[0]
        deaths = properties.header(headers.DEATHS)
        if properties.header(headers.REASON) is None and isinstance(deaths, list):
            dead_in = [one["queue"] for one in deaths if isinstance(one, dict) and one.get("queue") in homes]
            return dead_in[0] if dead_in else None
        home = properties.header(headers.ORIGINAL_QUEUE)
        return home if home in homes else None

    def _body(self, number: int) -> bytes:
        sent = self._sent.get(number)
        return body_of(number) if sent is None else sent.body

    # One message in one queue

    def _audit_unit(self, unit: Unit) -> None:
        account, terms = self._account, self._terms[unit[1]]
        runs, parked = self._played.runs.get(unit, []), self._parked[unit]
        entered = self._ledger.entered[unit]
        disturbances = self._ledger.lost_unsettled[unit] + self._played.unconfirmed[unit]
        handled = sum(1 for run in runs if self._is_handled(run, terms))
        ends = handled + len(parked)
        account.handled += handled
        account.parked += len(parked)
        account.runs += len(runs)
        if not entered:
            self._wrong(f"{_name(unit)} ran {len(runs)} times, and {len(parked)} copies are parked, but it never came")
            return
        if ends < entered and not disturbances:
            self._audit_missing(unit, entered - ends)
        elif ends == 0:
            self._audit_missing(unit, 1)
        if ends > entered:
            account.duplicates += ends - entered
            causes = disturbances - self._played.not_kept[unit]
            if ends > entered + causes:
                self._wrong(f"{_name(unit)} came {entered} times and ended {ends} times, with {causes} disturbances")
        for run in runs:
            if run.attempt > self._attempts_max(unit, terms):
                self._wrong(f"{_name(unit)} had attempt {run.attempt} of {terms.runs_max}")
            if run.attempt > 1 + self._counted_max(unit, runs[: run.index], terms):
                self._wrong(f"{_name(unit)} had attempt {run.attempt} after {run.index} runs")
        stops = sum(run.requeued_by_stop for run in runs)
        counted_max = (entered + disturbances) * terms.runs_max + disturbances + stops
        uncounted = sum(1 for run in runs if self._may_be_uncounted(run, terms))
        if len(runs) - uncounted > counted_max:
            self._wrong(f"{_name(unit)} ran {len(runs)} times with {disturbances} disturbances")
        for properties in parked:
            self._audit_parked(unit, properties, terms)
        if not disturbances and not stops and entered == 1 and ends == 1:
            account.exact += 1
            self._audit_exactly(unit, runs, parked, terms)

    def _audit_missing(self, unit: Unit, count: int) -> None:
        number, queue = unit
        sent = self._sent.get(number)
        life = self._ledger.hops(number)
        if (
            sent is not None
            and sent.is_transient
            and any(hop[1] == journal.GONE and "restarted" in hop[3] for hop in life)
        ):
            self._account.excepted["transient, and the broker restarted"] += count
            return
        plan = self._plans[queue]
        looping = plan.routes is not None and plan.routes.retry_by is MoveBy.REJECT
        if sent is not None and sent.may_expire and looping and self._expired(number, queue):
            self._account.excepted["expired into a retry loop"] += count
            return
        self._account.lost += count
        self._wrong(f"{_name(unit)} is lost: {count} of {self._ledger.entered[unit]}")

    def _is_handled(self, run: Run, terms: Terms) -> bool:
        if run.end is None or run.end == "cut":
            return False
        return expect(run, terms, published_ms=None) == (Done(),)

    def _may_be_uncounted(self, run: Run, terms: Terms) -> bool:
        if run.end is None or (run.end == "cut" and terms.options.timeout_s is None):
            return True
        verdicts = expect(run, terms, published_ms=None)
        return any(isinstance(one, Again) and not one.counted for one in verdicts)

    def _expired(self, number: int, queue: str | None = None) -> bool:
        life = self._ledger.hops(number)
        return any(
            (hop[1] == journal.DIED and hop[2] == "expired" and hop[3] in (self._plans if queue is None else (queue,)))
            or (hop[1] == journal.DROPPED and "expired" in hop[2])
            for hop in life
        )

    # A parked copy

    def _audit_parked(self, unit: Unit, properties: wire.Properties, terms: Terms) -> None:
        number, queue = unit
        sent = self._sent.get(number)
        reason = properties.header(headers.REASON)
        if sent is not None:
            for name, value in sent.user_headers.items():
                if properties.header(name) != value:
                    self._wrong(f"{_name(unit)} lost its header {name} on the way to parking")
            if sent.properties.message_id != properties.message_id:
                self._wrong(f"{_name(unit)} has message_id {properties.message_id!r} in parking")
        if reason is None:
            self._audit_parked_by_broker(unit, properties, terms)
            return
        retries = properties.header(headers.RETRY_COUNT)
        if retries != properties.header(headers.FINAL_RETRY_COUNT):
            self._wrong(f"{_name(unit)} has two retry counts in parking")
        if not isinstance(retries, int) or retries > self._attempts_max(unit, terms) - (reason != ParkReason.CRASHES):
            self._wrong(f"{_name(unit)} was retried {retries} times, with {terms.runs_max} runs at most")
        if properties.header(headers.ORIGINAL_QUEUE) != queue:
            self._wrong(f"{_name(unit)} has x-original-queue {properties.header(headers.ORIGINAL_QUEUE)!r}")
        route = self._played.children.get(number) if sent is None else (sent.exchange, sent.routing_key)
        told = (properties.header(headers.ORIGINAL_EXCHANGE), properties.header(headers.ORIGINAL_ROUTING_KEY))
        if told != route and not self._may_have_forgotten(unit, told):
            self._wrong(f"{_name(unit)} was published to {route} and says {told} in parking")
        if properties.message_id is None and not properties.header(headers.MESSAGE_ID):
            self._wrong(f"{_name(unit)} has no identity in parking")
        if isinstance(retries, int) and retries > self._counted_max(unit, self._played.runs.get(unit, []), terms):
            self._wrong(f"{_name(unit)} is parked with {retries} retries, and may have had fewer only")
        if reason == ParkReason.CRASHES:
            self._audit_crashes(unit, terms)
        if properties.header("CC") is not None or properties.expiration is not None:
            self._wrong(f"{_name(unit)} kept what a copy must not keep")

    def _may_have_forgotten(self, unit: Unit, told: tuple[Any, Any]) -> bool:
        """Whether the origin of a parked copy can't be known, and its headers claim no more than that. Each such death
        in its own queue excuses one copy.

        The message brought another's digest and x-death and expired in its own queue, on 3.10. That broker goes on in
        the x-death that a message brings, so its own death is an entry among another message's, and it looks like a
        message that was sent straight to the queue with copied headers. Such routes are not trusted: the copy may
        name its last route, the queue's name, and nothing else. 4.x begins an x-death of its own, without the other
        message's reject, and does not bring back what has only expired.
        """
        number, queue = unit
        sent = self._sent.get(number)
        if sent is None or self._scenario.profile != "3.10" or told != ("", queue):
            return False
        properties = sent.properties
        digest = properties.header(headers.DIGEST)
        own = wire.digest_of(properties, queue, message_id=properties.message_id, body=sent.body)
        if not isinstance(digest, str) or digest == own or properties.header(headers.DEATHS) is None:
            return False
        self._forgotten[unit] += 1
        expired = sum(hop[1:4] == (journal.DIED, "expired", queue) for hop in self._ledger.hops(number))
        if self._forgotten[unit] > expired:
            return False
        self._account.excepted["expired with another's deaths"] += 1
        return True

    def _audit_parked_by_broker(self, unit: Unit, properties: wire.Properties, terms: Terms) -> None:
        routes = terms.plan.routes
        assert routes is not None
        deaths = properties.header(headers.DEATHS)
        reasons = {one.get("reason") for one in deaths or () if isinstance(one, dict) and one.get("queue") == unit[1]}
        by_reject = routes.park_by is MoveBy.REJECT and "rejected" in reasons
        over_limit = "delivery_limit" in reasons and self._ledger.lost_unsettled[unit] > 0
        if not (by_reject or over_limit or self._expired(unit[0], unit[1])):
            self._wrong(f"{_name(unit)} was dead-lettered by the broker: {sorted(map(str, reasons))}")

    def _audit_crashes(self, unit: Unit, terms: Terms) -> None:
        deaths = self._deaths_max(unit)
        if terms.plan.counted_by is CountedBy.DELIVERIES:
            # Runs and deaths are one count there, and one death may be what spends it; without any it is a lie.
            if not deaths:
                self._wrong(f"{_name(unit)} is parked for crashes, and had none")
            return
        if terms.options.crashes_max is None or deaths < terms.options.crashes_max:
            self._wrong(f"{_name(unit)} is parked for crashes, and may have had {deaths} only")
        runs = self._played.runs.get(unit, [])
        struck = bool(
            self._scenario.disruptions
            or self._scenario.rates
            or self._scenario.refusals
            or any(one.dies_at_step for one in self._scenario.process_plans)
        )
        if not struck and not any(run.step.kind == "crash" for run in runs):
            self._account.excepted["parked for the crashes of neighbours"] += 1

    # To the last run

    def _audit_exactly(self, unit: Unit, runs: list[Run], parked: list[wire.Properties], terms: Terms) -> None:
        number, queue = unit
        sent = self._sent.get(number)
        if parked and self._expired(number, queue) and parked[0].header(headers.REASON) is None:
            return  # the broker's own doing, at whatever moment
        attempt = 1
        if not runs:
            why = parked[0].header(headers.REASON) if parked else None
            by_reject = terms.plan.routes is not None and terms.plan.routes.park_by is MoveBy.REJECT
            if sent is None or sent.is_decodable or (why != ParkReason.UNDECODABLE and not (by_reject and why is None)):
                self._wrong(f"{_name(unit)} never ran and is parked as {why}")
            return
        if sent is not None and not sent.is_decodable:
            self._wrong(f"{_name(unit)} can't be decoded, and ran")
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            if run.attempt != attempt:
                self._wrong(f"{_name(unit)}: run {run.index} is attempt {run.attempt}, expected {attempt}")
                return
            # What brings another's deaths goes by a copy where others are rejected, as what has expired does.
            brings_deaths = sent is not None and (sent.is_forged or wire.odd_deaths(sent.properties) is not None)
            has_expired = self._expired(number, queue) or brings_deaths
            verdicts = expect(run, terms, published_ms=self._published_ms(unit), has_expired=has_expired)
            if following is None:
                self._audit_end(unit, run, verdicts, parked)
                return
            wait_ms = following.begin_ms - run.end_ms
            was_stopped = self._was_stopped_in_pause(run, following, terms)
            fitting = [
                one
                for one in verdicts
                if isinstance(one, Again)
                and attempt + one.counted == following.attempt
                and (was_stopped or wait_ms >= one.wait_ms - _EARLY_MS)
            ]
            if not fitting:
                followed = f"was followed by attempt {following.attempt} after {wait_ms} ms"
                self._wrong(f"{_name(unit)}: {_end(run)} {followed}, expected {verdicts}")
                return
            attempt = following.attempt

    def _was_stopped_in_pause(self, run: Run, following: Run, terms: Terms) -> bool:
        """Where a retry is a requeue, the consumer pauses first for a longer delay. A consumer that is stopped does not
        wait for its end, and a requeue can't say how much is missing."""
        if not retries_by_requeue(run, terms):
            return False
        grace_ms = round(self._scenario.process_plans[run.process].grace_s * 1000)
        return any(
            process == run.process and run.begin_ms - grace_ms <= at_ms <= following.begin_ms
            for process, at_ms in self._played.stops
        )

    def _audit_end(self, unit: Unit, run: Run, verdicts: tuple[Verdict, ...], parked: list[wire.Properties]) -> None:
        if not parked:
            if Done() not in verdicts:
                self._wrong(f"{_name(unit)}: {_end(run)} was the end, expected {verdicts}")
            return
        properties = parked[0]
        reason = properties.header(headers.REASON)
        ways = [one for one in verdicts if isinstance(one, Parks)]
        routes = self._plans[unit[1]].routes
        if ways and reason is None and routes is not None and routes.park_by is MoveBy.REJECT:
            return
        fitting = [one for one in ways if one.reason == reason]
        if not fitting:
            self._wrong(f"{_name(unit)}: {_end(run)} was parked as {reason}, expected {verdicts}")
            return
        told = properties.header(headers.RETRY_COUNT)
        if told != run.attempt - 1:
            self._wrong(f"{_name(unit)}: attempt {run.attempt} was parked with {told} retries")
        error = properties.header(headers.FINAL_ERROR)
        if fitting[0].error is not None and not str(error).startswith(fitting[0].error):
            self._wrong(f"{_name(unit)}: {_end(run)} was parked with error {error!r}")
        if properties.header(headers.FINAL_STATUS_CODE) != fitting[0].status:
            self._wrong(
                f"{_name(unit)}: {_end(run)} was parked with status {properties.header(headers.FINAL_STATUS_CODE)}"
            )

    def _deaths_max(self, unit: Unit) -> int:
        """How often the broker may have seen its consumer die. A requeue goes by a copy; if the copy is not confirmed,
        it is a nack, and that looks like a death."""
        return self._ledger.lost_unsettled[unit] + self._played.unconfirmed[unit]

    def _counted_max(self, unit: Unit, runs: list[Run], terms: Terms) -> int:
        """The most retries that may have been counted after these runs: those that led to one and, where deliveries are
        the attempts, deaths. Nothing else counts, however often it was delivered and whatever its publisher's headers
        say."""
        counted = sum(
            1
            for run in runs
            if run.end is not None
            and any(isinstance(one, Again) and one.counted for one in expect(run, terms, published_ms=None))
        )
        deaths = self._deaths_max(unit) if terms.plan.counted_by is CountedBy.DELIVERIES else 0
        return counted + deaths

    def _attempts_max(self, unit: Unit, terms: Terms) -> int:
        """The highest number an attempt may have. Where the broker counts deliveries it counts deaths as well, also of
        consumers that only held the message until its time."""
        deaths = self._ledger.lost_unsettled[unit] if terms.plan.counted_by is CountedBy.DELIVERIES else 0
        return terms.runs_max + deaths

    def _published_ms(self, unit: Unit) -> int | None:
        sent = self._sent.get(unit[0])
        if sent is None:
            return None
        moment: Any = sent.properties.timestamp
        return None if moment is None else round(moment.timestamp() * 1000)

    # Publishers

    def _audit_publishers(self) -> None:
        came = {number for number, _ in self._ledger.entered}
        for sent in self._scenario.messages:
            if sent.number not in came and sent.number not in self._played.refused and not self._vanished(sent):
                self._wrong(f"message {sent.number} was published and came nowhere")

    def _vanished(self, sent: Sent) -> bool:
        return not any(hop[4] for hop in self._ledger.hops(sent.number) if hop[1] == journal.PUBLISHED)

    def _wrong(self, text: str) -> None:
        self._account.faults_found.append(text)


def _name(unit: Unit) -> str:
    return f"message {unit[0]} in {unit[1]}"


def _end(run: Run) -> str:
    return f"{run.end} at attempt {run.attempt}"
