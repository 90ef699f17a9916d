"""A scenario, played: broker, processes and publishers in one event loop, in virtual time, until all is quiet."""

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from redrive.client import Client, ClientError, Confirmed, ReconnectBackoff, Returned
from redrive.core import Observer
from redrive.embedded import EmbeddedBroker, Faults
from redrive.embedded.engine import journal
from redrive.runtime import Message
from redrive.testing import Stuck, VirtualLoop
from tests.simulation.ledger import Ledger, recording
from tests.simulation.processes import Process
from tests.simulation.refusals import Refusals
from tests.simulation.runs import Run
from tests.simulation.scenarios import Disruption, Scenario
from tests.simulation.scripts import Step, draw_script
from tests.simulation.workloads import BEGIN_S, OUTSIDE, Sent, Unit, body_of, number_of

QUIET_S_MAX = 40 * 86_400.0
"""When a scenario must be through: its longest delays are hours, and nothing goes wrong for ever."""
_UNDER_WAY_S = 120.0
"""Longer than any frame is held up: what is under way is in no queue."""
_END_S_MAX = 600.0
_TURNS_MAX = 30_000
CHILDREN_FROM = 1000
"""Numbers of messages that handlers publish."""
_UNTRACED = frozenset({"handler_s", "reason", "why", "error", "address"})
"""Fields that may differ between two runs of a seed, or say too much."""


