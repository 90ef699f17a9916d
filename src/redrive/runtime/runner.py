"""An app at work: two connections, its queues consumed, until it is told to stop.

Consumers and copies have a connection each: a broker that blocks publishers reads nothing more from their connection,
and acks must not wait for that. When it stops: no new deliveries; what is in hand is handled, within `grace_s`; the
rest goes back to its queues; acks get a moment to be known to the broker (a busy quorum queue of 3.10 forgets those of
a channel that closes too soon); then the connections close.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from redrive.client import Client, Delivery, ReconnectBackoff
from redrive.core import SILENT, Observer
from redrive.inspection import is_queue_deleted
from redrive.runtime.app import Consumption
from redrive.runtime.calling import build_call
from redrive.runtime.errors import TopologyMissing
from redrive.runtime.executing import Checkpoint, Executor
from redrive.runtime.handling import Handling
from redrive.runtime.loop_watch import LoopWatch
from redrive.runtime.options import THREADS
from redrive.runtime.outlet import Outlet
from redrive.runtime.own_losses import OwnLosses
from redrive.runtime.pausing import Pausing
from redrive.runtime.readiness import (
    DEAD_LETTER_EXCHANGE,
    OWN_DEATHS_SINCE,
    check_version,
    find_readiness,
    read_version,
)
from redrive.runtime.run_records import RunRecord, RunRecords
from redrive.runtime.solitude import Solitude
from redrive.runtime.subscription import Subscription

GRACE_S = 25.0
"""Below the 30 s that most platforms leave a process."""
THREADS_NAME = "redrive handler of"
"""How the names of threads begin that run handlers."""
LINGER_S = 0.2
_MISSING_FIRST_S, _MISSING_LONGEST_S = 0.5, 10.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# Ids are asked for by every copy of a message that has none; the system's own chance costs ten times as much.
_chance = random.Random()
if hasattr(os, "register_at_fork"):  # where there is none, nobody forks
    os.register_at_fork(after_in_child=_chance.seed)


def _new_id() -> str:
    return f"{_chance.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an app is run, apart from what its author said.

    `record` is where this process writes down what it has in hand, `records` where all of them do.
    `wait_for_topology` False raises `TopologyMissing` at once. `checkpoint`, the clock, chance and ids are passed in so
    that tests can have them in hand.
    """

    grace_s: float = GRACE_S
    linger_s: float = LINGER_S
    wait_for_topology: bool = True
    checkpoint: Checkpoint | None = None
    now_ms: Callable[[], int] = _now_ms
    draw: Callable[[], float] = random.random
    new_id: Callable[[], str] = _new_id
    records: RunRecords | None = None
    record: RunRecord | None = None


