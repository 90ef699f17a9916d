"""The rounds of one queue under one lease: hands become rows, until there are no more or somebody stops it.

    announced  [ taken → stored → acked → barrier → owned ] …  withdrawn

`announced`: the store knows that hands are about to be taken, and how much they can hold. `stored`: the hand's rows and
its batch are committed. `acked`, `barrier`: one ack for all of the hand, and the broker was seen to have read it.
`owned`: the batch is gone, the rows are ours alone. While one full hand goes from `taken` to `owned` the next is taken
(`ahead`), unless batches of a crash are open: those are met one hand at a time. What a crash between any two steps
leaves behind is in `reconciling`. Whatever fails inside a round, the hands are given back and the error goes up: the
next rounds begin by reading what is open in the store.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from redrive.client import Client
from redrive.core import Observer
from redrive.deadletters.collect.arrivals import BatchExplainer, deliveries_so_far
from redrive.deadletters.collect.batch_prefetch import BatchPrefetch, TakenBatch
from redrive.deadletters.collect.batches import BATCH_BYTES, BatchLost, BatchTaker, CollectBatch
from redrive.deadletters.collect.reconciliation import (
    Circumstances,
    DeliveryIdentity,
    OpenBatch,
    Reconciled,
    hand_needed,
    reconcile,
    without_repeated,
)
from redrive.deadletters.collect.sources import Source, resume_command
from redrive.deadletters.held_leases import HeldLease
from redrive.records import Arrival, make_id
from redrive.stores import BatchResult, Store, StoredBatch
from redrive.topology import BrokerVersion, QueueType

LIMIT_MARGIN = 4
"""So many deliveries before its limit a message stops the queue: who crashes over it must not destroy it."""
WHO = "collector"
"""In the audit, of a queue that it stops by itself."""
ACK_ON_DISK_S = 2.0
"""How long after its barrier an ack may not be on a classic queue's disk."""
_LEAST_DARED = 2
_LOST_HAND = re.compile(r".+-hand-(\d+)")
_EXPLAINED_AT_ONCE = 200
_PREFETCH_LIMIT = 65_535  # AMQP's own
_Result = TypeVar("_Result")


