"""Runs apps: reads the file that an app names, finds its broker, connects the runtime.

asyncio:    async with running(app, url="amqp://…") as runner: …
a program:  run(app)                       until SIGTERM or SIGINT
a shell:    redrive run module:app         the same, in one process or several
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from redrive.client import BrokerTarget, Client
from redrive.core import NULL_OBSERVER, Observer, RedriveError
from redrive.deploy import ApplyFailed, apply, as_documented, inspect, usable_queues
from redrive.runtime import (
    RECORD_PATH,
    THREADS_NAME,
    App,
    AppRunner,
    AppRunOptions,
    Consumption,
    InvalidApp,
    RunRecord,
    RunRecords,
    WorkerProcesses,
    wait_parent_gone,
)
from redrive.topology import Compiled, Declaration, compile_declaration
from redrive.wiring.app_imports import location_of
from redrive.wiring.broker_connection import apply_arguments, explain_refusals, target_of
from redrive.wiring.files import load_file
from redrive.wiring.garbage_collector import rare_garbage_collection
from redrive.wiring.process import TelemetryOptions, cancel_other_tasks, exit_now, is_thread_alive
from redrive.wiring.settings import Setting, broker_url
from redrive.wiring.stop_signals import on_stop_signals

Connect = Callable[[str], Client]
WORKER_URL = "REDRIVE_WORKER_URL"
"""The variable by which worker processes get the URL: every user sees a command line, but not an environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedApp:
    """An app with its declaration read and its broker found; nothing is connected yet."""

    app: App
    compiled: Compiled
    consumptions: tuple[Consumption, ...]
    target: BrokerTarget
    url: Setting

    @property
    def file(self) -> str | None:
        """The file that declares the queues, if one does."""
        source = self.app.source
        return None if isinstance(source, Compiled | Declaration) else os.fspath(source)


def prepare_app(
    app: App, *, url: str | None = None, environment: Mapping[str, str] | None = None, from_shell: bool = False
) -> PreparedApp:
    """Checks everything that needs no broker. `from_shell`: `url` is the option `--url` of a command.

    Raises `InvalidApp`, `UnreadableFile`, `InvalidDeclaration`, `InvalidDefinitions`, `InvalidUrl`.
    """
    try:
        compiled, file_url = _compiled(app)
        consumptions = app.consumptions(compiled)
    except RedriveError:
        raise
    except Exception as error:  # the author's codecs, types and rules are used here for the first time
        named = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InvalidApp(f"the app can't be used: {named}{location_of(error)}") from error
    setting = broker_url(
        flag=url,
        environment=os.environ if environment is None else environment,
        file=file_url,
        file_name=None if isinstance(app.source, Compiled | Declaration) else os.fspath(app.source),
    )
    if url is not None and not from_shell:
        setting = replace(setting, source="the url it was given")
    vhosts = compiled.topology.vhosts
    target = target_of(setting, vhost=vhosts[0].name if vhosts else "/")
    return PreparedApp(app=app, compiled=compiled, consumptions=consumptions, target=target, url=setting)


@asynccontextmanager
async def running(
    app: App,
    *,
    url: str | None = None,
    observer: Observer = NULL_OBSERVER,
    options: AppRunOptions | None = None,
    declare: bool = False,
    connect: Connect | None = None,
) -> AsyncIterator[AppRunner]:
    """Runs an app while the block runs. `declare`: declares what is missing first.

    Raises as `prepare_app` does, and `ConnectionFailed`, `UnsupportedBroker`, `TopologyMissing`, `ApplyFailed`.
    """
    prepared = prepare_app(app, url=url)
    runner = await start_app(prepared, observer=observer, options=options, declare=declare, connect=connect)
    try:
        yield runner
    finally:
        await runner.stop()


async def start_app(
    prepared: PreparedApp,
    *,
    observer: Observer = NULL_OBSERVER,
    options: AppRunOptions | None = None,
    declare: bool = False,
    connect: Connect | None = None,
    beforehand: Callable[[Connect], Awaitable[None]] | None = None,
) -> AppRunner:
    """Connects and consumes; stop the runner when done. `beforehand` may check the broker first, and raise.

    Raises as `running` does, and what `beforehand` raises.
    """
    name = prepared.app.name or f"redrive run:{os.getpid()}"

    def dial(purpose: str) -> Client:
        return Client(prepared.target, name=f"{name} {purpose}", observer=observer)

    connect = dial if connect is None else connect
    declares = apply_arguments(prepared.file or "FILE", prepared.target, prepared.url)
    with explain_refusals(prepared.target, prepared.url, file=prepared.file):
        if declare:
            await declare_missing(prepared.compiled, connect, file=declares)
        if beforehand is not None:
            await beforehand(connect)
        runner = AppRunner(prepared.consumptions, connect, observer=observer, options=options, file=declares)
        await runner.start()
    return runner


async def declare_missing(compiled: Compiled, connect: Connect, *, file: str = "FILE") -> None:
    """Declares what is missing; `file` has it, for messages.

    Raises `InvalidApp` if something exists with other settings, and `ApplyFailed`. Queues that differ but can be
    consumed as they are stay unchanged, as without declaring: the runner warns of them.
    """
    usable = usable_queues(compiled)
    async with connect("declaring") as client:
        # Names are all that counts on the wire: the vhost is the connection's.
        inspection = await inspect(client, compiled.topology)
        preventing = [one for one in inspection.differences if one.is_forbidden or one.queue not in usable]
        if preventing:
            first = preventing[0]
            if first.is_forbidden:
                raise ApplyFailed(first.address, first.found, (), is_forbidden=True)
            advice = as_documented(compiled, first)
            raise InvalidApp(
                f"{first.address} is there with other settings; look at it with: redrive apply {file}"
                + (f"; {advice}" if advice else "")
            )
        await apply(client, compiled.topology, inspection)


