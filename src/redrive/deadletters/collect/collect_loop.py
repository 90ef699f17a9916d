"""The collect loop of one queue under one lease: batches become rows, until the queue is empty or somebody stops it.

    announced  [ taken → stored → acked → barrier → owned ] …  withdrawn

`announced`: the store knows that batches are about to be taken, and how many messages they can hold. `stored`: the rows
and the record of the batch are committed. `acked`, `barrier`: one ack for the whole batch, and the broker has read it.
`owned`: the record of the batch is removed, and the rows are ours alone. While one full batch goes from `taken` to
`owned`, the next is prefetched (`batch_prefetch`), unless batches of a crash are open: those are matched with one batch
at a time. `reconciliation` says what a crash between any two steps leaves behind. Whatever fails, the batches are
requeued and the error is raised: the next loop begins by reading the open batches in the store.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from redrive.client import Client
from redrive.core import NULL_OBSERVER, Observer
from redrive.deadletters.collect.arrivals import BatchExplainer, deliveries_so_far
from redrive.deadletters.collect.batch_prefetch import BatchPrefetch, TakenBatch
from redrive.deadletters.collect.batches import BATCH_BYTES, BatchLost, BatchTaker, CollectBatch
from redrive.deadletters.collect.reconciliation import (
    BatchContext,
    DeliveryIdentity,
    OpenBatch,
    Reconciled,
    reconcile,
    size_needed,
    without_repeats,
)
from redrive.deadletters.collect.sources import Source, resume_command
from redrive.deadletters.held_leases import HeldLease
from redrive.records import Arrival, make_id
from redrive.stores import BatchResult, Store, StoredBatch
from redrive.topology import BrokerVersion, QueueType

LIMIT_MARGIN = 4
"""A message this close to its delivery limit stops the queue: a collector that crashes over it must not destroy it."""
WHO = "collector"
"""In the audit, when the collector stops a queue by itself."""
ACK_ON_DISK_S = 2.0
"""For how long after its barrier an ack may not be on a classic queue's disk."""
_LOW_LIMIT = 2
_LOST_BATCH = re.compile(r".+-hand-(\d+)")
"""The id of an announcement says how many messages it stands for. Databases have this form: it must not change."""
_EXPLAINED_AT_ONCE = 200
_PREFETCH_LIMIT = 65_535  # AMQP's own
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """How patient a collector is."""

    at_once: int = 200
    """Queues at a time; further ones take turns with idle ones."""
    lease_s: float = 60.0
    """How long after a collector's death another may go on with its queues."""
    idle_s: float = 20.0
    """How long a consumer waits for a first message before the loop looks around."""
    store_s: float = 30.0
    """How long a transaction may take; a batch is not held for longer."""
    grace_s: float = 75.0
    """How long a broker may take to notice that a collector died: two heartbeats and a little."""
    stop_s: float = 15.0
    """How long batches may take to be finished once it is to stop; then they are requeued."""
    retry_s_max: float = 30.0
    once_s: float = 90.0
    """With `once`: for how long a queue may fail before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorParts:
    """What a collector works with.

    `owner` names it among all collectors. `random_bits` is for ids. `pause_at` is awaited at every checkpoint, for
    tests that kill the process there.
    """

    client: Client
    store: Store
    owner: str
    clock_ms: Callable[[], int]
    random_bits: Callable[[], int]
    observer: Observer = NULL_OBSERVER
    options: CollectOptions = field(default_factory=CollectOptions)
    pause_at: Callable[[str], Awaitable[None]] | None = None


class CollectEnd(Enum):
    """How the collect loop of a queue ended."""

    ASKED = "asked"
    DRAINED = "drained"
    GAVE_WAY = "gave way"
    QUEUE_STOPPED = "queue stopped"


@dataclass(slots=True)
class CollectTally:
    """What became of the messages of a queue."""

    inserted: int = 0
    came_back: int = 0
    copies: int = 0
    known: int = 0
    """Stored before a crash, redelivered, and only acked."""
    doubtful: int = 0
    """Inserted, though nobody can know whether they were stored before."""


class CollectLoop:
    """Collects one queue, under one lease.

    `unstopped` has the queues that must be stopped and could not be, because there was no database to write it into,
    with the reason.
    """

    def __init__(
        self,
        parts: CollectorParts,
        source: Source,
        held: HeldLease,
        tally: CollectTally,
        *,
        unstopped: dict[str, str],
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._parts = parts
        self._source = source
        self._held = held
        self._tally = tally
        self._unstopped = unstopped
        self._taker = BatchTaker(parts.client, source.dlq, batch_bytes=batch_bytes)
        self._open_batches: tuple[OpenBatch, ...] = ()
        self._announced: OpenBatch | None = None
        self._is_first = True
        self._version = BrokerVersion.V3_10
        self._acked: deque[tuple[str, float]] = deque()
        """Batches whose ack may not be on the broker's disk yet, and when they were acked."""
        self._connection: object = None
        self._prefetch = BatchPrefetch(
            self._taker,
            lambda: BatchExplainer(
                source, new_id=self._new_id, clock_ms=parts.clock_ms, group_key=parts.store.group_key
            ),
        )

    async def run(self, *, stop: asyncio.Event, once: bool, gives_way: Callable[[], bool]) -> CollectEnd:
        """Collects until `stop`, until the queue was seen empty (`once`), or, if idle, until other queues wait.

        Raises `LeaseLost`, `StoreUnavailable`, `BatchLost`, `QueueBusy`, and what the broker refuses with.
        """
        parts = self._parts
        try:
            self._version = BrokerVersion.of((await parts.client.connection()).server_version)
            await self._taker.check_alone()
            await self._read_open_batches()
            end = await self._collect_until_end(stop=stop, once=once, gives_way=gives_way)
            await self._prefetch.drop()
            await self._own_acked(all_of_them=True)
            await self._withdraw()
            return end
        finally:
            await self._prefetch.drop()
            await self._taker.close()

    async def _collect_until_end(self, *, stop: asyncio.Event, once: bool, gives_way: Callable[[], bool]) -> CollectEnd:
        # A prefetched batch is stored even if the loop is to stop.
        while not stop.is_set() or self._prefetch.is_active:
            # What a quorum queue says without a leader is not to be trusted: there a consumer must be tried first.
            is_trusted = self._source.queue_type == QueueType.CLASSIC and not self._prefetch.is_active
            if once and is_trusted and not self._open_batches and await self._taker.is_drained():
                return CollectEnd.DRAINED
            end = await self._step(stop=stop, once=once, is_last=not once and gives_way())
            if end is not None:
                return end
            if not self._prefetch.is_active and not once and gives_way():
                return CollectEnd.GAVE_WAY
        return CollectEnd.ASKED

    async def _read_open_batches(self) -> None:
        """Reads what is open in the store. What was acked before on another connection is among it."""
        self._connection = await self._parts.client.connection()
        found = await self._parts.store.batches.open_batches(self._source.vhost, self._source.dlq)
        ours = None if self._announced is None else self._announced.id
        self._open_batches = without_repeats([_open_batch(one) for one in found if one.id != ours])
        self._acked.clear()
        self._is_first = True

    async def _has_reconnected(self) -> bool:
        """Whether the broker may have been restarted since something was acked."""
        return bool(self._acked) and await self._parts.client.connection() is not self._connection

    async def _own_acked(self, *, all_of_them: bool = False) -> None:
        """Removes the records of batches whose ack is on the broker's disk by now; or waits for that, for all of them.

        A classic queue answers before it has written an ack, and a broker that is killed then redelivers the messages
        (measured on 3.10, 4.0 and 4.3: within a second). Until then the batch stays open, and they are known again.
        """
        loop = asyncio.get_running_loop()
        on_disk_s = 0.0 if self._source.queue_type == QueueType.QUORUM else ACK_ON_DISK_S
        while self._acked:
            batch_id, at_s = self._acked[0]
            wait_s = at_s + on_disk_s - loop.time()
            if wait_s > 0 and not all_of_them:
                return
            await asyncio.sleep(max(0.0, wait_s))
            if await self._has_reconnected():
                return  # left open, for the loop that reads it next
            await self._bounded(self._parts.store.batches.close(batch_id))
            self._acked.popleft()

    async def _step(self, *, stop: asyncio.Event, once: bool, is_last: bool) -> CollectEnd | None:
        """Takes a batch and stores it, or looks around if there is none. None: the loop goes on."""
        if await self._has_reconnected():
            if self._prefetch.is_active:
                await self._prefetch.drop()
                self._announced = None  # it stays open: the prefetched messages come again as those of any lost batch
            await self._read_open_batches()
        if await self._stops_for_lost_batches():
            return CollectEnd.QUEUE_STOPPED
        needed = min(size_needed(self._open_batches) + 1, _PREFETCH_LIMIT) if self._open_batches else 0
        if not self._prefetch.is_active:
            await self._announce(max(needed, self._taker.prefetch))
        # Where something is open, the queue is looked at again soon: the record may be removed then.
        options = self._parts.options
        idle_s = 0.5 if once else min(options.idle_s, 5.0) if self._open_batches else options.idle_s
        taken = await self._prefetch.take(at_least=needed, idle_s=idle_s, stop=stop)
        if await self._has_reconnected():
            await taken.batch.requeue()
            self._announced = None
            return None
        if len(taken.batch):
            next_stop = None if is_last or stop.is_set() else stop
            return CollectEnd.QUEUE_STOPPED if await self._collect_batch(taken, needed, next_stop) else None
        await taken.batch.close()
        is_drained = await self._taker.is_drained()
        if is_drained:
            await self._close_open_batches(needed)
        if (self._source.vhost, self._source.dlq) in await self._parts.store.batches.stopped_queues():
            return CollectEnd.QUEUE_STOPPED
        if stop.is_set() or (once and is_drained):
            return CollectEnd.ASKED if stop.is_set() else CollectEnd.DRAINED
        return None

    async def _stops_for_lost_batches(self) -> bool:
        """A batch that was taken and never stored was one delivery, even if no collector lived to see its count."""
        limit = self._source.effective_limit(self._version)
        lost = [batch.id for batch in self._open_batches if batch.is_lost]
        # Beside a stored batch the last lost one may have been announced and empty. With a low limit it counts anyway.
        is_beside = len(lost) < len(self._open_batches)
        count = len(lost) - (is_beside and limit is not None and limit > _LOW_LIMIT)
        if limit is None or count < max(1, limit - LIMIT_MARGIN):
            return False
        await self._stop_queue(
            f"collectors of {self._source.dlq} died {len(lost)} times while they held messages, and after {limit}"
            " deliveries RabbitMQ drops them; find out why collecting fails, then go on with: "
            f"{resume_command(self._source.dlq)}"
        )
        for id in lost:
            await self._bounded(self._parts.store.batches.close(id))
        return True

    async def _stop_queue(self, reason: str) -> None:
        source = self._source
        self._unstopped[source.dlq] = reason  # if it can't be written now, it is before anything is taken again
        stopping = self._parts.store.batches.stop_queue(
            source.vhost, source.dlq, reason, now_ms=self._parts.clock_ms(), who=WHO
        )
        await self._bounded(stopping)
        del self._unstopped[source.dlq]
        self._note("collector.stopped", reason=reason)

    async def _collect_batch(self, taken: TakenBatch, needed: int, next_stop: asyncio.Event | None) -> bool:
        """From `taken` to `owned`; true if the queue is stopped with it.

        With `next_stop` the next batch may be prefetched meanwhile, until that is set.
        """
        batch, explainer = taken.batch, taken.explainer
        try:
            await self._checkpoint("taken")
            danger = self._danger(batch)
            if danger is not None:
                # Stopped first, stored then: if this batch kills us, no collector takes it again.
                await self._stop_queue(danger)
            elif batch.is_full and not self._open_batches and next_stop is not None:
                await self._announce(len(batch) + self._taker.prefetch)
                self._prefetch.begin(next_stop)
            is_drained = bool(self._open_batches) and await self._taker.is_drained()
            identities = [explainer.identity(one) for one in batch.deliveries]
            decided = reconcile(identities, self._open_batches, self._context(batch, needed, is_drained=is_drained))
            batch_id = await self._store(taken, identities, decided)
            await self._checkpoint("stored")
            batch.ack()
            await asyncio.sleep(0)  # acks are sent at the end of the event loop's turn
            await self._checkpoint("acked")
            await batch.wait_settled()
            await self._checkpoint("barrier")
        except BaseException:
            try:
                # First: it would be delivered what this batch requeues, and that counts as a second delivery.
                await self._prefetch.drop()
            finally:
                await batch.requeue()
            raise
        await batch.close()
        self._acked.append((batch_id, asyncio.get_running_loop().time()))
        await self._own_acked()
        await self._checkpoint("owned")
        self._is_first = False
        return danger is not None

    async def _store(self, taken: TakenBatch, identities: Sequence[DeliveryIdentity], decided: Reconciled) -> str:
        """tx 1; and the rest of open batches of which a part came again."""
        known: list[tuple[bytes, str]] = []
        arrivals: list[Arrival] = []
        for place, (delivery, identity) in enumerate(zip(taken.batch.deliveries, identities, strict=True)):
            letter_id = decided.known[place]
            if letter_id is not None:
                known.append((identity.fingerprint, letter_id))
                continue
            arrivals.append(taken.explainer.arrival(delivery, identity, twin_of=decided.doubtful.get(place)))
            if place % _EXPLAINED_AT_ONCE == 0:
                await asyncio.sleep(0)  # lets heartbeats and other queues run
        taken.explainer.forget()
        stored = await self._write(arrivals, known, decided.closed, self._new_id())
        left: list[OpenBatch] = []
        for batch in decided.left:
            if batch.id in decided.shrunk:
                rest = await self._write((), batch.entries, [batch.id], self._new_id())
                batch = replace(batch, id=rest.batch_id)
            left.append(batch)
        self._open_batches = tuple(left)
        self._count(stored, known=len(known), doubtful=len(decided.doubtful))
        return stored.batch_id

    async def _announce(self, size_max: int) -> None:
        """Writes into the store that batches of so many messages together may be lost from now on."""
        if self._announced is not None and self._announced.size_max >= size_max:
            return
        id = f"{self._new_id()}-hand-{size_max}"
        replaces = [] if self._announced is None else [self._announced.id]
        await self._write((), (), replaces, id)
        self._announced = OpenBatch(id=id, entries=(), at_ms=self._parts.clock_ms(), size_max=size_max)

    async def _withdraw(self) -> None:
        """Removes the announcement: no batch is held, and none is taken."""
        if self._announced is not None:
            await self._bounded(self._parts.store.batches.close(self._announced.id))
            self._announced = None

    async def _close_open_batches(self, needed: int) -> None:
        """The queue is empty: removes the records of open batches that can't come again."""
        decided = reconcile([], self._open_batches, self._context(None, needed, is_drained=True))
        for id in decided.closed:
            await self._bounded(self._parts.store.batches.close(id))
        self._open_batches = decided.left

    async def _write(
        self,
        arrivals: Sequence[Arrival],
        known: Sequence[tuple[bytes, str]],
        replaces: Sequence[str],
        batch_id: str,
    ) -> BatchResult:
        return await self._bounded(
            self._parts.store.batches.store(
                arrivals,
                lease=self._held.lease,
                known=known,
                replaces=replaces,
                batch_id=batch_id,
                now_ms=self._parts.clock_ms(),
                queue=(self._source.vhost, self._source.dlq),
            )
        )

    def _context(self, batch: CollectBatch | None, needed: int, *, is_drained: bool) -> BatchContext:
        return BatchContext(
            requeues_to_front=self._source.requeues_to_front(self._version),
            is_complete=is_drained or (batch is not None and len(batch) >= needed),
            is_drained=is_drained,
            is_first=self._is_first,
            now_ms=self._parts.clock_ms(),
            grace_ms=round(self._parts.options.grace_s * 1000),
        )

    def _danger(self, batch: CollectBatch) -> str | None:
        """Why this queue must be left alone from now on, None if it need not."""
        limit = self._source.effective_limit(self._version)
        if limit is None:
            return None
        counts = [deliveries_so_far(one) for one in batch.deliveries if one.redelivered]
        # The broker drops a message above its limit. A higher count was written by a publisher, and stays on a message
        # until the broker writes its own over it.
        most = max((count for count in counts if count <= limit), default=0)
        if most < max(1, limit - LIMIT_MARGIN):
            return None
        return (
            f"a message in {self._source.dlq} was requeued {most} times, and above {limit} RabbitMQ drops it; find out"
            f" why collecting fails, then go on with: {resume_command(self._source.dlq)}"
        )

    def _count(self, stored: BatchResult, *, known: int, doubtful: int) -> None:
        tally = self._tally
        tally.inserted += len(stored.inserted)
        tally.came_back += len(stored.came_back)
        tally.copies += len(stored.copies)
        tally.known += known
        tally.doubtful += doubtful
        self._note("collector.stored", count=len(stored.inserted), came_back=len(stored.came_back), known=known)
        if stored.came_back:
            self._note("collector.came_back", count=len(stored.came_back))
        if doubtful:
            self._note("collector.doubtful", count=doubtful)

    async def _checkpoint(self, name: str) -> None:
        if self._parts.pause_at is not None:
            await self._parts.pause_at(name)

    async def _bounded(self, call: Awaitable[_Result]) -> _Result:
        store_s = self._parts.options.store_s
        try:
            async with asyncio.timeout(store_s):
                return await call
        except TimeoutError:
            raise BatchLost(f"the database did not answer in {store_s:.0f} s") from None

    def _new_id(self) -> str:
        return make_id(self._parts.clock_ms(), self._parts.random_bits())

    def _note(self, event: str, **fields: object) -> None:
        self._parts.observer.note(event, queue=self._source.dlq, vhost=self._source.vhost, **fields)


def _open_batch(batch: StoredBatch) -> OpenBatch:
    lost = _LOST_BATCH.fullmatch(batch.id)
    size_max = 0 if lost is None or batch.entries else int(lost[1])
    return OpenBatch(id=batch.id, entries=batch.entries, at_ms=batch.at_ms, size_max=size_max)
