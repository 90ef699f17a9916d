"""One run of an operation, under one lease: batch after batch, with its pauses, its ramp and its patience."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from redrive.client import Backoff, Client, ClientError
from redrive.core import SILENT, Observer
from redrive.deadletters.actions.restore import restored_copy
from redrive.deadletters.held_leases import HeldLease
from redrive.deadletters.redrive.batch_sender import Sender, ended, wait_or_stop
from redrive.deadletters.redrive.copier import Copier, Copying
from redrive.deadletters.redrive.overlap import send_overlapped
from redrive.deadletters.redrive.pacing import (
    BATCH_MAX,
    BatchSize,
    RampStep,
    RateLimiter,
    RateMeter,
    RedriveProgress,
    next_step,
)
from redrive.deadletters.redrive.witness import Witness, settle_by_witness
from redrive.deadletters.waits import idle
from redrive.records import ClaimedLetter, ItemState, Operation, OperationKind, OperationState, SendResult, Status
from redrive.stores import Store, StoreUnavailable, acting_as

WHO = "redriver"
"""In the audit, of what no person did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """How patient a runner is, and how much it has in flight."""

    window: int = 1_000
    batch: int = BATCH_MAX
    """How many are taken and not recorded at once, at most: they are in doubt if the runner dies."""
    lease_s: float = 30.0
    """How long after a runner's death another may go on."""
    publish_s: float = 60.0
    """How long a batch may wait for its confirms, or for a connection to be sent on."""
    stop_grace_s: float = 5.0
    """The same once it is to stop."""
    broker_s: float = 600.0
    """Without a connection for so long, the operation is paused."""
    store_s: float = 600.0
    """How long outcomes are kept in memory for a database that is away."""
    witness_s: float = 2.0
    """How long a witness waits for what a lost connection may have written, before it is heard."""
    canary_s: float = 10.0
    """How long after each batch of a ramp its copies are watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriverParts:
    """What a runner works with.

    `owner` names it among all runners; `returning` makes the copies of operations that give back to the DLQ; `pause_at`
    is awaited at every checkpoint, for tests that kill the process there. `has_witness`: see `witness`.
    """

    store: Store
    client: Client
    owner: str
    clock_ms: Callable[[], int]
    observer: Observer = SILENT
    options: RedriveOptions = field(default_factory=RedriveOptions)
    returning: Copying = restored_copy
    pause_at: Callable[[str], Awaitable[None]] | None = None
    has_witness: bool = False


class Run:
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
        self._pace = RateLimiter(operation.rate_per_s)
        self._batch = BatchSize(self._options.batch)
        self._meter = RateMeter()
        self._turn = 0
        self._backoff = Backoff(first_s=0.05, longest_s=5.0)
        self._copier = Copier(parts.client, clock_ms=parts.clock_ms, returning=parts.returning)
        has_witness = parts.has_witness and operation.kind is not OperationKind.RETURN
        self._witness = Witness(parts.client, operation.id) if has_witness else None
        self._is_unheard = True
        self._sender = Sender(
            parts.client,
            window=self._options.window,
            patience_s=self._options.publish_s,
            grace_s=self._options.stop_grace_s,
        )

    async def to_end(self) -> Operation:
        """Batch after batch."""
        self._tell()
        await self.hear_witness(())
        while self._operation.state is OperationState.RUNNING:
            if self._stop.is_set():
                if self._pauses_when_stopped:
                    await self._pause("its runner was stopped; resume it to go on")
                return self._operation
            if await self._rested() or await self._reconnected():
                continue  # it may have been paused meanwhile
            operation = self._operation
            overlaps = self._may_overlap
            most = self._half if overlaps else min(self._pace.batch_max, self._batch.value)
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
            self._tell()
            await self.hear_witness(results)
            if step.is_canary:
                await self._watch(results)
            elif all(one.state is ItemState.QUEUED for one in results):
                await self._idle(
                    self._backoff.next_s()
                )  # connected, and yet nothing can be sent: an alarm, a full disk
        return self._operation

    async def close(self) -> None:
        """Closes the channel it sent on."""
        await self._sender.close()

    async def checkpoint(self, name: str) -> None:
        """For tests that kill the process here."""
        if self._parts.pause_at is not None:
            await self._parts.pause_at(name)

    async def hear_witness(self, results: Sequence[SendResult]) -> None:
        """Settles what is in doubt by the witness, and lets it forget. What fails is left to the next runner."""
        witness = self._witness
        if witness is None:
            return
        try:
            await witness.declare()
            # What an earlier hearing failed to settle is still to be settled: before that nothing may be forgotten.
            self._is_unheard = self._is_unheard or any(one.state is ItemState.IN_DOUBT for one in results)
            if self._operation.in_doubt and self._is_unheard:
                await self._idle(self._options.witness_s)  # what a lost connection has written may still be on its way
                arrived, lost = await settle_by_witness(
                    self._parts.store, witness, self._operation, clock_ms=self._clock_ms
                )
                self._note("deadletters.witness_heard", operation=self._id, arrived=arrived, lost=lost)
            self._is_unheard = False
            if self._operation.state in (OperationState.DONE, OperationState.CANCELLED):
                await witness.dismiss()
            else:
                await witness.forget()
        except (ClientError, StoreUnavailable, TimeoutError) as error:
            self._is_unheard = True
            self._note("deadletters.witness_unheard", operation=self._id, reason=str(error))

    async def _rested(self) -> bool:
        """Keeps the rate; whether that took a while, so that a pause or cancel may have come."""
        wait_s = self._pace.wait_s(self._loop_s())
        if wait_s <= 0:
            return False
        await self._idle(wait_s)
        await self._look()
        return True

    async def _take(self, step: RampStep) -> Sequence[ClaimedLetter]:
        self._held.require()
        # Asked again after a database that went away, the same turn gives the same batch: nothing is taken unknown.
        self._turn += 1
        claimed = await self._held.persist(
            lambda: self._operations.take(
                self._id, self._held.lease, limit=step.size, now_ms=self._clock_ms(), turn=self._turn
            )
        )
        self._batch.learn([len(one.content.body) + len(one.content.properties) for one in claimed])
        self._pace.spend(len(claimed), self._loop_s())
        if claimed:
            await self.checkpoint("taken")
        return claimed

    async def _send(self, claimed: Sequence[ClaimedLetter]) -> list[SendResult]:
        copies, refused = await self._copier.copies(self._operation, claimed)
        if self._witness is not None:
            try:
                copies, unfit = await self._witness.watched(copies)
            except (ClientError, TimeoutError) as error:
                unfit = [SendResult(id=id, state=ItemState.QUEUED, reason=str(error)) for id, _ in copies]
                copies = []
            refused += unfit
        await self._held.assure()
        halfway = None if self._parts.pause_at is None else lambda: self.checkpoint("published")
        outcomes = await self._sender.send([copy for _, copy in copies], stop=self._stop, halfway=halfway)
        if any(outcome is None for outcome in outcomes):
            self._copier.forget_exchanges()
        results = [ended(one, copy, outcome) for (one, copy), outcome in zip(copies, outcomes, strict=True)]
        if self._witness is not None:
            results = await self._witness.checked(copies, results)
        await self.checkpoint("confirmed")
        return refused + results

    @property
    def _may_overlap(self) -> bool:
        """Not where each batch is judged, heard or spaced before the next is taken; nor where bodies are large."""
        operation = self._operation
        is_plain = self._witness is None and not operation.ramp and operation.rate_per_s is None
        return is_plain and self._batch.is_largest and self._half > 0

    @property
    def _half(self) -> int:
        return self._options.batch // 2

    async def _exchange(self, results: Sequence[SendResult], on_the_wire: int) -> Sequence[ClaimedLetter]:
        """Records a batch and takes another, while a third is on the wire. Takes none when all are taken, and nothing
        when anything is out of the ordinary: what is in hand is brought to its end first."""
        left = self._operation.left - len(results) - on_the_wire
        is_ordinary = self._may_overlap and self._parts.client.is_connected and not self._stop.is_set()
        if any(one.state is ItemState.QUEUED for one in results) or not is_ordinary:
            left = 0
        if not results and left <= 0:
            return ()
        self._held.require()
        self._turn += 1
        self._operation, claimed = await self._held.persist(
            lambda: self._operations.exchange(
                self._id,
                self._held.lease,
                results,
                limit=max(0, min(left, self._half)),
                now_ms=self._clock_ms(),
                turn=self._turn,
            )
        )
        self._note_ends(results)
        if results:
            await self.checkpoint("recorded")
            self._tell()
        if claimed:
            self._batch.learn([len(one.content.body) + len(one.content.properties) for one in claimed])
            await self.checkpoint("taken")
        return claimed

    async def _record(self, results: Sequence[SendResult]) -> Operation:
        self._operation = await self._held.persist(
            lambda: self._operations.record(self._id, self._held.lease, results, now_ms=self._clock_ms())
        )
        self._note_ends(results)
        return self._operation

    def _note_ends(self, results: Sequence[SendResult]) -> None:
        for state in (ItemState.REFUSED, ItemState.IN_DOUBT):
            reasons = [one.reason for one in results if one.state is state]
            if reasons:
                self._note(f"deadletters.{state}", operation=self._id, count=len(reasons), reason=reasons[0])

    async def _watch(self, results: Sequence[SendResult]) -> None:
        """The canary: pauses the operation if the broker refused one of these, or one comes back within a while."""
        refused = [one for one in results if one.state is ItemState.REFUSED]
        if refused:
            await self._pause(f"{len(refused)} of the last {len(results)} copies were refused: {refused[0].reason}")
            return
        ids = [one.id for one in results if one.state is ItemState.SENT]
        until_s = self._loop_s() + self._options.canary_s
        while ids and not self._stop.is_set() and self._loop_s() < until_s:
            await self._idle(min(1.0, self._options.canary_s / 10))
            back = [one for one in ids if await self._came_back(one)]
            if back:
                await self._pause(
                    f"{len(back)} of the last {len(ids)} copies came back ({back[0]}); see why, then resume or cancel"
                )
                return
        await self._look()

    async def _came_back(self, letter_id: str) -> bool:
        letter = await self._held.persist(lambda: self._parts.store.letters.get(letter_id))
        return letter is not None and letter.status in (Status.PENDING, Status.FAILED)

    async def _reconnected(self) -> bool:
        """Takes nothing without a connection: until there is one, or too long has passed. Whether that took a while."""
        connecting = asyncio.create_task(self._parts.client.connection())
        try:
            await asyncio.wait([connecting], timeout=0.01)
            if connecting.done():
                connecting.result()
                return False
            self._note("deadletters.waits_for_broker", operation=self._id)
            await wait_or_stop(connecting, self._stop, self._options.broker_s, 0.0)
            if connecting.done():
                connecting.result()
            elif not self._stop.is_set():
                await self._pause(f"no connection to the broker for {self._options.broker_s:g} s; resume it to go on")
        finally:
            connecting.cancel()
        await self._look()
        return True

    async def _pause(self, note: str) -> Operation:
        with acting_as(""):
            self._operation = await self._held.persist(
                lambda: self._operations.pause(self._id, note, now_ms=self._clock_ms(), who=WHO)
            )
        return self._operation

    async def _look(self) -> None:
        found = await self._held.persist(lambda: self._operations.get(self._id))
        if found is not None:
            self._operation = found

    async def _idle(self, seconds: float) -> None:
        await idle(self._stop, seconds)

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._meter.progress(self._operation, self._loop_s()))

    def _loop_s(self) -> float:
        return asyncio.get_running_loop().time()
