"""An app that behaves like a process of its own: it has its own connections, and it can be killed.

A kill is what the broker sees of one: both connections end in the middle of whatever was sent, and nothing follows.
What the dead process still computes has no effect; then it is removed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Protocol

from redrive.client import Client, ClientError, Confirmed, Outcome, Publisher, ReconnectBackoff
from redrive.core import Observer, Park, Requeue, RetryAfter, headers
from redrive.embedded import EmbeddedBroker
from redrive.runtime import App, AppRunner, AppRunOptions, Message, PublishFailed
from redrive.wire import Properties
from tests.simulation.errors import Absent, Answer, Broken, Refused
from tests.simulation.runs import Run
from tests.simulation.scenarios import ProcessPlan, Scenario
from tests.simulation.scripts import Step
from tests.simulation.workloads import Unit, number_of

STOP_S_MAX = 60.0
"""Above its grace, the longest an app may take to stop, whatever the broker does."""
_AGAIN_S = 1.0


class ProcessEnvironment(Protocol):
    """What a process needs of the world."""

    scenario: Scenario
    broker: EmbeddedBroker

    @property
    def observer(self) -> Observer:
        """Gets every event."""

    def now_ms(self) -> int:
        """Virtual milliseconds since 1970."""

    def new_id(self) -> str:
        """An id."""

    def begin_run(self, process: int, message: Message, queue: str, number: int) -> Run:
        """A handler begins."""

    def note(self, event: str, /, **fields: object) -> None:
        """Adds a line to the trace."""

    def complain(self, text: str) -> None:
        """Reports something that is wrong whatever the auditor finds."""

    def unconfirmed(self, unit: Unit) -> None:
        """A copy was published and not confirmed."""

    def child_of(self, run: Run) -> tuple[int, str, str, bytes]:
        """What a handler publishes: a number, an exchange, a key, a body."""


class Process:
    """One process under a supervisor, which starts it again after it died."""

    def __init__(self, environment: ProcessEnvironment, number: int, plan: ProcessPlan) -> None:
        self.number = number
        self._environment = environment
        self._plan = plan
        self._random = Random(f"{environment.scenario.seed}: process {number}")
        self._steps_left = plan.dies_at_step
        self._current: _ProcessRun | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.kills = 0

    @property
    def is_up(self) -> bool:
        """Whether it consumes, and is neither starting nor stopping."""
        return self._current is not None and self._current.is_running and not self._tasks

    def start(self) -> None:
        """Starts it."""
        self._current = _ProcessRun(self._environment, self, self._plan, self._random)
        self._spawn(self._current.start())

    def kill(self, why: str) -> None:
        """Kills it at once; it is started again after a while."""
        run = self._current
        if run is None or run.is_dead:
            return
        self.kills += 1
        self._environment.note("process.killed", process=self.number, why=why)
        run.cut()
        self._current = None
        self._spawn(self._restart_after(run, self._random.choice((0.05, 1.0, 20.0))))

    def stop(self, for_s: float) -> None:
        """Stops it, and starts it again after a while."""
        run = self._current
        if run is None or not run.is_running:
            return
        self._current = None
        self._spawn(self._rest(run, for_s))

    async def end(self) -> None:
        """Stops it for good."""
        run, self._current = self._current, None
        while self._tasks:
            await asyncio.wait(self._tasks)
        if run is not None:
            await run.stop()

    def step(self, place: str) -> None:
        """The runtime is between two steps; kills it if this was to be its last."""
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._steps_left = None
                self.kill(place)

    async def _restart_after(self, run: "_ProcessRun", after_s: float) -> None:
        await run.clean_away()
        await asyncio.sleep(after_s)
        self.start()

    async def _rest(self, run: "_ProcessRun", for_s: float) -> None:
        await run.stop()
        await asyncio.sleep(for_s)
        self.start()

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._environment.complain(f"process {self.number} failed: {task.exception()!r}")


class _ProcessRun:
    """A process from its start to its end."""

    def __init__(self, environment: ProcessEnvironment, process: Process, plan: ProcessPlan, random: Random) -> None:
        self._environment = environment
        self._process = process
        self._plan = plan
        self._random = random
        self._pipes: list[asyncio.BaseTransport] = []
        self._runner: AppRunner | None = None
        self._starting: asyncio.Task[Any] | None = None
        self.is_dead = False
        self.is_running = False

    async def start(self) -> None:
        """Tries until it consumes, as a supervisor would."""
        self._starting = asyncio.current_task()
        options = AppRunOptions(
            grace_s=self._plan.grace_s,
            checkpoint=self._process.step if self._plan.dies_at_step is not None else None,
            now_ms=self._environment.now_ms,
            draw=self._random.random,
            new_id=self._environment.new_id,
        )
        while not self.is_dead:
            consumptions = self._app().consumptions(self._environment.scenario.compiled)
            runner = AppRunner(consumptions, self._connect, observer=self._environment.observer, options=options)
            try:
                await runner.start()
            except ClientError as error:
                self._environment.note("process.failed", process=self._process.number, why=str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            self._runner = runner
            self.is_running = True
            self._environment.note("process.started", process=self._process.number)
            return

    async def stop(self) -> None:
        """An orderly stop."""
        if self._runner is None:
            return
        self.is_running = False
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self._runner.stop()
        took_s = loop.time() - began_s
        self._environment.note("process.stopped", process=self._process.number)
        if took_s > self._plan.grace_s + STOP_S_MAX:
            self._environment.complain(f"a stop with {self._plan.grace_s:g} s of grace took {took_s:g} s")
        self.is_dead = True

    def cut(self) -> None:
        """From now on nothing that it sends arrives."""
        self.is_dead = True
        self.is_running = False
        for pipe in self._pipes:
            pipe.abort()  # type: ignore[attr-defined]

    async def clean_away(self) -> None:
        """Ends what is left of a dead process in this one."""
        if self._runner is not None:
            await self._runner.stop(grace_s=0)
        elif self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])

    # Its connections

    def _connect(self, purpose: str) -> Client:
        scenario = self._environment.scenario
        url = f"{self._environment.broker.url}?heartbeat={scenario.heartbeat_s}"
        return _WatchedClient(
            url,
            name=f"process {self._process.number} {purpose}",
            observer=self._environment.observer,
            backoff=lambda: ReconnectBackoff(random=self._random.random),
            dial=self._dial,
            environment=self._environment,
            run=self,
        )

    async def _dial(self, client: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        if self.is_dead:
            raise ConnectionRefusedError("the dead do not call")
        made: list[asyncio.Protocol] = []

        def make() -> asyncio.Protocol:
            made.append(client())
            return made[0]

        await self._environment.broker.dial(make, host, port)
        transport = getattr(made[0], "_transport", None)
        if transport is not None:
            self._pipes.append(transport)

    # Its handlers

    def _app(self) -> App:
        scenario = self._environment.scenario
        app = App(scenario.compiled, name=f"process {self._process.number}")
        for consumer in self._plan.consumers:
            register = app.consumer(
                consumer.queue,
                prefetch=consumer.prefetch,
                concurrency=consumer.concurrency,
                **scenario.consumer_options[consumer.queue].options(),
            )
            register(self._handler(consumer.queue))
        return app

    def _handler(self, queue: str) -> Callable[[Any, Message], Awaitable[Any]]:
        async def handle(body: Any, message: Message) -> Any:
            if self.is_dead:
                await asyncio.Event().wait()
            number = number_of(message.body)
            if number is None:
                self._environment.complain(f"a handler of {queue} got a body that nobody published: {message.body!r}")
                return None
            run = self._environment.begin_run(self._process.number, message, queue, number)
            try:
                return await self._act(run, message)
            except asyncio.CancelledError:
                if run.end is None and not self.is_dead:
                    run.finish("cut", self._environment.now_ms())
                    run.requeued_by_stop = not self.is_running
                raise

        return handle

    async def _act(self, run: Run, message: Message) -> Any:
        step = run.step
        if step.takes_s:
            await asyncio.sleep(step.takes_s)
        if self.is_dead:
            await asyncio.Event().wait()
        if step.kind == "publish":
            number, exchange, routing_key, body = self._environment.child_of(run)
            try:
                await message.publish(exchange, routing_key, body, message_id=f"m{number}", headers=_passed_on(message))
            except PublishFailed:
                run.finish("unpublished", self._environment.now_ms())
                raise
            if self.is_dead:
                await asyncio.Event().wait()
        if step.kind == "crash":
            self._process.kill(f"message {run.number} killed it")
            await asyncio.Event().wait()
        run.finish(step.kind, self._environment.now_ms())
        return _end_as(step)


def _end_as(step: Step) -> Any:
    match step.kind:
        case "ok" | "publish":
            return {"a": "result that means nothing"}
        case "broken":
            raise Broken("x" * 5000)
        case "refused":
            raise Refused
        case "absent":
            raise Absent("not there")
        case "park":
            raise Park("enough")
        case "again":
            raise RetryAfter(step.value_s or 0)
        case "requeue":
            raise Requeue(step.value_s)
        case "answer":
            raise Answer(step.status, None if step.value_s is None else int(step.value_s))
        case "cancel":
            raise asyncio.CancelledError
        case "exit":
            raise SystemExit(3)
    raise AssertionError(step)


class _WatchedClient(Client):
    """A client whose publishers report which copies were not confirmed."""

    def __init__(self, url: str, *, environment: ProcessEnvironment, run: _ProcessRun, **options: Any) -> None:
        super().__init__(url, **options)
        self._environment = environment
        self._current = run

    async def publisher(self, *, window: int = 1000) -> Publisher:
        """A publisher that reports every copy before it is sent, as in doubt until it is confirmed."""
        made = await super().publisher(window=window)
        publish, publish_now = made.publish, made.publish_now

        def doubt(body: bytes, properties: Properties) -> None:
            number, home = number_of(body), properties.header(headers.ORIGINAL_QUEUE)
            if number is not None and isinstance(home, str):
                self._environment.unconfirmed((number, home))

        async def watched(
            exchange: str, routing_key: str, body: bytes, properties: Properties, **options: Any
        ) -> Outcome:
            try:
                outcome = await publish(exchange, routing_key, body, properties, **options)
            except BaseException:
                doubt(body, properties)
                raise
            if not isinstance(outcome, Confirmed):
                doubt(body, properties)
            return outcome

        def watched_now(
            exchange: str, routing_key: str, body: bytes, properties: Properties, sink: Any, **options: Any
        ) -> bool:
            told = _WatchedSink(sink, lambda: doubt(body, properties))
            return publish_now(exchange, routing_key, body, properties, told, **options)

        setattr(made, "publish", watched)  # noqa: B010 - a method of this one object
        setattr(made, "publish_now", watched_now)  # noqa: B010
        return made


class _WatchedSink:
    """Passes an outcome on, and reports it unless it is a confirm."""

    def __init__(self, sink: Any, doubt: Callable[[], None]) -> None:
        self._doubt = doubt
        self._set_result = sink.set_result
        self.done = sink.done

    def set_result(self, outcome: Outcome, /) -> None:
        if not isinstance(outcome, Confirmed):
            self._doubt()
        self._set_result(outcome)


def _passed_on(message: Message) -> dict[str, Any]:
    """The message's headers, as careless authors pass them on, without those that would route or delay the published
    message."""
    return {name: value for name, value in message.headers.items() if name not in _ROUTE_OR_DELAY}


_ROUTE_OR_DELAY = ("CC", "BCC", "processAfterDelayMs")