@dataclass(slots=True, kw_only=True)
class PlayedScenario:
    """Everything that is known after a scenario."""

    scenario: Scenario
    ledger: Ledger
    runs: dict[Unit, list[Run]]
    unconfirmed: Counter[Unit]
    not_kept: Counter[Unit]
    """Those of the unconfirmed that the broker certainly did not keep."""
    refused: set[int]
    children: dict[int, tuple[str, str]]
    complaints: list[str]
    trace: list[str]
    faults: Counter[str]
    kills: int
    took_s: float
    stops: list[tuple[int, int]]
    """When a process was told to stop, in order: its number, the millisecond."""
    events: Counter[str] = field(default_factory=Counter)

    @property
    def hash(self) -> str:
        """The same for the same seed."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]


def play(scenario: Scenario) -> PlayedScenario:
    """Plays it to the end."""
    world = World(scenario)
    try:
        with asyncio.Runner(loop_factory=_WatchedLoop) as runner:
            runner.run(world.run())
    except (Stuck, _Endless) as wrong:
        world.complain(str(wrong))
    return world.played()


class _Endless(Exception):
    """The event loop turns without end, and time does not pass."""


class _WatchedLoop(VirtualLoop):
    """An event loop in virtual time that notices when time does not pass, because something loops without a pause."""

    _moment_s = -1.0
    _turns = 0

    def _run_once(self) -> None:
        if self._moment_s != self.time():
            self._moment_s, self._turns = self.time(), 0
        self._turns += 1
        if self._turns > _TURNS_MAX:
            self._turns = 0
            raise _Endless(
                f"{_TURNS_MAX} turns of the event loop at one moment, {self._moment_s:g} s from the beginning"
            )
        super()._run_once()  # type: ignore[misc]


class World:
    """The state of one scenario; also the observer of all clients and runtimes in it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.broker = EmbeddedBroker(
            scenario.profile,
            listen=False,
            time="real",
            begin_s=BEGIN_S,
            users={"guest": "guest", OUTSIDE: OUTSIDE},
            seed=scenario.seed,
        )
        self._ledger = Ledger(
            self.broker.engine,
            sources={exchange for exchange, _ in scenario.routes},
            queues=scenario.consumer_options,
        )
        self._refusals = Refusals(scenario.seed, scenario.refusals)
        self._random = Random(f"world {scenario.seed}")
        self._runs: dict[Unit, list[Run]] = {}
        self._scripts: dict[Unit, tuple[Step, ...]] = {}
        self._unconfirmed: Counter[Unit] = Counter()
        self._refused: set[int] = set()
        self._children: dict[int, tuple[str, str]] = {}
        self._child_numbers: dict[tuple[int, str, int], int] = {}
        self._complaints: list[str] = []
        self._trace: list[str] = []
        self._events: Counter[str] = Counter()
        self._stops: list[tuple[int, int]] = []
        self._ids = 0
        self._processes: list[Process] = []
        self._parkings = frozenset(
            plan.routes.parking.queue for plan in scenario.plans.values() if plan.routes is not None
        )

    def played(self) -> PlayedScenario:
        """What is known now."""
        fired = self.broker.faults.fired
        kinds = Counter(text.partition(": ")[2].partition(" for ")[0] for text in fired)
        kinds += Counter({f"disruption: {disruption.kind}": 1 for disruption in self.scenario.disruptions})
        kinds += Counter({f"not kept: {way}": count for way, count in self._refusals.done.items()})
        return PlayedScenario(
            scenario=self.scenario,
            ledger=self._ledger,
            runs=self._runs,
            unconfirmed=self._unconfirmed,
            not_kept=self._refusals.reported,
            refused=self._refused,
            children=self._children,
            complaints=self._complaints,
            trace=[*self._trace, *fired],
            faults=kinds,
            kills=sum(process.kills for process in self._processes),
            took_s=self.now_ms() / 1000 - BEGIN_S,
            stops=self._stops,
            events=self._events,
        )

    async def run(self) -> None:
        """From the first declaration to the last stop."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self.complain(f"the event loop: {_context_text(context)}"))
        with recording(self._ledger, self._refusals):
            self._declare()
            if self.scenario.rates is not None:
                self.broker.faults = Faults.from_seed(self.scenario.seed, self.scenario.rates)
            await self.broker.start()
            self._processes = [Process(self, number, plan) for number, plan in enumerate(self.scenario.process_plans)]
            for process in self._processes:
                process.start()
            disruptions = asyncio.create_task(self._disrupt())
            await self._publish_all()
            await disruptions
            if not await self._wait_quiet():
                left = Counter(f"{state} in {queue.name}" for queue, state, _ in self._unfinished())
                self.complain(f"not quiet after {QUIET_S_MAX / 86_400:g} days: {dict(left)}")
            self.broker.faults.clear()
            try:
                async with asyncio.timeout(_END_S_MAX):
                    await asyncio.gather(*(process.end() for process in self._processes))
            except TimeoutError:
                self.complain(f"a process did not end within {_END_S_MAX:g} s")
            await asyncio.sleep(1)
            await self.broker.stop()

    def _declare(self) -> None:
        """Straight into the engine: hundreds of methods on the wire that are tested elsewhere."""
        topology = self.scenario.compiled.topology
        connection = self.broker.engine.connect("/", "guest")
        channel = connection.open_channel(1)
        for exchange in topology.exchanges:
            channel.declare_exchange(exchange.name, exchange.type, durable=exchange.durable)
        for queue in topology.queues:
            channel.declare_queue(queue.name, durable=queue.durable, arguments=dict(queue.arguments))
        for binding in topology.bindings:
            channel.bind_queue(binding.destination, binding.source, binding.routing_key, dict(binding.arguments))
        self.broker.engine.disconnect(connection)
        self.broker.engine.take_effects()

    # What processes need

    @property
    def observer(self) -> Observer:
        """Everybody's."""
        return self

    def now_ms(self) -> int:
        """Virtual milliseconds since 1970."""
        return round(self.broker.now_s * 1000)

    def new_id(self) -> str:
        """An id that was not there yet."""
        self._ids += 1
        return f"made-{self._ids}"

    def begin_run(self, process: int, message: Message, queue: str, number: int) -> Run:
        """A handler begins."""
        unit = (number, queue)
        script = self._scripts.get(unit)
        if script is None:
            script = draw_script(self.scenario.seed, number, queue, self.scenario.limits(queue))
            self._scripts[unit] = script
        runs = self._runs.setdefault(unit, [])
        step = script[min(len(runs), len(script) - 1)]
        if step.kind == "publish" and number >= CHILDREN_FROM:
            step = Step(kind="broken")  # children have no children
        run = Run(
            number=number,
            queue=queue,
            process=process,
            index=len(runs),
            attempt=message.attempt,
            step=step,
            begin_ms=self.now_ms(),
        )
        runs.append(run)
        self.note("run", number=number, queue=queue, process=process, attempt=run.attempt, kind=step.kind)
        return run

    def child_of(self, run: Run) -> tuple[int, str, str, bytes]:
        """What a handler publishes in this step; again the same when the step comes again."""
        key = (run.number, run.queue, run.index)
        number = self._child_numbers.setdefault(key, CHILDREN_FROM + len(self._child_numbers))
        exchange, routing_key = self._random.choice(self.scenario.routes)
        self._children[number] = (exchange, routing_key)
        return number, exchange, routing_key, body_of(number)

    def unconfirmed(self, unit: Unit) -> None:
        """A copy was published and not confirmed."""
        self._unconfirmed[unit] += 1

    def complain(self, text: str) -> None:
        """Something is wrong, whatever the auditor finds."""
        self._complaints.append(text)

    def note(self, event: str, /, **fields: object) -> None:
        """The observer of clients and runtimes, and the trace."""
        self._events[event] += 1
        if event == "runtime.failed" and self._is_calm:
            self.complain(f"runtime.failed: {fields}")
        told = ", ".join(f"{name} {value!r}" for name, value in fields.items() if name not in _UNTRACED)
        self._trace.append(f"{self.now_ms() - BEGIN_S * 1000:>12} {event}: {told}")

    @property
    def _is_calm(self) -> bool:
        scenario = self.scenario
        return scenario.rates is None and scenario.refusals is None and not scenario.disruptions

    # Publishers

    async def _publish_all(self) -> None:
        client = self._client(OUTSIDE)
        while True:
            try:
                await client.start()
                break
            except ClientError:
                await asyncio.sleep(1)
        publisher = await client.publisher()
        begin_s = asyncio.get_running_loop().time()

        async def send(sent: Sent) -> None:
            await asyncio.sleep(max(0.0, begin_s + sent.at_s - asyncio.get_running_loop().time()))
            while True:
                outcome = await publisher.publish(
                    sent.exchange, sent.routing_key, sent.body, sent.properties, deadline_s=20
                )
                if isinstance(outcome, Returned):
                    self._refused.add(sent.number)
                    return
                if isinstance(outcome, Confirmed):
                    return
                await asyncio.sleep(1)  # in doubt, or refused: as any publisher that must not lose, it says it again

        async with asyncio.TaskGroup() as group:
            for sent in self.scenario.messages:
                group.create_task(send(sent))
        await client.close()

    def _client(self, user: str) -> Client:
        url = self.broker.url.replace("guest:guest", f"{user}:{user}")
        return Client(
            f"{url}?heartbeat=0",
            dial=self.broker.dial,
            name=user,
            backoff=lambda: ReconnectBackoff(random=self._random.random),
        )

    # What happens from outside

    async def _disrupt(self) -> None:
        begin_s = asyncio.get_running_loop().time()
        for disruption in self.scenario.disruptions:
            await asyncio.sleep(max(0.0, begin_s + disruption.at_s - asyncio.get_running_loop().time()))
            self.note("disruption", kind=disruption.kind, process=disruption.process)
            await self._apply_disruption(disruption)

    async def _apply_disruption(self, disruption: Disruption) -> None:
        process = self._processes[disruption.process % len(self._processes)]
        match disruption.kind:
            case "crash":
                process.kill("a disruption")
            case "stop":
                self._stops.append((process.number, self.now_ms()))
                process.stop(disruption.lasts_s)
            case "restart":
                await self.broker.restart()
            case "down":
                await self.broker.stop()
                await asyncio.sleep(disruption.lasts_s)
                await self.broker.start()
            case "block":
                self.broker.block()
                await asyncio.sleep(disruption.lasts_s)
                self.broker.unblock()

    # The end

    async def _wait_quiet(self) -> bool:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + QUIET_S_MAX
        pause_s = 1.0
        while loop.time() < end_s:
            await asyncio.sleep(pause_s)
            if self._is_quiet():
                await asyncio.sleep(_UNDER_WAY_S)
                if self._is_quiet():
                    return True
            pause_s = min(pause_s * 1.3, 900.0)
        return False

    def _is_quiet(self) -> bool:
        return not self._unfinished() and all(process.is_up for process in self._processes)

    def _unfinished(self) -> list[tuple[Any, str, Any]]:
        """Copies that are not where they may stay."""
        return [
            (queue, state, entry)
            for queue, state, entry in self._ledger.contents()
            if queue.name not in self._parkings and not (state == "held" and self._is_held_for_good(entry.message.body))
        ]

    def _is_held_for_good(self, body: bytes) -> bool:
        """An expired message in a retry loop: the broker sees a circle, and keeps it where it is."""
        number = number_of(body)
        if number is None:
            return False
        return any(hop[1] == journal.DIED and hop[2] == "expired" for hop in self._ledger.hops(number))


def _context_text(context: dict[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
