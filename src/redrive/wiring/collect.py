"""`redrive collect`: finds the dead-letter queues and runs the collector on them.

FILE says which queues they are, else their names on the broker. The management API is asked if it answers: it knows the
types, limits and consumers of queues. Without it a file or exact names are needed.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from redrive.client import Client, ClientError, QueueState
from redrive.core import Finding, RedriveError, Severity
from redrive.deadletters import (
    NAME_PATTERNS,
    Collector,
    CollectorParts,
    CollectReport,
    SourceSelection,
    run_waiting_operations,
    select_by_name,
    select_from_broker,
    select_from_topology,
)
from redrive.inspection import queue_state
from redrive.management import Management, ManagementError, QueueInfo
from redrive.records import Status
from redrive.stores import Store
from redrive.telemetry import Telemetry
from redrive.wiring.connection_settings import ConnectionSettings
from redrive.wiring.garbage_collector import rare_garbage_collection
from redrive.wiring.letter_store import opened_store
from redrive.wiring.machine import new_random_bits, owner_name
from redrive.wiring.process import TelemetryOptions
from redrive.wiring.redrive import RedriveBroker, declare_rules
from redrive.wiring.stop_signals import on_stop_signals

_DEPTHS_MAX = 50
"""The depths of so many queues are asked at the start: they need not be complete, but soon."""


class NothingToCollect(RedriveError):
    """No queue is left to collect from; nothing was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """What to collect, and how."""

    patterns: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    who: str = "unknown"
    """Who resumes stopped queues, for the audit."""
    once: bool = False
    auto_retry: bool = False
    forced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQueue:
    """A dead-letter queue: on the broker, in a file, or in the store. The counts are None if the broker could not be
    asked; `stopped` says why collecting it was stopped."""

    vhost: str
    dlq: str
    known_queue: str | None = None
    messages: int | None = None
    consumers: int | None = None
    stored: dict[str, int] = field(default_factory=dict)
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownQueues:
    """All of them; `problem` says why the broker could not be asked."""

    address: str
    queues: tuple[KnownQueue, ...]
    problem: str | None = None


def run_collect(
    connections: ConnectionSettings,
    request: CollectRequest,
    *,
    telemetry_options: TelemetryOptions,
    confirm: Callable[[SourceSelection], None],
    started: Callable[[SourceSelection], None],
) -> CollectReport | None:
    """Collects until SIGTERM or SIGINT, or with `once` until the queues are empty; None: it was ended before it began.

    `confirm` gets what would be collected, before a database is made, and raises to refuse it; `started` gets it when
    collecting begins. Raises `NothingToCollect`, `ManagementError`, `ConnectionFailed`, `StoreError`,
    `EndpointFailed`.
    """
    telemetry = telemetry_options.telemetry()

    async def run() -> CollectReport | None:
        stop, starting = asyncio.Event(), asyncio.current_task()
        has_begun = False

        def on_signal() -> None:
            stop.set()
            if not has_begun and starting is not None:
                starting.cancel()

        on_stop_signals(on_signal)
        try:
            async with AsyncExitStack() as stack:
                selected, collector, broker = await _prepared(
                    stack, connections, request, telemetry, telemetry_options, confirm
                )
                has_begun = True
                telemetry.note("collector.started", queues=_queues_text(selected), address=connections.target.address)
                started(selected)
                return await _collect(collector, broker, request, stop)
        except asyncio.CancelledError:
            if has_begun or not stop.is_set():
                raise
            return None  # nothing was taken yet

    try:
        with rare_garbage_collection():
            return asyncio.run(run())
    finally:
        telemetry.close()


async def _prepared(
    stack: AsyncExitStack,
    connections: ConnectionSettings,
    request: CollectRequest,
    telemetry: Telemetry,
    telemetry_options: TelemetryOptions,
    confirm: Callable[[SourceSelection], None],
) -> tuple[SourceSelection, Collector, RedriveBroker]:
    """Chooses and confirms the queues first: a refusal leaves no empty database behind."""
    management = await stack.enter_async_context(connections.management())
    client = await stack.enter_async_context(connections.client("redrive collect", observer=telemetry))
    selected = await select_sources(connections, client, management, request)
    sources = [one for one in selected.sources if not one.observe_only]
    if not sources:
        raise NothingToCollect(_nothing_to_collect(selected))
    # The management API's counts are some seconds old.
    states = await _states(client, [one.dlq for one in sources[:_DEPTHS_MAX]])
    selected = replace(selected, depths={name: one.messages_ready for name, one in states.items()})
    confirm(selected)
    store = await stack.enter_async_context(opened_store(connections, observer=telemetry))
    await stack.enter_async_context(telemetry_options.endpoint(telemetry))
    if request.auto_retry:
        await declare_rules(connections, store)
    for name in request.resumed:
        await store.batches.resume_queue(client.target.vhost, name, now_ms=store.clock_ms(), who=request.who)
    collector = Collector(
        CollectorParts(
            client=client,
            store=store,
            owner=owner_name(),
            clock_ms=store.clock_ms,
            random_bits=new_random_bits,
            observer=telemetry,
        ),
        sources,
    )
    for one in sources:
        telemetry.watch(one.dlq, in_hand=lambda: 0)
    return selected, collector, RedriveBroker(store, client, management, observer=telemetry)


