"""The work beside the API for as long as it serves: collects dead letters, runs operations, auto-retries what is due.

While the broker is away, everything waits for it: the client reconnects with growing pauses, and each part continues
where it was. New queues are found by asking the broker again every 30 s. Every failure is logged and tried again: the
API answers all the while.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from redrive.admin import WorkerActivity, WorkerState
from redrive.client import Client, ClientError, ReconnectBackoff
from redrive.core import RedriveError
from redrive.deadletters import Collector, CollectorParts, RedriveOptions, SourceSelection, run_waiting_operations
from redrive.management import ManagementError
from redrive.stores import Store
from redrive.telemetry import Telemetry
from redrive.wiring import (
    CollectRequest,
    ConnectionSettings,
    RedriveBroker,
    declare_rules,
    new_random_bits,
    opened_store,
    owner_name,
    select_sources,
)

_LOST_S = 2.0
"""Without a connection for so long, the state says that it waits."""
_LOOKED_AFTER_S = 0.5
_BROKER_S_MAX = 30 * 86_400.0
"""Without a connection for so long, a running operation is paused: an operator should look."""
_NEW_QUEUES_S = 30.0
_STOP_S_MAX = 60.0
_FIRST_S, _LONGEST_S = 0.25, 5.0


class WorkerLoop:
    """The work of one process, in one event loop. `state` and `queues` may be read from any thread."""

    def __init__(
        self,
        connections: ConnectionSettings,
        request: CollectRequest,
        *,
        collects: bool,
        auto_retries: bool,
        telemetry: Telemetry,
    ) -> None:
        self.wake = asyncio.Event()
        self._connections = connections
        self._request = request
        self._collects = collects
        self._auto_retries = auto_retries
        self._telemetry = telemetry
        self._activity = WorkerActivity.CONNECTING
        self._reason = ""
        self._trouble = ""
        self._collector: Collector | None = None
        self._watched: set[str] = set()

    @property
    def state(self) -> WorkerState:
        """What it does now."""
        collector = self._collector
        return WorkerState(
            activity=self._activity,
            reason=self._reason or self._trouble,
            collects=self._collects,
            auto_retries=self._auto_retries,
            queues={} if collector is None else collector.queues,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set; then it ends the current batch and leaves the rest to the next process."""
        backoff = _new_backoff()
        while not stop.is_set():
            try:
                async with opened_store(self._connections, observer=self._telemetry) as store:
                    await self._declare_rules(store)
                    while not stop.is_set():
                        try:
                            await self._with_broker(store, stop, backoff)
                        except ClientError as error:
                            self._wait("the broker", error)
                        await _rest(stop, backoff.next_s())
            except (RedriveError, TimeoutError) as error:
                self._wait("the database", error)
            except Exception as error:  # noqa: BLE001 - whatever it was, the work continues
                self._wait("another try", type(error).__name__)
            await _rest(stop, backoff.next_s())
        self._activity, self._reason = WorkerActivity.STOPPING, ""

    async def _declare_rules(self, store: Store) -> None:
        """Stores the file's auto-retry rules; any process may then send by them."""
        left = await declare_rules(self._connections, store)
        if left:
            self._telemetry.note("deadletters.rules_left", queue=", ".join(one.removeprefix("queue:") for one in left))

    async def _with_broker(self, store: Store, stop: asyncio.Event, backoff: ReconnectBackoff) -> None:
        """From the first connection until `stop`. Raises `ClientError` if there is none."""
        async with AsyncExitStack() as stack:
            management = await stack.enter_async_context(self._connections.management())
            client = await stack.enter_async_context(
                self._connections.client("redrive serve", observer=self._telemetry, backoff=_new_backoff)
            )
            backoff.reset()
            options = RedriveOptions(broker_s=_BROKER_S_MAX)
            broker = RedriveBroker(store, client, management, observer=self._telemetry, options=options)
            ends = asyncio.Event()
            works: list[Coroutine[Any, Any, None]] = [
                run_waiting_operations(broker.redriver, stop=ends, wake=self.wake)
            ]
            if self._collects:
                works.append(self._collect(store, client, broker, ends))
            if self._auto_retries:
                works.append(broker.auto_retry.run(stop=ends))
            await _until(works, self._watch_connection(client, stop), ends, client)

    async def _watch_connection(self, client: Client, stop: asyncio.Event) -> None:
        """Keeps the state up to date with the connection, until `stop`."""
        while not stop.is_set():
            try:
                async with asyncio.timeout(_LOST_S):
                    await client.connection()
            except TimeoutError:
                self._wait("the broker", f"no connection to {client.target.address}")
                continue
            if self._activity is not WorkerActivity.COLLECTING:
                self._activity, self._reason = WorkerActivity.COLLECTING, ""
                self._telemetry.note("serve.working", address=client.target.address)
            await _rest(stop, _LOOKED_AFTER_S)

    async def _collect(self, store: Store, client: Client, broker: RedriveBroker, stop: asyncio.Event) -> None:
        """Runs a collector on the queues that exist; a new one when there are more queues."""
        logged = ""
        while not stop.is_set():
            try:
                selected = await select_sources(self._connections, client, broker.management, self._request)
            except ManagementError as error:
                self._trouble = f"which queues there are can't be asked: {error}"
                await _rest(stop, _LONGEST_S)
                continue
            self._trouble = ""
            logged = self._log_refusals(selected, logged)
            sources = [one for one in selected.sources if not one.observe_only]
            names = {one.dlq for one in sources}
            collector = Collector(
                CollectorParts(
                    client=client,
                    store=store,
                    owner=owner_name(),
                    clock_ms=store.clock_ms,
                    random_bits=new_random_bits,
                    observer=self._telemetry,
                ),
                sources,
            )
            self._collector = collector
            self._telemetry.note("serve.collecting", queues=", ".join(sorted(names)))
            self._count(names)
            ends = asyncio.Event()
            try:
                await _until([_run(collector, ends)], self._wait_new(client, broker, names, stop), ends, client)
            finally:
                self._collector = None

    async def _wait_new(self, client: Client, broker: RedriveBroker, names: set[str], stop: asyncio.Event) -> None:
        """Until there is a queue to collect that is not collected yet."""
        while not stop.is_set():
            await _rest(stop, _NEW_QUEUES_S)
            if stop.is_set():
                return
            try:
                selected = await select_sources(self._connections, client, broker.management, self._request)
            except RedriveError:
                continue  # the known queues are still collected
            if any(one.dlq not in names for one in selected.sources if not one.observe_only):
                return

    def _count(self, names: set[str]) -> None:
        for name in names - self._watched:
            self._telemetry.watch(name)
        self._watched |= names

    def _log_refusals(self, selected: SourceSelection, logged: str) -> str:
        """Logs once which queues were refused and why; returns the text."""
        text = "; ".join(one.text for one in selected.refusals)
        if text and text != logged:
            self._telemetry.note("serve.queues_refused", reason=text)
        return text

    def _wait(self, for_what: str, error: object) -> None:
        reason = f"for {for_what}: {str(error) or type(error).__name__}"
        if (self._activity, self._reason) != (WorkerActivity.WAITING, reason):
            self._telemetry.note("serve.waiting", reason=reason)
        self._activity, self._reason = WorkerActivity.WAITING, reason


async def _run(collector: Collector, stop: asyncio.Event) -> None:
    await collector.run(stop)
    await stop.wait()  # without queues it ends at once


async def _until(
    works: list[Coroutine[Any, Any, None]], end: Coroutine[Any, Any, None], ends: asyncio.Event, client: Client
) -> None:
    """Runs the works until `end` returns or raises, or one of them ends, which none should; then sets `ends`."""
    ending = asyncio.create_task(end)
    tasks = [asyncio.create_task(one) for one in works]
    try:
        await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        ends.set()
        ending.cancel()
        try:
            # Without a connection there is nothing to finish: the broker has requeued it.
            await asyncio.wait([ending, *tasks], timeout=_STOP_S_MAX if client.is_connected else _LOST_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(ending, *tasks, return_exceptions=True)
    for task in (ending, *tasks):
        if not task.cancelled():
            task.result()


def _new_backoff() -> ReconnectBackoff:
    return ReconnectBackoff(first_s=_FIRST_S, longest_s=_LONGEST_S)


async def _rest(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass
