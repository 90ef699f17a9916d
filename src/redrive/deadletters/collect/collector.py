"""The collector: moves dead letters from many queues into the store, one task per queue, and loses none on the way.

A queue has one collector at a time: a lease in the database, which every write checks, and an exclusive consumer.
Quorum queues ignore `exclusive`, so the collector first looks whether the queue has other consumers. Several instances
share the queues by their leases, and the queues of a dead one are free when its leases run out. While the database or
the broker is away no message is held, and everything is tried again after a pause.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.client import AccessRefused, ChannelClosed, NotFound, ReconnectBackoff, ResourceLocked
from redrive.core import RedriveError
from redrive.deadletters.collect.batches import BATCH_BYTES, QueueBusy
from redrive.deadletters.collect.collect_loop import WHO, CollectEnd, CollectLoop, CollectorParts, CollectTally
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.held_leases import LeaseHolder
from redrive.deadletters.stop_waits import wait_stop
from redrive.stores import acting_as
from redrive.topology import BrokerVersion

BATCHES_BYTES_MAX = 256 * 1024 * 1024
"""What all batches together may hold, roughly, two of each queue: many queues get smaller batches."""
_BATCH_BYTES_MIN = 1024 * 1024


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
    """Collects some queues of one vhost. Many may run at once, in many processes."""

    def __init__(self, parts: CollectorParts, sources: Sequence[Source]) -> None:
        self._parts = parts
        self._client = parts.client
        self._store = parts.store
        self._options = parts.options
        self._sources = [one for one in sources if not one.observe_only and one.vhost == parts.client.target.vhost]
        self._slots = asyncio.Semaphore(self._options.at_once)
        self._tallies = {one.dlq: CollectTally() for one in self._sources}
        self._left: dict[str, str] = {}
        self._unstopped: dict[str, str] = {}
        share = BATCHES_BYTES_MAX // (2 * max(1, min(len(self._sources), self._options.at_once)))
        self._batch_bytes = max(_BATCH_BYTES_MIN, min(BATCH_BYTES, share))
        self._leases = LeaseHolder(
            store=parts.store,
            owner=parts.owner,
            ttl_s=self._options.lease_s,
            patience_s=self._options.store_s,
            clock_ms=parts.clock_ms,
            observer=parts.observer,
        )

    @property
    def queues(self) -> dict[str, str]:
        """Its queues, each with why it is not collected at the moment; "" where it is."""
        return {name: self._left.get(name, "") for name in self._tallies}

    async def run(self, until: asyncio.Event | None = None, *, once: bool = False) -> CollectReport:
        """Collects until `until` is set; with `once` until every queue was seen empty, or was given up for a reason.

        What can pass (the broker away, the database away, a queue missing, another collector) is waited for, and noted.
        """
        stop = asyncio.Event() if until is None else until
        with acting_as(""):  # a task has the context it was made in
            tasks = [
                asyncio.create_task(self._keep_collecting(one, stop, once=once), name=f"redrive collector of {one.dlq}")
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
                        task.result()  # raises what nobody expected
        finally:
            stopping.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, stopping, return_exceptions=True)
        return CollectReport(tallies=self._tallies, left=self._left)

    async def _keep_collecting(self, source: Source, stop: asyncio.Event, *, once: bool) -> None:
        """One queue, for as long as it is to be collected."""
        backoff = ReconnectBackoff(first_s=0.2, longest_s=self._options.retry_s_max)
        loop = asyncio.get_running_loop()
        failing_since_s: float | None = None
        noted = ""
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
            if reason != noted:
                self._note("collector.waiting", source, reason)
                noted = reason
            now_s = loop.time()
            if failing_since_s is None or self._tallies[source.dlq].inserted > before:
                failing_since_s = now_s
                backoff.reset()
            if once and (is_final or now_s - failing_since_s >= self._options.once_s):
                return
            await wait_stop(stop, self._options.retry_s_max if is_final else backoff.next_s())

    async def _attempt(self, source: Source, stop: asyncio.Event, *, once: bool) -> tuple[str | None, bool]:
        """Collects under one lease. Returns why it ended early, None if it did not; and whether only people can mend
        that."""
        async with self._slots:
            try:
                return await self._collect(source, stop, once=once)
            except NotFound as error:
                # A classic queue whose node is down is not found either, but it comes back.
                is_missing = "no queue" in error.text
                return (f"there is no queue {source.dlq}" if is_missing else str(error)), is_missing
            except QueueBusy as error:
                return str(error), False
            except (AccessRefused, ResourceLocked) as error:
                return f"the broker does not let us consume {source.dlq} alone: {error.text}", False
            except ChannelClosed as error:
                return f"the broker refuses {source.dlq}: {error}", False
            except RedriveError as error:
                self._note("collector.failed", source, str(error))
                return str(error), False

    async def _collect(self, source: Source, stop: asyncio.Event, *, once: bool) -> tuple[str | None, bool]:
        reason = self._unstopped.get(source.dlq)
        if reason is not None:
            now_ms = self._parts.clock_ms()
            await self._store.batches.stop_queue(source.vhost, source.dlq, reason, now_ms=now_ms, who=WHO)
            del self._unstopped[source.dlq]
        stopped = await self._store.batches.stopped_queues()
        if (source.vhost, source.dlq) in stopped:
            return stopped[source.vhost, source.dlq], True
        version = BrokerVersion.of((await self._client.connection()).server_version)
        if source.effective_limit(version) == 0:
            return (
                f"its delivery limit makes RabbitMQ {version} drop a message of {source.dlq} the first time it is"
                " requeued; set another limit, or none",
                True,
            )
        async with self._leases.hold(source.lease_name) as held:
            if held is None:
                return "another collector has it", False
            # Once more under the lease: its last holder may have stopped the queue, and restored letters to it.
            stopped = await self._store.batches.stopped_queues()
            if (source.vhost, source.dlq) in stopped:
                return stopped[source.vhost, source.dlq], True
            self._left.pop(source.dlq, None)  # whatever it waited for, it is collected now
            tally = self._tallies[source.dlq]
            loop = CollectLoop(
                self._parts, source, held, tally, unstopped=self._unstopped, batch_bytes=self._batch_bytes
            )
            end = await loop.run(stop=stop, once=once, gives_way=self._slots.locked)
            if end is not CollectEnd.QUEUE_STOPPED:
                return None, False
            return (await self._store.batches.stopped_queues()).get((source.vhost, source.dlq)), True

    def _note(self, event: str, source: Source, reason: str) -> None:
        self._parts.observer.note(event, queue=source.dlq, vhost=source.vhost, reason=reason)