class CollectEnd(Enum):
    """How the rounds of a queue ended."""

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
    """Stored before a crash, met again and only acked."""
    doubtful: int = 0
    """Inserted, though nobody can know whether they were stored before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectLoopParts:
    """What a collect loop works with. `random_bits` is for ids; `pause_at` is awaited at every checkpoint, for tests
    that kill the process there."""

    client: Client
    store: Store
    clock_ms: Callable[[], int]
    random_bits: Callable[[], int]
    observer: Observer
    hand_bytes: int = BATCH_BYTES
    idle_s: float = 20.0
    """How long a consumer waits for a first message before it looks around."""
    store_s: float = 30.0
    """How long a transaction may take; a hand is not held for longer."""
    grace_s: float = 75.0
    """How long a broker may take to notice that a collector died: two heartbeats and a little."""
    pause_at: Callable[[str], Awaitable[None]] | None = None
    dangers: dict[str, str] = field(default_factory=dict)
    """Queues that must be stopped and could not be: no database to write it into."""


class CollectLoop:
    """Collects one queue, under one lease."""

    def __init__(self, parts: CollectLoopParts, source: Source, held: HeldLease, tally: CollectTally) -> None:
        self._parts = parts
        self._source = source
        self._held = held
        self._tally = tally
        self._taker = BatchTaker(parts.client, source.dlq, hand_bytes=parts.hand_bytes)
        self._batches: tuple[OpenBatch, ...] = ()
        self._announced: OpenBatch | None = None
        self._is_first = True
        self._version = BrokerVersion.V3_10
        self._acked: deque[tuple[str, float]] = deque()
        """Batches whose ack may not be on the broker's disk yet, and when they were acked."""
        self._connection: object = None
        self._ahead = BatchPrefetch(
            self._taker,
            lambda: BatchExplainer(
                source, new_id=self._new_id, clock_ms=parts.clock_ms, group_key=parts.store.group_key
            ),
        )

    async def run(self, *, stop: asyncio.Event, once: bool, gives_way: Callable[[], bool]) -> CollectEnd:
        """CollectLoop until `stop`, until the queue was seen empty (`once`), or, if idle, until others want our place.

        Raises `LeaseLost`, `StoreUnavailable`, `BatchLost`, `QueueBusy`, and what the broker refuses with.
        """
        parts = self._parts
        try:
            self._version = BrokerVersion.of((await parts.client.connection()).server_version)
            await self._taker.check_alone()
            await self._read_open()
            end = await self._until_an_end(stop=stop, once=once, gives_way=gives_way)
            await self._ahead.drop()
            await self._own_acked(all_of_them=True)
            await self._withdraw()
            return end
        finally:
            await self._ahead.drop()
            await self._taker.close()

    async def _until_an_end(self, *, stop: asyncio.Event, once: bool, gives_way: Callable[[], bool]) -> CollectEnd:
        # What was taken ahead is stored, also if it is to stop.
        while not stop.is_set() or self._ahead.is_taking:
            # What a quorum queue says without a leader is not to be trusted: there a consumer must be tried first.
            is_trusted = self._source.queue_type == QueueType.CLASSIC and not self._ahead.is_taking
            if once and is_trusted and not self._batches and await self._taker.is_drained():
                return CollectEnd.DRAINED
            end = await self._turn(stop=stop, once=once, is_last=not once and gives_way())
            if end is not None:
                return end
            if not self._ahead.is_taking and not once and gives_way():
                return CollectEnd.GAVE_WAY
        return CollectEnd.ASKED

    async def _read_open(self) -> None:
        """What is open in the store. Whatever was acked before on another connection is among it."""
        self._connection = await self._parts.client.connection()
        found = await self._parts.store.batches.open_batches(self._source.vhost, self._source.dlq)
        ours = None if self._announced is None else self._announced.id
        self._batches = without_repeated([_open_batch(one) for one in found if one.id != ours])
        self._acked.clear()
        self._is_first = True

    async def _is_elsewhere(self) -> bool:
        """Whether the broker may have been restarted since something was acked."""
        return bool(self._acked) and await self._parts.client.connection() is not self._connection

    async def _own_acked(self, *, all_of_them: bool = False) -> None:
        """Owns the batches whose ack is on the broker's disk by now; or waits for that, for all of them.

        A classic queue answers before it has written an ack, and a broker that is killed then gives the messages back
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
            if await self._is_elsewhere():
                return  # left open, for whoever reads it
            await self._bounded(self._parts.store.batches.close(batch_id))
            self._acked.popleft()

    async def _turn(self, *, stop: asyncio.Event, once: bool, is_last: bool) -> CollectEnd | None:
        if await self._is_elsewhere():
            if self._ahead.is_taking:
                await self._ahead.drop()
                self._announced = None  # it stays open: what was taken ahead comes back like any hand that was lost
            await self._read_open()
        if await self._stops_for_lost_hands():
            return CollectEnd.QUEUE_STOPPED
        needed = min(hand_needed(self._batches) + 1, _PREFETCH_LIMIT) if self._batches else 0
        if not self._ahead.is_taking:
            await self._announce(max(needed, self._taker.prefetch))
        # Where something is open, the queue is looked at again soon: it may be forgotten then.
        idle_s = 0.5 if once else min(self._parts.idle_s, 5.0) if self._batches else self._parts.idle_s
        taken = await self._ahead.take(at_least=needed, idle_s=idle_s, stop=stop)
        if await self._is_elsewhere():
            await taken.hand.give_back()
            self._announced = None
            return None
        if len(taken.hand):
            next_stop = None if is_last or stop.is_set() else stop
            return CollectEnd.QUEUE_STOPPED if await self._round(taken, needed, next_stop) else None
        await taken.hand.close()
        is_drained = await self._taker.is_drained()
        if is_drained:
            await self._look_at_open(needed)
        if (self._source.vhost, self._source.dlq) in await self._parts.store.batches.stopped_queues():
            return CollectEnd.QUEUE_STOPPED
        if stop.is_set() or (once and is_drained):
            return CollectEnd.ASKED if stop.is_set() else CollectEnd.DRAINED
        return None

    async def _stops_for_lost_hands(self) -> bool:
        """A hand that was taken and never stored was one delivery, also if nobody lived to see its count."""
        limit = self._source.effective_limit(self._version)
        lost = [batch.id for batch in self._batches if batch.is_lost_hand]
        # Beside a batch the last one may have been announced and empty; but the less is left, the less is dared.
        is_beside = len(lost) < len(self._batches)
        count = len(lost) - (is_beside and limit is not None and limit > _LEAST_DARED)
        if limit is None or count < max(1, limit - LIMIT_MARGIN):
            return False
        await self._stop_queue(
            f"collectors of {self._source.dlq} died {len(lost)} times with messages in hand, and after {limit}"
            " deliveries RabbitMQ drops them; find out why collecting fails, then go on with: "
            f"{resume_command(self._source.dlq)}"
        )
        for id in lost:
            await self._bounded(self._parts.store.batches.close(id))
        return True

    async def _stop_queue(self, reason: str) -> None:
        source, dangers = self._source, self._parts.dangers
        dangers[source.dlq] = reason  # if it can't be written now, it is before anything is taken again
        stopping = self._parts.store.batches.stop_queue(
            source.vhost, source.dlq, reason, now_ms=self._parts.clock_ms(), who=WHO
        )
        await self._bounded(stopping)
        del dangers[source.dlq]
        self._note("collector.stopped", reason=reason)

    async def _round(self, taken: TakenBatch, needed: int, next_stop: asyncio.Event | None) -> bool:
        """From taken to owned; true if the queue is stopped with it. The next hand may be taken meanwhile if there is a
        `next_stop` that ends that."""
        hand, explaining = taken.hand, taken.explaining
        try:
            await self._checkpoint("taken")
            danger = self._danger(hand)
            if danger is not None:
                # First said, then done: if it is this hand that kills us, nobody takes it again.
                await self._stop_queue(danger)
            elif hand.is_full and not self._batches and next_stop is not None:
                await self._announce(len(hand) + self._taker.prefetch)
                self._ahead.begin(next_stop)
            is_drained = bool(self._batches) and await self._taker.is_drained()
            helds = [explaining.held(one) for one in hand.deliveries]
            decided = reconcile(helds, self._batches, self._circumstances(hand, needed, is_drained=is_drained))
            batch_id = await self._store(taken, helds, decided)
            await self._checkpoint("stored")
            hand.ack()
            await asyncio.sleep(0)  # acks go out at the end of the loop's turn
            await self._checkpoint("acked")
            await hand.wait_settled()
            await self._checkpoint("barrier")
        except BaseException:
            try:
                await self._ahead.drop()  # first: it would catch what this hand gives back, and that counts twice
            finally:
                await hand.give_back()
            raise
        await hand.close()
        self._acked.append((batch_id, asyncio.get_running_loop().time()))
        await self._own_acked()
        await self._checkpoint("owned")
        self._is_first = False
        return danger is not None

    async def _store(self, taken: TakenBatch, helds: Sequence[DeliveryIdentity], decided: Reconciled) -> str:
        """tx 1; and the rest of batches that came back in part."""
        known: list[tuple[bytes, str]] = []
        arrivals: list[Arrival] = []
        for place, (delivery, held) in enumerate(zip(taken.hand.deliveries, helds, strict=True)):
            letter_id = decided.known[place]
            if letter_id is not None:
                known.append((held.fingerprint, letter_id))
                continue
            arrivals.append(taken.explaining.arrival(delivery, held, twin_of=decided.doubtful.get(place)))
            if place % _EXPLAINED_AT_ONCE == 0:
                await asyncio.sleep(0)  # heartbeats and other queues have their turn
        taken.explaining.forget()
        stored = await self._write(arrivals, known, decided.settled, self._new_id())
        left: list[OpenBatch] = []
        for batch in decided.left:
            if batch.id in decided.shrunk:
                rest = await self._write((), batch.entries, [batch.id], self._new_id())
                batch = replace(batch, id=rest.batch_id)
            left.append(batch)
        self._batches = tuple(left)
        self._count(stored, known=len(known), doubtful=len(decided.doubtful))
        return stored.batch_id

    async def _announce(self, hand_max: int) -> None:
        """Hands of so many together may be lost from now on, and the store knows."""
        if self._announced is not None and self._announced.hand_max >= hand_max:
            return
        id = f"{self._new_id()}-hand-{hand_max}"
        replaces = [] if self._announced is None else [self._announced.id]
        await self._write((), (), replaces, id)
        self._announced = OpenBatch(id=id, entries=(), at_ms=self._parts.clock_ms(), hand_max=hand_max)

    async def _withdraw(self) -> None:
        """No hand is out, and none is taken."""
        if self._announced is not None:
            await self._bounded(self._parts.store.batches.close(self._announced.id))
            self._announced = None

    async def _look_at_open(self, needed: int) -> None:
        """The queue is empty: what of the open batches can be forgotten."""
        decided = reconcile([], self._batches, self._circumstances(None, needed, is_drained=True))
        for id in decided.settled:
            await self._bounded(self._parts.store.batches.close(id))
        self._batches = decided.left

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

    def _circumstances(self, hand: CollectBatch | None, needed: int, *, is_drained: bool) -> Circumstances:
        return Circumstances(
            returns_to_front=self._source.returns_to_front(self._version),
            is_complete=is_drained or (hand is not None and len(hand) >= needed),
            is_drained=is_drained,
            is_first=self._is_first,
            now_ms=self._parts.clock_ms(),
            grace_ms=round(self._parts.grace_s * 1000),
        )

    def _danger(self, hand: CollectBatch) -> str | None:
        """Why this queue must be left alone from now on, if it must."""
        limit = self._source.effective_limit(self._version)
        if limit is None:
            return None
        counts = [deliveries_so_far(one) for one in hand.deliveries if one.redelivered]
        # The broker drops a message above its limit: a higher count is a publisher's, which stays on a message until
        # the broker writes its own over it.
        most = max((count for count in counts if count <= limit), default=0)
        if most < max(1, limit - LIMIT_MARGIN):
            return None
        return (
            f"a message in {self._source.dlq} came back {most} times, and above {limit} RabbitMQ drops it; find out why"
            f" collecting fails, then go on with: {resume_command(self._source.dlq)}"
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
        try:
            async with asyncio.timeout(self._parts.store_s):
                return await call
        except TimeoutError:
            raise BatchLost(f"the database did not answer in {self._parts.store_s:.0f} s") from None

    def _new_id(self) -> str:
        return make_id(self._parts.clock_ms(), self._parts.random_bits())

    def _note(self, event: str, **fields: object) -> None:
        self._parts.observer.note(event, queue=self._source.dlq, vhost=self._source.vhost, **fields)


def _open_batch(batch: StoredBatch) -> OpenBatch:
    lost = _LOST_HAND.fullmatch(batch.id)
    hand_max = 0 if lost is None or batch.entries else int(lost[1])
    return OpenBatch(id=batch.id, entries=batch.entries, at_ms=batch.at_ms, hand_max=hand_max)