def _queues_text(selected: SourceSelection) -> str:
    """The queues that are collected, each with its depth, if that is known."""
    names = [one.dlq for one in selected.sources if not one.observe_only]
    return ", ".join(f"{name} ({selected.depths[name]})" if name in selected.depths else name for name in names)


async def select_sources(
    connections: ConnectionSettings, client: Client, management: Management, request: CollectRequest
) -> SourceSelection:
    """The queues to collect. Raises `ManagementError` if only the management API knows them."""
    from_file = _from_file(connections, client.target.vhost, request)
    try:
        infos = [one async for one in management.queues(client.target.vhost)]
        policies = await management.policy_matcher(client.target.vhost)
        bindings = await management.bindings(client.target.vhost)
    except ManagementError as error:
        if from_file is not None:
            states = await _states(client, [one.dlq for one in from_file.sources])
            return replace(from_file, depths={name: one.messages_ready for name, one in states.items()})
        if not request.patterns:
            raise
        states = await _states(client, request.patterns)
        return select_by_name(
            client.target.vhost,
            request.patterns,
            observe_only=request.observe,
            consumers={name: one.consumers for name, one in states.items()},
            depths={name: one.messages_ready for name, one in states.items()},
            forced=request.forced,
            unlisted=str(error),
        )
    found = select_from_broker(
        infos,
        policies=policies,
        patterns=() if from_file is not None else request.patterns or NAME_PATTERNS,
        observe_only=request.observe,
        forced=request.forced,
        topology=from_file,
        bindings=bindings,
    )
    return found if from_file is None else _with_missing(found, from_file, infos)


def declared_owners(connections: ConnectionSettings) -> dict[str, str]:
    """The queue whose dead letters each dead-letter queue of FILE holds, where it is just one."""
    from_file = _from_file(connections, connections.target.vhost, CollectRequest())
    found = () if from_file is None else from_file.sources
    return {one.dlq: one.known_queue for one in found if one.known_queue is not None}


async def known_queues(
    connections: ConnectionSettings, store: Store, *, patterns: Sequence[str] = (), patience_s: float | None = None
) -> KnownQueues:
    """Dead-letter queues with their depth, if the broker can be asked, and what is stored of them.

    The management API and the broker are each waited for at most `patience_s`.
    """
    target = connections.target
    stored = (await store.stats.totals(None, now_ms=store.clock_ms())).by_dlq
    stopped = await store.batches.stopped_queues()
    from_file = _from_file(connections, target.vhost, CollectRequest(patterns=tuple(patterns)))
    known = {
        one.dlq: KnownQueue(vhost=one.vhost, dlq=one.dlq, known_queue=one.known_queue)
        for one in (() if from_file is None else from_file.sources)
    }
    problem = None
    try:
        async with connections.management() as management, asyncio.timeout(patience_s):
            infos = {one.name: one async for one in management.queues(target.vhost)}
            policies = await management.policy_matcher(target.vhost)
        wanted = tuple(patterns) or (NAME_PATTERNS if from_file is None else ())
        found = select_from_broker(infos.values(), policies=policies, patterns=wanted, topology=from_file)
        for source in found.sources:
            known.setdefault(source.dlq, KnownQueue(vhost=source.vhost, dlq=source.dlq))
        # A collector's unacked batch is stored already, or will be in a moment: it counts once, as stored, so only
        # ready messages are counted. The management API's counts are some seconds old, so queues with stored dead
        # letters are asked again over AMQP.
        depths = {name: (one.messages_ready, one.consumers) for name, one in infos.items()}
        collected = [name for name in known if name in stored and depths.get(name, (0, 0))[0]]
        if collected:
            fresh, _ = await _depths(connections, collected, "", patience_s=patience_s)
            depths.update({name: (ready, depths[name][1]) for name, (ready, _) in fresh.items()})
    except (ManagementError, TimeoutError) as error:
        problem = str(error) or f"the management API did not answer in {patience_s:g} s"
        depths, problem = await _depths(connections, [*known, *stored], problem, patience_s=patience_s)
    for name in stored:
        known.setdefault(name, KnownQueue(vhost=target.vhost, dlq=name))
    queues = [
        replace(
            one,
            messages=depths[name][0] if name in depths else None,
            consumers=depths[name][1] if name in depths else None,
            stored={str(status): stored.get(name, {}).get(status, 0) for status in Status},
            stopped=stopped.get((one.vhost, name)),
        )
        for name, one in sorted(known.items())
    ]
    return KnownQueues(address=target.address, queues=tuple(queues), problem=problem)