def run(
    app: App,
    *,
    url: str | None = None,
    observer: Observer = NULL_OBSERVER,
    options: AppRunOptions | None = None,
    declare: bool = False,
    started: Callable[[PreparedApp], None] = lambda _: None,
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    beforehand: Callable[[Connect], Awaitable[None]] | None = None,
    is_worker: bool = False,
    exits: bool = False,
    from_shell: bool = False,
) -> None:
    """Runs an app until SIGTERM or SIGINT, then stops it in order; a second signal ends it at once.

    `beside` is entered before it starts and left after it has stopped. `is_worker`: stops too when its parent is gone.
    `exits`: where a handler can't be ended, not even by cancelling it, the process ends instead of waiting for it.
    `beforehand` as in `start_app`, `from_shell` as in `prepare_app`. Raises as `start_app` does.
    """
    prepared = prepare_app(app, url=url, from_shell=from_shell)
    records, record = _open_record(prepared)
    options = replace(AppRunOptions() if options is None else options, records=records, record=record)

    async def main() -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()
        on_stop_signals(lambda: (hurry if stop.is_set() else stop).set())
        if is_worker:
            parent = asyncio.create_task(wait_parent_gone())
            parent.add_done_callback(lambda _: stop.set())
        async with beside():
            starting = asyncio.create_task(
                start_app(prepared, observer=observer, options=options, declare=declare, beforehand=beforehand)
            )
            if await _first(starting, stop.wait()) is not starting:
                starting.cancel()
                await asyncio.wait([starting])
                if not starting.cancelled() and starting.exception() is None:
                    await starting.result().stop(grace_s=0)
                return
            runner = starting.result()
            started(prepared)
            await stop.wait()
            stopping = asyncio.create_task(runner.stop())
            if await _first(stopping, hurry.wait()) is not stopping:
                stopping.cancel()
                await asyncio.wait([stopping])
            else:
                stopping.result()

    async def main_to_the_end() -> None:
        await main()
        if exits and not await cancel_other_tasks():
            exit_now(observer)

    try:
        with rare_garbage_collection():
            asyncio.run(main_to_the_end())
    finally:
        if record is not None:
            record.close()
    if exits and is_thread_alive(THREADS_NAME):
        exit_now(observer)


def run_app_command(
    app: App,
    *,
    url: str | None,
    declare: bool,
    options: AppRunOptions,
    telemetry_options: TelemetryOptions,
    started: Callable[[PreparedApp], None],
    is_worker: bool = False,
) -> None:
    """`run` as a program of its own, with a log and metrics. Raises as `run` does, and `EndpointFailed`."""
    telemetry = telemetry_options.telemetry()
    try:
        run(
            app,
            url=url,
            observer=telemetry,
            options=options,
            declare=declare,
            started=started,
            beside=lambda: telemetry_options.endpoint(telemetry),
            is_worker=is_worker,
            exits=True,
            from_shell=True,
        )
    finally:
        telemetry.close()


def run_workers(
    app: App,
    arguments: Sequence[str],
    workers: int,
    *,
    url: str | None,
    grace_s: float,
    telemetry_options: TelemetryOptions,
) -> int:
    """Runs `redrive run` with these arguments in so many processes, until SIGTERM or SIGINT; returns the exit code.

    What needs no broker is checked here first. The workers find `url` in their environment (`take_worker_url`). Raises
    as `prepare_app` does.
    """
    prepare_app(app, url=url, from_shell=True)
    if url is not None:
        os.environ[WORKER_URL] = url
    telemetry = telemetry_options.telemetry()

    def command(number: int) -> list[str]:
        port = telemetry_options.metrics_port
        ports = [] if port is None else ["--metrics-port", str(port + number if port else 0)]
        return [sys.executable, "-m", "redrive", "run", *arguments, *ports]

    async def main() -> int:
        processes = WorkerProcesses(command, workers, grace_s=grace_s, observer=telemetry, records=RunRecords.find())
        on_stop_signals(processes.stop)
        return await processes.run()

    try:
        return asyncio.run(main())
    finally:
        telemetry.close()


def take_worker_url() -> str | None:
    """In a worker: the broker's URL, taken out of the environment so that no process of a handler inherits it."""
    return os.environ.pop(WORKER_URL, None)


def _open_record(prepared: PreparedApp) -> tuple[RunRecords | None, RunRecord | None]:
    """The file in which this process records the messages its handlers run, for the process after a crash."""
    chosen = os.environ.pop(RECORD_PATH, None)  # processes that handlers start must not write there
    records = RunRecords.find()
    if records is None:
        return None, None
    queues = {one.plan.name: one.options.prefetch for one in prepared.consumptions}
    return records, records.create(queues, path=None if chosen is None else Path(chosen))


def _compiled(app: App) -> tuple[Compiled, str | None]:
    source = app.source
    if isinstance(source, Compiled):
        return source, None
    if isinstance(source, Declaration):
        return compile_declaration(source), source.broker
    path = os.fspath(source)
    loaded = load_file(path)
    if loaded.compiled is None:
        raise InvalidApp(f"{path} does not say how queues retry, as a redrive.yaml does; give the app one")
    return loaded.compiled, loaded.broker


async def _first(task: "asyncio.Task[AppRunner] | asyncio.Task[None]", other: Awaitable[object]) -> object:
    """The task, or the other awaitable, whichever ends first; if it is the task, the other is cancelled."""
    second = asyncio.ensure_future(other)
    await asyncio.wait((task, second), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        second.cancel()
        return task
    return second