class Runner:
    """Runs consumptions against one broker: `async with Runner(…): …`, or `start` and `stop`.

    `connect` makes the two clients, each told what it is for. `file` declares the queues, if any does; it is named
    where one of them is missing.
    """

    def __init__(
        self,
        consumptions: tuple[Consumption, ...],
        connect: Callable[[str], Client],
        *,
        observer: Observer = SILENT,
        options: RunOptions | None = None,
        file: str = "FILE",
    ) -> None:
        self._consumptions = consumptions
        self._observer = observer
        self._options = RunOptions() if options is None else options
        self._file = file
        self._consuming = connect("consuming")
        self._publishing = connect("publishing")
        self._stopping = asyncio.Event()
        self._different: frozenset[str] = frozenset()
        self._server_version = ""
        self._solitude = Solitude()
        self._own_losses = OwnLosses()
        self._loop_watch: LoopWatch | None = None
        self._threads: list[ThreadPoolExecutor] = []
        self.subscriptions: list[Subscription] = []

    async def __aenter__(self) -> "Runner":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connects, waits for the topology, consumes. Raises `ConnectionFailed`, `UnsupportedBroker`,
        `TopologyMissing`, and what the broker refuses a consumer with; nothing is left open then."""
        try:
            await self._consuming.start()
            await self._publishing.start()
            version = self._server_version = (await self._consuming.connection()).server_version
            check_version(self._consumptions, version)
            await self._wait_for_topology()
            outlets: dict[int, Outlet] = {}
            for one in self._consumptions:
                self.subscriptions.append(await self._subscription(one, outlets))
            self._solitude.members.extend(self.subscriptions)
            for subscription in self.subscriptions:
                await subscription.start()
                self._watch(subscription)
            if self._options.record is not None:
                self._options.record.mark_started()
            self._loop_watch = LoopWatch(lambda: self._consuming.heartbeat_s / 2 or None, self._note_block)
            self._loop_watch.start()
        except BaseException:
            await self._disconnect()
            raise
        self._observer.note("runtime.started", queues=[one.queue for one in self.subscriptions], server_version=version)

    async def stop(self, *, grace_s: float | None = None) -> None:
        """Stops as the module says; never raises but when cancelled, and is closed then too."""
        grace_s = self._options.grace_s if grace_s is None else grace_s
        in_hand = sum(one.in_hand for one in self.subscriptions)
        self._observer.note("runtime.stopping", in_hand=in_hand, grace_s=grace_s)
        given_back = 0
        try:
            await asyncio.gather(*(one.stop() for one in self.subscriptions))
            self._stopping.set()  # not before: what is given back now must not come to us again
            await self._wait_settled(grace_s)
            await asyncio.gather(*(one.flush() for one in self.subscriptions))
            await asyncio.sleep(self._options.linger_s)
            given_back = sum(await asyncio.gather(*(one.close() for one in self.subscriptions)))
        finally:
            await self._disconnect()
        self._observer.note("runtime.stopped", given_back=given_back)

    def in_hand(self, queue: str) -> int:
        """Deliveries of a queue that are not settled yet."""
        return sum(one.in_hand for one in self.subscriptions if one.queue == queue)

    async def _wait_settled(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                while any(one.in_hand for one in self.subscriptions):  # noqa: ASYNC110 - bounded, and only at the end
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass

    def _note_block(self, delivery: Delivery | None, blocked_s: float) -> None:
        """The event loop stands still; called from another thread."""
        alone = self._own_losses.alone
        delivery = alone if delivery is None else delivery
        if delivery is not None:
            self._own_losses.blame(delivery)
            if delivery is alone and self._options.record is not None:
                self._options.record.mark_blocked()
        self._observer.note(
            "runtime.loop_blocked",
            queue=None if delivery is None else delivery.queue,
            message_id=None if delivery is None else delivery.properties.message_id,
            delivery_tag=None if delivery is None else delivery.delivery_tag,
            blocked_ms=round(blocked_s * 1000),
        )

    async def _disconnect(self) -> None:
        if self._loop_watch is not None:
            self._loop_watch.stop()
        try:
            await self._consuming.close()
            await asyncio.gather(*(one.handling.close() for one in self.subscriptions))
            await self._publishing.close()
        finally:
            for threads in self._threads:
                threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_topology(self) -> None:
        pauses = ReconnectBackoff(first_s=_MISSING_FIRST_S, longest_s=_MISSING_LONGEST_S, random=self._options.draw)
        told: list[str] = []
        while True:
            found = await find_readiness(self._consuming, self._consumptions)
            missing = list(found.missing)
            if not missing:
                break
            if not self._options.wait_for_topology:
                raise TopologyMissing(found.missing, file=self._file)
            if missing != told:
                queues = [one.plan.name for one in self._consumptions]
                self._observer.note(
                    "runtime.waiting_for_topology",
                    queue=", ".join(queues),
                    missing=missing,
                    declare_with=f"redrive apply {self._file}",
                )
                told = missing
            await asyncio.sleep(pauses.next_s())
        self._different = frozenset(plan.name for plan, _ in found.different)
        for plan, difference in found.different:
            self._observer.note(
                "runtime.queue_differs",
                queue=plan.name,
                difference=difference,
                consequence="failed messages are parked by publishing; what else dies in it the broker drops",
                migrate_with=plan.dead_lettering_command(self._consuming.target.vhost),
                look_with=f"redrive apply {self._file}",
            )
        for plan, lacking in found.weak:
            self._observer.note("runtime.not_guaranteed", queue=plan.name, reason="; ".join(lacking))

    async def _subscription(self, one: Consumption, outlets: dict[int, Outlet]) -> Subscription:
        options, queue = self._options, one.plan.name
        if id(one.codec) not in outlets:
            outlets[id(one.codec)] = Outlet(
                await self._publishing.publisher(),
                one.codec,
                new_publisher=self._publishing.publisher,
                loop=asyncio.get_running_loop(),
                new_id=options.new_id,
                now_s=lambda: options.now_ms() // 1000,
            )
        # Channels for each queue's copies: a missing exchange closes one, and leaves the others' publishes in peace.
        executor = Executor(
            one.plan,
            await self._publishing.publisher(),
            await self._publishing.publisher(),
            observer=self._observer,
            stopping=self._stopping,
            new_id=options.new_id,
            draw=options.draw,
            new_publisher=self._publishing.publisher,
            is_queue_deleted=lambda queue: is_queue_deleted(self._publishing, queue),
            checkpoint=options.checkpoint,
            now_ms=options.now_ms,
        )
        pausing = Pausing(
            pause_after=one.options.pauses_after(one.plan.declared.pause_after),
            pause_on=one.options.pause_on,
            on_pause=lambda why: subscription.pause(why),
        )
        concurrency, threads = self._room(one)
        handling = Handling(
            one,
            build_call(
                one.handler,
                takes_message=one.signature.takes_message,
                is_async=one.signature.is_async,
                middleware=one.middleware,
                timeout_s=None if one.options.timeout_ms is None else one.options.timeout_ms / 1000,
                threads=threads,
            ),
            concurrency=concurrency,
            executor=executor,
            outlet=outlets[id(one.codec)],
            observer=self._observer,
            solitude=self._solitude,
            pausing=pausing,
            now_ms=options.now_ms,
            draw=options.draw,
            own_losses=self._own_losses,
            has_dead_letters=DEAD_LETTER_EXCHANGE in one.plan.queue.arguments and queue not in self._different,
            reads_deaths=read_version(self._server_version) < OWN_DEATHS_SINCE,
            records=options.records,
            record=options.record,
        )
        subscription = Subscription(
            self._consuming,
            queue,
            handling,
            pausing,
            prefetch=one.options.prefetch,
            observer=self._observer,
            draw=options.draw,
        )
        return subscription

    def _room(self, one: Consumption) -> tuple[int | None, ThreadPoolExecutor | None]:
        """How many handlers of a queue may run at once, None for as many as are in hand; and their threads."""
        concurrency = one.options.concurrency
        if one.signature.is_async:
            return (None if concurrency is None or concurrency >= one.options.prefetch else concurrency), None
        concurrency = min(THREADS if concurrency is None else concurrency, one.options.prefetch)
        threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix=f"{THREADS_NAME} {one.plan.name}")
        self._threads.append(threads)
        return concurrency, threads

    def _watch(self, subscription: Subscription) -> None:
        """Tells telemetry whom to ask how many are in hand."""
        watch = getattr(self._observer, "watch", None)
        if watch is not None:
            watch(subscription.queue, in_hand=lambda: subscription.in_hand, unready=lambda: subscription.unready)