async def _collect(
    collector: Collector, broker: RedriveBroker, request: CollectRequest, stop: asyncio.Event
) -> CollectReport:
    """Runs the collector and, if asked for, auto-retry beside it, until the collector ends."""
    beside = []
    if request.auto_retry:
        if request.once:
            report = await collector.run(stop, once=True)
            await broker.auto_retry.once(stop=stop)
            return report
        beside = [
            asyncio.create_task(broker.auto_retry.run(stop=stop), name="redrive auto-retry"),
            asyncio.create_task(run_waiting_operations(broker.redriver, stop=stop), name="redrive operations"),
        ]
    try:
        return await collector.run(stop, once=request.once)
    finally:
        stop.set()
        if beside:
            await asyncio.wait(beside, timeout=60)


def _from_file(connections: ConnectionSettings, vhost: str, request: CollectRequest) -> SourceSelection | None:
    if connections.loaded is None:
        return None
    loaded = connections.loaded
    topology, retry_routes = loaded.topology, loaded.retry_routes
    used = topology.used_vhosts()
    if vhost not in used and len(used) == 1:
        # A URL's vhost wins over the file's, as when it was applied.
        topology = topology.moved(vhost)
        retry_routes = tuple(replace(one, vhost=vhost) for one in retry_routes)
    else:
        topology = topology.only(vhost)
        retry_routes = tuple(one for one in retry_routes if one.vhost == vhost)
    return select_from_topology(
        topology,
        retry_routes=retry_routes,
        declared=() if loaded.compiled is None else loaded.compiled.declared,
        patterns=request.patterns,
        observe_only=request.observe,
        forced=request.forced,
    )


def _with_missing(found: SourceSelection, from_file: SourceSelection, infos: Sequence[QueueInfo]) -> SourceSelection:
    """The broker's queues, and those of the file that it does not have yet: the collector waits for them."""
    there = {one.name for one in infos}
    missing = [one for one in from_file.sources if one.dlq not in there]
    findings = [
        Finding(
            code="missing",
            severity=Severity.WARNING,
            address=f"queue {one.dlq}",
            summary="is not on the broker",
            hint="declare it with redrive apply",
        )
        for one in missing
    ]
    return replace(found, sources=(*found.sources, *missing), findings=(*found.findings, *findings))


async def _depths(
    connections: ConnectionSettings, names: Sequence[str], problem: str, *, patience_s: float | None
) -> tuple[dict[str, tuple[int | None, int | None]], str | None]:
    """Ready messages and consumers of these queues, asked over AMQP; or why the broker can't be asked at all."""
    found: dict[str, tuple[int | None, int | None]] = {}
    try:
        async with asyncio.timeout(patience_s), connections.client("redrive dlq queues") as client:
            for name in dict.fromkeys(names):
                state = await queue_state(client, name)
                if state is not None:
                    found[name] = (state.messages_ready, state.consumers)
    except (ClientError, TimeoutError) as error:
        return found, f"{problem}; and over AMQP {error or 'no answer'}"
    return found, None


async def _states(client: Client, names: Sequence[str]) -> dict[str, QueueState]:
    found = {}
    for name in names:
        if not name or any(character in name for character in "*?["):
            continue
        try:
            state = await queue_state(client, name)
        except (ClientError, TimeoutError):
            continue  # the collector reports what is wrong with it
        if state is not None:
            found[name] = state
    return found


def _nothing_to_collect(selected: SourceSelection) -> str:
    reasons = [one.text for one in selected.refusals]
    if reasons:
        return f"there is nothing to collect: {'; '.join(reasons)}"
    return "there is no dead-letter queue to collect; name queues with --match, or a FILE that has some"
