"""One run of an operation under one lease: sends batch after batch, at its rate and ramp, and waits for broker and
database while they are away.

In a long operation two batches overlap: while one is on the wire, the database records the one before it and takes the
next.

    wire        | send 1          | send 2          | send 3          |
    database    |          take 2 | record 1 take 3 | record 2 take 4 | record 3 …

Broker and database would otherwise wait for each other. A batch is sent only when its taking is committed, as ever. Two
batches are held then, so each has half the size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from redrive.client import Client, ClientError, ReconnectBackoff
from redrive.core import NULL_OBSERVER, Observer
from redrive.deadletters.held_leases import HeldLease
from redrive.deadletters.redrive.batch_sender import BatchSender, send_result
from redrive.deadletters.redrive.copies import Copier
from redrive.deadletters.redrive.pacing import (
    BATCH_MAX,
    BatchSize,
    RampStep,
    RateLimiter,
    RateMeter,
    RedriveProgress,
    next_step,
)
from redrive.deadletters.redrive.witness import Witness, resolve_by_witness
from redrive.deadletters.stop_waits import wait_done, wait_stop
from redrive.records import ClaimedLetter, ItemState, Operation, OperationKind, OperationState, SendResult, Status
from redrive.stores import Store, StoreUnavailable, acting_as

WHO = "redriver"
"""In the audit, for what no person did."""

Send: TypeAlias = Callable[[Sequence[ClaimedLetter]], Awaitable[list[SendResult]]]
"""Sends a batch; returns the result of each."""
Exchange: TypeAlias = Callable[[Sequence[SendResult], int], Awaitable[Sequence[ClaimedLetter]]]
"""Records these results and takes the next batch, while so many are on the wire; () to take no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """How patient a redriver is, and how much it has in flight."""

    window: int = 1_000
    batch: int = BATCH_MAX
    """How many dead letters are taken and not recorded at once, at most: they are in doubt if the process dies."""
    lease_s: float = 30.0
    """How long after a redriver's death another may go on."""
    publish_s: float = 60.0
    """How long a batch may wait for its confirms, or for a connection to be sent on."""
    stop_grace_s: float = 5.0
    """The same, once `stop` is set."""
    broker_s: float = 600.0
    """Without a connection for so long, the operation is paused."""
    store_s: float = 600.0
    """How long results are kept in memory for a database that is away."""
    witness_s: float = 2.0
    """How long to wait for what a lost connection may have written, before the witness queue is read."""
    canary_s: float = 10.0
    """How long after each batch of a ramp its copies are watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriverParts:
    """What a redriver works with.

    `owner` names it among all redrivers. `pause_at` is awaited at every checkpoint, for tests that kill the process
    there. `has_witness`: see `witness`.
    """

    store: Store
    client: Client
    owner: str
    clock_ms: Callable[[], int]
    observer: Observer = NULL_OBSERVER
    options: RedriveOptions = field(default_factory=RedriveOptions)
    pause_at: Callable[[str], Awaitable[None]] | None = None
    has_witness: bool = False


class OperationRun:
    """One operation under one lease."""

    def __init__(
        self,
        parts: RedriverParts,
        held: HeldLease,
        operation: Operation,
        *,
        stop: asyncio.Event,
        pauses_when_stopped: bool,
        on_progress: Callable[[RedriveProgress], None] | None,
    ) -> None:
        self._parts = parts
        self._options = parts.options
        self._operations = parts.store.operations
        self._clock_ms = parts.clock_ms
        self._note = parts.observer.note
        self._held = held
        self._operation = operation
        self._id = operation.id
        self._stop = stop
        self._pauses_when_stopped = pauses_when_stopped
        self._on_progress = on_progress
        self._rate = RateLimiter(operation.rate_per_s)
        self._batch_size = BatchSize(self._options.batch)
        self._meter = RateMeter()
        self._turn = 0
        self._backoff = ReconnectBackoff(first_s=0.05, longest_s=5.0)
        self._copier = Copier(parts.client, clock_ms=parts.clock_ms)
        has_witness = parts.has_witness and operation.kind is not OperationKind.RESTORE
        self._witness = Witness(parts.client, operation.id) if has_witness else None
        self._is_doubt_open = True
        self._sender = BatchSender(
            parts.client,
            window=self._options.window,
            patience_s=self._options.publish_s,
            grace_s=self._options.stop_grace_s,
        )

    async def run(self) -> Operation:
        """Batch after batch, until the operation has ended or is paused."""
        self._report_progress()
        await self.ask_witness(())
        while self._operation.state is OperationState.RUNNING:
            if self._stop.is_set():
                if self._pauses_when_stopped:
                    await self._pause("its redriver was stopped; resume it to go on")
                return self._operation
            if await self._waited_for_rate() or await self._waited_for_broker():
                continue  # it may have been paused meanwhile
            operation = self._operation
            overlaps = self._may_overlap
            most = self._half if overlaps else min(self._rate.batch_max, self._batch_size.value)
            step = next_step(operation.ramp, operation.total - operation.left, most)
            claimed = await self._take(step)
            if not claimed:
                return await self._record(())  # paused meanwhile, or what was left was skipped
            if overlaps:
                results = await send_overlapped(claimed, send=self._send, exchange=self._exchange)
            else:
                results = await self._send(claimed)
            await self._record(results)
            await self.checkpoint("recorded")
            self._report_progress()
            await self.ask_witness(results)
            if step.is_canary:
                await self._watch_canary(results)
            elif all(one.state is ItemState.QUEUED for one in results):
                # Connected, and yet nothing can be sent: an alarm, a full disk.
                await self._wait(self._backoff.next_s())
        return self._operation

    async def close(self) -> None:
        """Closes the channel it sent on."""
        await self._sender.close()

    async def checkpoint(self, name: str) -> None:
        """For tests that kill the process here."""
        if self._parts.pause_at is not None:
            await self._parts.pause_at(name)

    async def ask_witness(self, results: Sequence[SendResult]) -> None:
        """Decides in-doubt letters by the witness queue, and purges it. The next run repeats what failed."""
        witness = self._witness
        if witness is None:
            return
        try:
            await witness.declare()
            # What an earlier call failed to decide is still in doubt: until it is decided the queue must not be purged.
            self._is_doubt_open = self._is_doubt_open or any(one.state is ItemState.IN_DOUBT for one in results)
            if self._operation.in_doubt and self._is_doubt_open:
                await self._wait(self._options.witness_s)  # what a lost connection has written may still be on its way
                arrived, lost = await resolve_by_witness(
                    self._parts.store, witness, self._operation, clock_ms=self._clock_ms
                )
                self._note("deadletters.witness_heard", operation=self._id, arrived=arrived, lost=lost)
            self._is_doubt_open = False
            if self._operation.state in (OperationState.DONE, OperationState.CANCELLED):
                await witness.delete()
            else:
                await witness.purge()
        except (ClientError, StoreUnavailable, TimeoutError) as error:
            self._is_doubt_open = True
            self._note("deadletters.witness_unheard", operation=self._id, reason=str(error))

    async def _waited_for_rate(self) -> bool:
        """Keeps the rate. Returns whether it waited, so that a pause or cancel may have come."""
        wait_s = self._rate.wait_s(self._loop_s())
        if wait_s <= 0:
            return False
        await self._wait(wait_s)
        await self._reload()
        return True

    async def _take(self, step: RampStep) -> Sequence[ClaimedLetter]:
        self._held.require()
        # Repeated after the database was away, the same turn gives the same batch: no batch is taken unnoticed.
        self._turn += 1
        claimed = await self._held.retry_while_unavailable(
            lambda: self._operations.take(
                self._id, self._held.lease, limit=step.size, now_ms=self._clock_ms(), turn=self._turn
            )
        )
        self._batch_size.learn([len(one.content.body) + len(one.content.properties) for one in claimed])
        self._rate.spend(len(claimed), self._loop_s())
        if claimed:
            await self.checkpoint("taken")
        return claimed

    async def _send(self, claimed: Sequence[ClaimedLetter]) -> list[SendResult]:
        copies, refused = await self._copier.copies(self._operation, claimed)
        if self._witness is not None:
            try:
                copies, unfit = await self._witness.witnessed(copies)
            except (ClientError, TimeoutError) as error:
                unfit = [SendResult(id=id, state=ItemState.QUEUED, reason=str(error)) for id, _ in copies]
                copies = []
            refused += unfit
        await self._held.check_still_held()
        halfway = None if self._parts.pause_at is None else lambda: self.checkpoint("published")
        outcomes = await self._sender.send([copy for _, copy in copies], stop=self._stop, halfway=halfway)
        if any(outcome is None for outcome in outcomes):
            self._copier.forget_exchanges()
        results = [send_result(one, copy, outcome) for (one, copy), outcome in zip(copies, outcomes, strict=True)]
        if self._witness is not None:
            results = await self._witness.checked(copies, results)
        await self.checkpoint("confirmed")
        return refused + results

    @property
    def _may_overlap(self) -> bool:
        """Not where each batch is watched (ramp, witness) or spaced (rate) before the next is taken, nor where bodies
        are large."""
        operation = self._operation
        is_plain = self._witness is None and not operation.ramp and operation.rate_per_s is None
        return is_plain and self._batch_size.is_largest and self._half > 0

    @property
    def _half(self) -> int:
        return self._options.batch // 2

    async def _exchange(self, results: Sequence[SendResult], on_the_wire: int) -> Sequence[ClaimedLetter]:
        """Records a batch and takes another, while a third is on the wire.

        Takes none when all are taken, or when anything is out of the ordinary: what is taken is finished first.
        """
        left = self._operation.left - len(results) - on_the_wire
        is_ordinary = self._may_overlap and self._parts.client.is_connected and not self._stop.is_set()
        if any(one.state is ItemState.QUEUED for one in results) or not is_ordinary:
            left = 0
        if not results and left <= 0:
            return ()
        self._held.require()
        self._turn += 1
        self._operation, claimed = await self._held.retry_while_unavailable(
            lambda: self._operations.record_and_take(
                self._id,
                self._held.lease,
                results,
                limit=max(0, min(left, self._half)),
                now_ms=self._clock_ms(),
                turn=self._turn,
            )
        )
        self._note_failures(results)
        if results:
            await self.checkpoint("recorded")
            self._report_progress()
        if claimed:
            self._batch_size.learn([len(one.content.body) + len(one.content.properties) for one in claimed])
            await self.checkpoint("taken")
        return claimed

    async def _record(self, results: Sequence[SendResult]) -> Operation:
        self._operation = await self._held.retry_while_unavailable(
            lambda: self._operations.record(self._id, self._held.lease, results, now_ms=self._clock_ms())
        )
        self._note_failures(results)
        return self._operation

    def _note_failures(self, results: Sequence[SendResult]) -> None:
        for state in (ItemState.REFUSED, ItemState.IN_DOUBT):
            reasons = [one.reason for one in results if one.state is state]
            if reasons:
                self._note(f"deadletters.{state}", operation=self._id, count=len(reasons), reason=reasons[0])

    async def _watch_canary(self, results: Sequence[SendResult]) -> None:
        """Pauses the operation if the broker refused one of these copies, or one comes back within a while."""
        refused = [one for one in results if one.state is ItemState.REFUSED]
        if refused:
            await self._pause(f"{len(refused)} of the last {len(results)} copies were refused: {refused[0].reason}")
            return
        ids = [one.id for one in results if one.state is ItemState.SENT]
        until_s = self._loop_s() + self._options.canary_s
        while ids and not self._stop.is_set() and self._loop_s() < until_s:
            await self._wait(min(1.0, self._options.canary_s / 10))
            back = [one for one in ids if await self._came_back(one)]
            if back:
                await self._pause(
                    f"{len(back)} of the last {len(ids)} copies came back ({back[0]}); see why, then resume or cancel"
                )
                return
        await self._reload()

    async def _came_back(self, letter_id: str) -> bool:
        letter = await self._held.retry_while_unavailable(lambda: self._parts.store.letters.get(letter_id))
        return letter is not None and letter.status in (Status.PENDING, Status.FAILED)

    async def _waited_for_broker(self) -> bool:
        """Waits for a connection, because nothing is taken without one; pauses the operation if that takes too long.

        Returns whether it waited.
        """
        connecting = asyncio.create_task(self._parts.client.connection())
        try:
            await asyncio.wait([connecting], timeout=0.01)
            if connecting.done():
                connecting.result()
                return False
            self._note("deadletters.waits_for_broker", operation=self._id)
            await wait_done(connecting, self._stop, self._options.broker_s, 0.0)
            if connecting.done():
                connecting.result()
            elif not self._stop.is_set():
                await self._pause(f"no connection to the broker for {self._options.broker_s:g} s; resume it to go on")
        finally:
            connecting.cancel()
        await self._reload()
        return True

    async def _pause(self, note: str) -> Operation:
        with acting_as(""):
            self._operation = await self._held.retry_while_unavailable(
                lambda: self._operations.pause(self._id, note, now_ms=self._clock_ms(), who=WHO)
            )
        return self._operation

    async def _reload(self) -> None:
        found = await self._held.retry_while_unavailable(lambda: self._operations.get(self._id))
        if found is not None:
            self._operation = found

    async def _wait(self, seconds: float) -> None:
        await wait_stop(self._stop, seconds)

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._meter.progress(self._operation, self._loop_s()))

    def _loop_s(self) -> float:
        return asyncio.get_running_loop().time()


async def send_overlapped(first: Sequence[ClaimedLetter], *, send: Send, exchange: Exchange) -> list[SendResult]:
    """Sends the batch, and those that `exchange` takes until it takes none.

    Returns the results of the last batch, which are to be recorded; those of all others are recorded.
    """
    claimed, results = first, list[SendResult]()
    while claimed:
        exchanging = asyncio.ensure_future(exchange(results, len(claimed)))
        try:
            results = await send(claimed)
            claimed = await exchanging
        finally:
            await _cancel(exchanging)
    return results


async def _cancel(task: "asyncio.Future[Sequence[ClaimedLetter]]") -> None:
    """Leaves nothing running. What the task would have raised is dropped: something else was raised before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
