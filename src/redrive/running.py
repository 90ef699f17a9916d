"""Where an app meets a broker: the file it names is read, the URL resolved, the runtime connected. Wiring, for `run`.

asyncio:    async with running(app, url="amqp://…") as runner: …
a program:  run(app)                       until SIGTERM or SIGINT
a shell:    redrive run module:app         the same, in one process or several
"""

import asyncio
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import PurePath

from redrive.client import Client, Target, parse_url
from redrive.config import Setting, broker_url, names_vhost
from redrive.core import SILENT, Observer, did_you_mean
from redrive.deploy import apply, inspect
from redrive.files import load
from redrive.garbage import seldom_collected
from redrive.runtime import (
    THREADS_NAME,
    App,
    Consumption,
    Fleet,
    InvalidApp,
    Runner,
    RunOptions,
    wait_parent_gone,
)
from redrive.telemetry import Endpoint, Level, Log, LogFormat, Telemetry
from redrive.topology import Compiled, Declaration, compile_declaration

Connect = Callable[[str], Client]
_STUCK_S_MAX = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An app with its declaration read and its broker found; nothing is connected yet."""

    app: App
    compiled: Compiled
    consumptions: tuple[Consumption, ...]
    target: Target
    url: Setting


def prepare(app: App, *, url: str | None = None, environment: Mapping[str, str] | None = None) -> Prepared:
    """Checks everything that needs no broker.

    Raises `InvalidApp`, `UnreadableFile`, `InvalidDeclaration`, `InvalidDefinitions`, `InvalidUrl`.
    """
    compiled, file_url = _compiled(app)
    setting = broker_url(flag=url, environment=os.environ if environment is None else environment, file=file_url)
    target = parse_url(setting.value)
    if not names_vhost(setting.value) and compiled.topology.vhosts:
        target = replace(target, vhost=compiled.topology.vhosts[0].name)
    return Prepared(app=app, compiled=compiled, consumptions=app.consumptions(compiled), target=target, url=setting)


@asynccontextmanager
async def running(
    app: App,
    *,
    url: str | None = None,
    observer: Observer = SILENT,
    options: RunOptions | None = None,
    declare: bool = False,
    connect: Connect | None = None,
) -> AsyncIterator[Runner]:
    """The app at work, from its first message to its last. `declare`: declare what is missing first.

    Raises as `prepare` does, and `ConnectionFailed`, `UnsupportedBroker`, `TopologyMissing`, `ApplyFailed`.
    """
    prepared = prepare(app, url=url)
    runner = await start(prepared, observer=observer, options=options, declare=declare, connect=connect)
    try:
        yield runner
    finally:
        await runner.stop()


async def start(
    prepared: Prepared,
    *,
    observer: Observer = SILENT,
    options: RunOptions | None = None,
    declare: bool = False,
    connect: Connect | None = None,
) -> Runner:
    """Connects and consumes; stop it when done. Raises as `running` does."""
    name = prepared.app.name or f"redrive run:{os.getpid()}"

    def dial(purpose: str) -> Client:
        return Client(prepared.target, name=f"{name} {purpose}", observer=observer)

    connect = dial if connect is None else connect
    if declare:
        await declare_missing(prepared.compiled, connect)
    source = prepared.app.source
    file = "FILE" if isinstance(source, Compiled | Declaration) else os.fspath(source)
    runner = Runner(prepared.consumptions, connect, observer=observer, options=options, file=file)
    await runner.start()
    return runner


async def declare_missing(compiled: Compiled, connect: Connect) -> None:
    """Declares what is missing. Raises `InvalidApp` where something is there and different, and `ApplyFailed`."""
    async with connect("declaring") as client:
        # Names are all that counts on the wire: the vhost is the connection's.
        inspection = await inspect(client, compiled.topology)
        if inspection.differences:
            first = inspection.differences[0]
            raise InvalidApp(f"{first.address} is there with other settings; look at it with: redrive apply FILE")
        await apply(client, compiled.topology, inspection)


def run(
    app: App,
    *,
    url: str | None = None,
    observer: Observer = SILENT,
    options: RunOptions | None = None,
    declare: bool = False,
    started: Callable[[Prepared], None] = lambda _: None,
    beside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    is_worker: bool = False,
    exits: bool = False,
) -> None:
    """Runs an app until SIGTERM or SIGINT, then stops it in order; a second signal ends it at once.

    `beside` is entered before it starts and left after it has stopped. `is_worker`: stops too when its parent is gone.
    `exits`: where a handler can't be ended, not even by cancelling it, the process ends instead of waiting for it.
    Raises as `running` does.
    """
    prepared = prepare(app, url=url)

    async def main() -> None:
        stop, hurry = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            (hurry if stop.is_set() else stop).set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        if is_worker:
            parent = asyncio.create_task(wait_parent_gone())
            parent.add_done_callback(lambda _: stop.set())
        async with beside():
            starting = asyncio.create_task(start(prepared, observer=observer, options=options, declare=declare))
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
        if exits and not await _end_tasks():
            _exit_now(observer)

    with seldom_collected():
        asyncio.run(main_to_the_end())
    if exits and any(one.name.startswith(THREADS_NAME) for one in threading.enumerate()):
        _exit_now(observer)  # a handler's thread runs on, and Python would wait for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What an operator sees: the log on stderr, and metrics if a port is given."""

    log_level: str = "info"
    log_format: LogFormat | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None

    def telemetry(self) -> Telemetry:
        """The observer that writes the log and counts. Close it at the end."""
        return Telemetry(Log(sys.stderr, level=Level[self.log_level.upper()], form=self.log_format))


