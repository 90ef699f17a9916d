"""Runs an operation, to its end or until it is paused: takes queued dead letters, sends copies, records the results.

    claimed → [ taken → published → confirmed → recorded ] …        the checkpoints; a batch is in brackets

The intent to send is committed before anything is sent (`taken`), the outcomes once all are known (`recorded`). Between
the two are at most `RedriveOptions.batch` dead letters: one batch, or in a long operation two of half that size, of
which one is on the wire while the database works on the other. So when this process dies, what it had taken and not
recorded is in doubt for the next redriver, and everything else is certain. One redriver runs an operation at a time: it
holds the lease `operation:<id>`, whose fence the store checks at every step.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from redrive.client import ClientError
from redrive.core import RedriveError
from redrive.deadletters.held_leases import LeaseHolder
from redrive.deadletters.redrive.operation_run import OperationRun, RedriverParts
from redrive.deadletters.redrive.pacing import RedriveProgress
from redrive.deadletters.redrive.witness import witness_queue
from redrive.inspection import queue_state
from redrive.records import Operation, OperationKind
from redrive.stores import UnknownOperation


class RunsElsewhere(RedriveError):
    """Another redriver runs the operation now."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(
            f"operation {operation_id} is run by somebody else at the moment; watch it, or try again later"
        )


class Redriver:
    """Runs operations on one broker and vhost. Many may run at once, in many processes."""

    def __init__(self, parts: RedriverParts) -> None:
        self.parts = parts
        self.leases = LeaseHolder(
            store=parts.store,
            owner=parts.owner,
            ttl_s=parts.options.lease_s,
            patience_s=parts.options.store_s,
            clock_ms=parts.clock_ms,
            observer=parts.observer,
        )

    async def run(
        self,
        operation_id: str,
        *,
        stop: asyncio.Event | None = None,
        pauses_when_stopped: bool = True,
        on_progress: Callable[[RedriveProgress], None] | None = None,
    ) -> Operation:
        """Runs the operation until it has ended or is paused, and returns it as it is then.

        Once `stop` is set the current batch is finished and recorded, and the operation paused; or, without
        `pauses_when_stopped`, left to the next redriver. Raises RunsElsewhere, UnknownOperation, LeaseLost if another
        redriver took over, StoreUnavailable if the database stays away.
        """
        stopping = asyncio.Event() if stop is None else stop
        parts = self.parts
        async with self.leases.hold(f"operation:{operation_id}") as held:
            if held is None:
                raise RunsElsewhere(operation_id)
            operations = parts.store.operations
            operation = await held.retry_while_unavailable(
                lambda: operations.claim(operation_id, held.lease, now_ms=parts.clock_ms())
            )
            if operation is None:
                found = await held.retry_while_unavailable(lambda: operations.get(operation_id))
                if found is None:
                    raise UnknownOperation(operation_id)
                operation = found
            parts = replace(parts, has_witness=await self._has_witness(operation))
            run = OperationRun(
                parts, held, operation, stop=stopping, pauses_when_stopped=pauses_when_stopped, on_progress=on_progress
            )
            try:
                await run.checkpoint("claimed")
                return await run.run()
            finally:
                await run.close()

    async def _has_witness(self, operation: Operation) -> bool:
        """Whether the operation was begun with a witness, whatever this redriver was given: of copies sent without one,
        an empty witness queue would say that they did not arrive."""
        if operation.kind is not OperationKind.REDRIVE:
            return False
        if operation.left == operation.total:
            return self.parts.has_witness
        try:
            return await queue_state(self.parts.client, witness_queue(operation.id)) is not None
        except (ClientError, TimeoutError):
            return False
