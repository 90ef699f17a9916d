"""The collector: moves dead letters from many queues into the store, one task a queue, and loses none on the way.

A queue has one collector at a time: a lease in the database, checked by every write, and an exclusive consumer (of
which quorum queues take no notice, so the queue is looked at first). Several instances share the queues by their
leases, and what a dead one had is free when its lease runs out. While the database or the broker is away nothing is
held, and everything is tried again after a pause.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from redrive.client import AccessRefused, Backoff, ChannelClosed, Client, NotFound, ResourceLocked
from redrive.core import SILENT, Observer, RedriveError
from redrive.deadletters.collect.batches import BATCH_BYTES, QueueBusy
from redrive.deadletters.collect.collect_loop import WHO, CollectEnd, CollectLoop, CollectLoopParts, CollectTally
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.held_leases import hold_lease
from redrive.deadletters.waits import idle
from redrive.stores import Store, acting_as
from redrive.topology import BrokerVersion

HANDS_BYTES_MAX = 256 * 1024 * 1024
"""What all hands together may hold, roughly, two of each queue: many queues get smaller hands."""
_HAND_BYTES_MIN = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """How patient a collector is."""

    at_once: int = 200
    """Queues at a time; those beyond take turns with idle ones."""
    lease_s: float = 60.0
    """How long after a collector's death another may go on with its queues."""
    idle_s: float = 20.0
    store_s: float = 30.0
    grace_s: float = 75.0
    stop_s: float = 15.0
    """How long hands may take to be ended when it is to stop; then they are given back."""
    retry_s_max: float = 30.0
    once_s: float = 90.0
    """With `once`: for how long a queue may fail before it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectReport:
    """What a run did, by dead-letter queue; `left` says why a queue was not collected to its end."""

    tallies: dict[str, CollectTally]
    left: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> CollectTally:
        """Of all queues."""
        total = CollectTally()
        for one in self.tallies.values():
            total.inserted += one.inserted
            total.came_back += one.came_back
            total.copies += one.copies
            total.known += one.known
            total.doubtful += one.doubtful
        return total


class Collector:
    """Collects some queues of one vhost. Safe to have many times, in many processes."""

    def __init__(
        self,
        client: Client,
        store: Store,
        sources: Sequence[Source],
        *,
        owner: str,
        clock_ms: Callable[[], int],
        random_bits: Callable[[], int],
        observer: Observer = SILENT,
        options: CollectOptions | None = None,
        pause_at: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._sources = [one for one in sources if not one.observe_only and one.vhost == client.target.vhost]
        self._owner = owner
        self._observer = observer
        self._options = CollectOptions() if options is None else options
        self._clock_ms = clock_ms
        self._places = asyncio.Semaphore(self._options.at_once)
        self._tallies = {one.dlq: CollectTally() for one in self._sources}
        self._left: dict[str, str] = {}
        share = HANDS_BYTES_MAX // (2 * max(1, min(len(self._sources), self._options.at_once)))
        self._parts = CollectLoopParts(
            client=client,
            store=store,
            clock_ms=clock_ms,
            random_bits=random_bits,
            observer=observer,
            hand_bytes=max(_HAND_BYTES_MIN, min(BATCH_BYTES, share)),
            idle_s=self._options.idle_s,
            store_s=self._options.store_s,
            grace_s=self._options.grace_s,
            pause_at=pause_at,
        )

    @property
    def queues(self) -> dict[str, str]:
        """The queues it is for, and why one is not collected at the moment; "" where it is."""
        return {name: self._left.get(name, "") for name in self._tallies}

    async def run(self, until: asyncio.Event | None = None, *, once: bool = False) -> CollectReport:
        """Collects until `until` is set; with `once` until every queue was seen empty, or was left for a reason.

        What can pass (the broker away, the database away, a queue missing, another collector) is waited for, and noted.
        """
        stop = asyncio.Event() if until is None else until
        with acting_as(""):  # a task has the context it was made in
            tasks = [
                asyncio.create_task(self._keep(one, stop, once=once), name=f"redrive collector of {one.dlq}")
                for one in self._sources
            ]
        stopping = asyncio.create_task(stop.wait())
        try:
            if tasks:
                everything = asyncio.ensure_future(asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))
                await asyncio.wait({everything, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not everything.done():
                    await asyncio.wait({everything}, timeout=self._options.stop_s)
                everything.cancel()
                for task in tasks:
                    if task.done():
                        task.result()  # what nobody expected goes up
        finally:
            stopping.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
        return CollectReport(tallies=self._tallies, left=self._left)

    async def _keep(self, source: Source, stop: asyncio.Event, *, once: bool) -> None:
        """One queue, for as long as it is to be collected."""
        backoff = Backoff(first_s=0.2, longest_s=self._options.retry_s_max)
        loop = asyncio.get_running_loop()
        failing_since_s: float | None = None
        told = ""
        while not stop.is_set():
            before = self._tallies[source.dlq].inserted
            reason, is_final = await self._attempt(source, stop, once=once)
            if reason is None:
                self._left.pop(source.dlq, None)
                if once or stop.is_set():
                    return
                backoff.reset()
                failing_since_s = None
                continue
            self._left[source.dlq] = reason
            if reason != told:
                self._observer.note("collector.waiting", queue=source.dlq, vhost=source.vhost, reason=reason)
                told = reason
            now_s = loop.time()
            if failing_since_s is None or self._tallies[source.dlq].inserted > before:
                failing_since_s = now_s
                backoff.reset()
            if once and (is_final or now_s - failing_since_s >= self._options.once_s):
                return
            await idle(stop, self._options.retry_s_max if is_final else backoff.next_s())

    async def _attempt(self, source: Source, stop: asyncio.Event, *, once: bool) -> tuple[str | None, bool]:
        """One lease's worth. Why it ended early, None if it did not; and whether only people can mend that."""
        async with self._places:
            try:
                return await self._collect(source, stop, once=once)
            except NotFound as error:
                # A classic queue whose node is down is not found either, but it comes back.
                is_missing = "no queue" in error.text
                return (f"there is no queue {source.dlq}" if is_missing else str(error)), is_missing
            except QueueBusy as error:
                return str(error), False
            except (AccessRefused, ResourceLocked) as error:
                return f"the broker does not let us have {source.dlq} alone: {error.text}", False
            except ChannelClosed as error:
                return f"the broker refuses {source.dlq}: {error}", False
            except RedriveError as error:
                self._observer.note("collector.failed", queue=source.dlq, vhost=source.vhost, reason=str(error))
                return str(error), False

    async def _collect(self, source: Source, stop: asyncio.Event, *, once: bool) -> tuple[str | None, bool]:
        danger = self._parts.dangers.get(source.dlq)
        if danger is not None:
            await self._store.batches.stop_queue(source.vhost, source.dlq, danger, now_ms=self._clock_ms(), who=WHO)
            del self._parts.dangers[source.dlq]
        stopped = await self._store.batches.stopped_queues()
        if (source.vhost, source.dlq) in stopped:
            return stopped[source.vhost, source.dlq], True
        version = BrokerVersion.of((await self._client.connection()).server_version)
        if source.effective_limit(version) == 0:
            return (
                f"its delivery limit makes RabbitMQ {version} drop a message of {source.dlq} the first time it is given"
                " back; set another limit, or none",
                True,
            )
        async with hold_lease(
            self._store,
            source.lease_name,
            self._owner,
            ttl_s=self._options.lease_s,
            patience_s=self._options.store_s,
            clock_ms=self._clock_ms,
            observer=self._observer,
        ) as held:
            if held is None:
                return "another collector has it", False
            # Once more under the lease: whoever had it may have stopped the queue, and given letters back to it.
            stopped = await self._store.batches.stopped_queues()
            if (source.vhost, source.dlq) in stopped:
                return stopped[source.vhost, source.dlq], True
            self._left.pop(source.dlq, None)  # whatever it waited for, it is collected now
            rounds = CollectLoop(self._parts, source, held, self._tallies[source.dlq])
            end = await rounds.run(stop=stop, once=once, gives_way=self._places.locked)
            if end is not CollectEnd.QUEUE_STOPPED:
                return None, False
            return (await self._store.batches.stopped_queues()).get((source.vhost, source.dlq)), True