def run_watched(
    app: App,
    *,
    url: str | None,
    declare: bool,
    waits: bool,
    grace_s: float,
    watching: Watching,
    started: Callable[[Prepared], None],
    is_worker: bool = False,
) -> None:
    """`run` as a program of its own, with a log and metrics. Raises as `run` does, and `EndpointFailed`."""
    telemetry = watching.telemetry()
    port = watching.metrics_port

    def endpoint() -> AbstractAsyncContextManager[object]:
        if port is None:
            return nullcontext()
        return Endpoint(telemetry, host=watching.metrics_host, port=port)

    try:
        run(
            app,
            url=url,
            observer=telemetry,
            options=RunOptions(grace_s=grace_s, wait_for_topology=waits),
            declare=declare,
            started=started,
            beside=endpoint,
            is_worker=is_worker,
            exits=True,
        )
    finally:
        telemetry.close()


def run_fleet(
    app: App, arguments: Sequence[str], workers: int, *, url: str | None, grace_s: float, watching: Watching
) -> int:
    """Runs `redrive run` with these arguments in so many processes, until SIGTERM or SIGINT; returns the exit code.

    What needs no broker is checked here first. Raises as `prepare` does.
    """
    prepare(app, url=url)
    telemetry = watching.telemetry()

    def command(number: int) -> list[str]:
        port = watching.metrics_port
        ports = [] if port is None else ["--metrics-port", str(port + number if port else 0)]
        return [sys.executable, "-m", "redrive", "run", *arguments, *ports]

    async def main() -> int:
        fleet = Fleet(command, workers, grace_s=grace_s, observer=telemetry)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, fleet.stop)
        return await fleet.run()

    try:
        return asyncio.run(main())
    finally:
        telemetry.close()


async def _end_tasks() -> bool:
    """Cancels what is left; whether all of it ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return not tasks or not (await asyncio.wait(tasks, timeout=_STUCK_S_MAX))[1]


def _exit_now(observer: Observer) -> None:
    """Everything is settled and closed but somebody's handler."""
    close = getattr(observer, "close", None)
    if close is not None:
        close()  # the log is written by a thread, which would not get to its last lines
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def load_app(name: str) -> App:
    """The app that `module:attribute` names; modules are found from the working directory. Raises `InvalidApp`."""
    module_name, colon, attribute = name.partition(":")
    if module_name.endswith(".py"):
        path = PurePath(module_name.removesuffix(".py"))
        is_below = not path.is_absolute() and ".." not in path.parts
        written = f"{'.'.join(path.parts) if is_below else path.name}:{attribute or 'app'}"
        where = "" if is_below else ", from the folder that has it"
        raise InvalidApp(f"{module_name} is a file, and a module is needed; write {written}{where}")
    if not colon or not module_name or not attribute:
        raise InvalidApp(f"{name!r} names no app; write module:app, for example shop.orders:app")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise InvalidApp(f"there is no module {module_name}; run it from the folder that has it") from None
        raise InvalidApp(f"module {module_name} can't be imported: {error}") from None
    except Exception as error:
        if isinstance(error, InvalidApp):
            raise
        raise InvalidApp(f"module {module_name} can't be imported: {_told(error)}") from error
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            apps = [key for key, value in vars(module).items() if isinstance(value, App)]
            hint = did_you_mean(part, apps) or "it has no App at all"
            raise InvalidApp(f"module {module_name} has no {attribute}; {hint}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise InvalidApp(f"{name} is a {type(found).__name__}, not an App")
    return found


def _told(error: Exception) -> str:
    """What went wrong in somebody's module; an option that there is not, in words that help more than Python's."""
    unknown = re.match(r"App\.consumer\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if unknown is None or not isinstance(error, TypeError):
        return f"{type(error).__name__}: {error}"
    options = [one.name for one in signature(App.consumer).parameters.values() if one.kind is one.KEYWORD_ONLY]
    return f"a consumer has no option {unknown[1]}; {did_you_mean(unknown[1], options)}"


def _compiled(app: App) -> tuple[Compiled, str | None]:
    source = app.source
    if isinstance(source, Compiled):
        return source, None
    if isinstance(source, Declaration):
        return compile_declaration(source), source.broker
    path = os.fspath(source)
    loaded = load(path)
    if loaded.compiled is None:
        raise InvalidApp(f"{path} does not say how queues retry, as a redrive.yaml does; give the app one")
    return loaded.compiled, loaded.broker


async def _first(task: "asyncio.Task[Runner] | asyncio.Task[None]", other: Awaitable[object]) -> object:
    """Whichever ends first; the other awaitable is dropped when the task is it."""
    second = asyncio.ensure_future(other)
    await asyncio.wait((task, second), return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        second.cancel()
        return task
    return second
