"""An app at work: two connections, its queues consumed, until it is stopped.

Consumers and copies have a connection each: a broker that blocks publishers stops reading their connection, and acks
must not wait for that. A stop: no new deliveries; running handlers may end within `grace_s`; the rest is requeued; the
broker gets a moment to take the acks (a busy quorum queue of 3.10 forgets those of a channel that closes too soon);
then the connections close.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from redrive.client import Client, Delivery, ReconnectBackoff
from redrive.core import NULL_OBSERVER, Observer
from redrive.inspection import is_queue_deleted
from redrive.runtime.admission import Admission
from redrive.runtime.app import Consumption
from redrive.runtime.consumer_options import THREADS
from redrive.runtime.delivery_handler import DeliveryHandler
from redrive.runtime.errors import TopologyMissing
from redrive.runtime.handler_call import HandlerCall, build_call
from redrive.runtime.handler_publisher import HandlerPublisher
from redrive.runtime.loop_watch import LoopWatch
from redrive.runtime.process_context import Checkpoint, ProcessContext
from redrive.runtime.queue_pause import QueuePause
from redrive.runtime.readiness import (
    DEAD_LETTER_EXCHANGE,
    OWN_DEATHS_SINCE,
    check_version,
    find_readiness,
    read_version,
)
from redrive.runtime.run_records import RunRecord, RunRecords
from redrive.runtime.settlement import BrokerFacts, CopyPublishers, Settler
from redrive.runtime.subscription import Subscription

GRACE_S = 25.0
"""Below the 30 s that most platforms leave a process."""
THREADS_NAME = "redrive handler of"
"""How the names of the handlers' threads begin."""
LINGER_S = 0.2
_MISSING_FIRST_S, _MISSING_LONGEST_S = 0.5, 10.0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# Every copy of a message without an id needs one; the system's own randomness costs ten times as much.
_random = random.Random()
if hasattr(os, "register_at_fork"):  # where there is none, nobody forks
    os.register_at_fork(after_in_child=_random.seed)


def _new_id() -> str:
    return f"{_random.getrandbits(128):032x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRunOptions:
    """How an app is run, apart from what its author declared.

    `record` is the file where this process records which messages are in its handlers, `records` the folder with those
    of all processes. `wait_for_topology` False raises `TopologyMissing` at once. `checkpoint`, the clock, randomness
    and ids are passed in so that tests control them.
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


class AppRunner:
    """Runs consumptions against one broker: `async with AppRunner(…): …`, or `start` and `stop`.

    `connect` makes the two clients and gets the purpose of each. `file` declares the queues, if any file does; errors
    and logs about a missing queue name it.
    """

    def __init__(
        self,
        consumptions: tuple[Consumption, ...],
        connect: Callable[[str], Client],
        *,
        observer: Observer = NULL_OBSERVER,
        options: AppRunOptions | None = None,
        file: str = "FILE",
    ) -> None:
        self._consumptions = consumptions
        self._observer = observer
        self._options = AppRunOptions() if options is None else options
        self._file = file
        self._process = ProcessContext(
            observer=observer,
            now_ms=self._options.now_ms,
            draw=self._options.draw,
            new_id=self._options.new_id,
            checkpoint=self._options.checkpoint,
            records=self._options.records,
            record=self._options.record,
        )
        self._consuming = connect("consuming")
        self._publishing = connect("publishing")
        self._different: frozenset[str] = frozenset()
        self._server_version = ""
        self._loop_watch: LoopWatch | None = None
        self._threads: list[ThreadPoolExecutor] = []
        self.subscriptions: list[Subscription] = []

    async def __aenter__(self) -> "AppRunner":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Connects, waits for the topology, consumes. Raises `ConnectionFailed`, `UnsupportedBroker`,
        `TopologyMissing`, and the broker's refusal of a consumer; nothing is left open then."""
        try:
            await self._consuming.start()
            await self._publishing.start()
            version = self._server_version = (await self._consuming.connection()).server_version
            check_version(self._consumptions, version)
            await self._wait_for_topology()
            handler_publishers: dict[int, HandlerPublisher] = {}
            for one in self._consumptions:
                self.subscriptions.append(await self._subscription(one, handler_publishers))
            self._process.exclusive_runs.queues.extend(self.subscriptions)
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
        """Stops as the module says; never raises but when cancelled, and is closed even then."""
        grace_s = self._options.grace_s if grace_s is None else grace_s
        unsettled = sum(one.unsettled for one in self.subscriptions)
        self._observer.note("runtime.stopping", in_hand=unsettled, grace_s=grace_s)
        requeued = 0
        try:
            await asyncio.gather(*(one.stop() for one in self.subscriptions))
            self._process.stopping.set()  # not before: a message that is requeued now must not come to us again
            await self._wait_settled(grace_s)
            await asyncio.gather(*(one.flush() for one in self.subscriptions))
            await asyncio.sleep(self._options.linger_s)
            requeued = sum(await asyncio.gather(*(one.close() for one in self.subscriptions)))
        finally:
            await self._disconnect()
        self._observer.note("runtime.stopped", given_back=requeued)

    def unsettled(self, queue: str) -> int:
        """Deliveries of a queue that are not settled yet."""
        return sum(one.unsettled for one in self.subscriptions if one.queue == queue)

    async def _wait_settled(self, grace_s: float) -> None:
        try:
            async with asyncio.timeout(grace_s):
                while any(one.unsettled for one in self.subscriptions):  # noqa: ASYNC110 - bounded, and only at the end
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pass

    def _note_block(self, delivery: Delivery | None, blocked_s: float) -> None:
        """The event loop is blocked; called from another thread."""
        exclusive = self._process.losses.exclusive
        delivery = exclusive if delivery is None else delivery
        if delivery is not None:
            self._process.losses.blame(delivery)
            if delivery is exclusive and self._options.record is not None:
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
            await asyncio.gather(*(one.handler.close() for one in self.subscriptions))
            await self._publishing.close()
        finally:
            for threads in self._threads:
                threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_topology(self) -> None:
        pauses = ReconnectBackoff(first_s=_MISSING_FIRST_S, longest_s=_MISSING_LONGEST_S, random=self._options.draw)
        logged: list[str] = []
        while True:
            found = await find_readiness(self._consuming, self._consumptions)
            missing = list(found.missing)
            if not missing:
                break
            if not self._options.wait_for_topology:
                raise TopologyMissing(found.missing, file=self._file)
            if missing != logged:
                queues = [one.plan.name for one in self._consumptions]
                self._observer.note(
                    "runtime.waiting_for_topology",
                    queue=", ".join(queues),
                    missing=missing,
                    declare_with=f"redrive apply {self._file}",
                )
                logged = missing
            await asyncio.sleep(pauses.next_s())
        self._different = frozenset(plan.name for plan, _ in found.different)
        for plan, difference in found.different:
            self._observer.note(
                "runtime.queue_differs",
                queue=plan.name,
                difference=difference,
                consequence="failed messages are parked by publishing; the broker drops all else that it dead-letters",
                migrate_with=plan.dead_lettering_command(self._consuming.target.vhost),
                look_with=f"redrive apply {self._file}",
            )
        for plan, lacking in found.weak:
            self._observer.note("runtime.not_guaranteed", queue=plan.name, reason="; ".join(lacking))

    async def _subscription(self, one: Consumption, handler_publishers: dict[int, HandlerPublisher]) -> Subscription:
        options, queue = self._options, one.plan.name
        if id(one.codec) not in handler_publishers:
            handler_publishers[id(one.codec)] = HandlerPublisher(
                await self._publishing.publisher(),
                one.codec,
                new_publisher=self._publishing.publisher,
                loop=asyncio.get_running_loop(),
                new_id=options.new_id,
                now_s=lambda: options.now_ms() // 1000,
            )
        # Each queue's copies have channels of their own: a missing exchange closes one, and the other queues publish
        # on.
        publishers = CopyPublishers(
            copies=await self._publishing.publisher(),
            own_queue=await self._publishing.publisher(),
            new=self._publishing.publisher,
            is_queue_deleted=lambda queue: is_queue_deleted(self._publishing, queue),
        )
        broker = BrokerFacts(
            has_dead_lettering=DEAD_LETTER_EXCHANGE in one.plan.queue.arguments and queue not in self._different,
            reads_deaths=read_version(self._server_version) < OWN_DEATHS_SINCE,
        )
        call = self._handler_call(one)

        def build_handler(pause: QueuePause, lost_lately: Callable[[], bool]) -> DeliveryHandler:
            admission = Admission(one.plan, crashes_max=one.options.crashes_max, now_ms=options.now_ms)
            settler = Settler(
                one.plan,
                one.policy,
                admission,
                publishers=publishers,
                pause=pause,
                broker=broker,
                process=self._process,
            )
            return DeliveryHandler(
                one,
                call,
                publisher=handler_publishers[id(one.codec)],
                settler=settler,
                pause=pause,
                process=self._process,
                lost_lately=lost_lately,
            )

        return Subscription(self._consuming, one, self._process, build_handler=build_handler)

    def _handler_call(self, one: Consumption) -> HandlerCall:
        """How a queue's handler is called. A plain function gets a pool of threads."""
        concurrency, threads = one.options.concurrency, None
        if one.signature.is_async:
            concurrency = None if concurrency is None or concurrency >= one.options.prefetch else concurrency
        else:
            concurrency = min(THREADS if concurrency is None else concurrency, one.options.prefetch)
            threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix=f"{THREADS_NAME} {one.plan.name}")
            self._threads.append(threads)
        call = build_call(
            one.handler,
            takes_message=one.signature.takes_message,
            is_async=one.signature.is_async,
            middleware=one.middleware,
            timeout_s=None if one.options.timeout_ms is None else one.options.timeout_ms / 1000,
            threads=threads,
        )
        return HandlerCall(call, concurrency)

    def _watch(self, subscription: Subscription) -> None:
        """Registers the subscription with telemetry, which asks it how many deliveries are unsettled."""
        watch = getattr(self._observer, "watch", None)
        if watch is not None:
            watch(subscription.queue, in_hand=lambda: subscription.unsettled, unready=lambda: subscription.unready)
