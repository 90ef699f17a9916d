"""Restoring dead letters to the queue they were collected from, without a collector taking them again.

An operation of kind `return` is run by the redriver (`redrive.copies` says what its copies carry). Collectors are kept
away from the queue meanwhile, and afterwards until somebody resumes it.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from redrive.core import RedriveError
from redrive.deadletters.collect.sources import Source, resume_command
from redrive.deadletters.held_leases import LeaseHolder
from redrive.stores import Store


class StillCollected(RedriveError):
    """A collector has the queue: it would collect restored dead letters again at once."""

    def __init__(self, dlq: str, owner: str) -> None:
        self.dlq = dlq
        self.owner = owner
        super().__init__(
            f"{dlq} is being collected by {owner}, which would take back what is returned; stop the collector, or leave"
            f" {dlq} out of what it collects, and try again"
        )


@asynccontextmanager
async def keep_collectors_away(
    leases: LeaseHolder, vhost: str, dlqs: Iterable[str], *, who: str
) -> AsyncIterator[None]:
    """No collector takes from these queues while the block runs, nor afterwards until somebody resumes them.

    Raises `StillCollected` if a collector has one of them; then no queue was stopped. Raises `StoreUnavailable`.
    """
    store = leases.store
    async with AsyncExitStack() as stack:
        names = sorted(set(dlqs))
        for dlq in names:
            lease_name = Source(vhost=vhost, dlq=dlq).lease_name
            held = await stack.enter_async_context(leases.hold(lease_name))
            if held is None:
                raise StillCollected(dlq, await _holder(store, lease_name))
        for dlq in names:
            reason = (
                f"{who or 'somebody'} returned dead letters to {dlq}; collect them again with: {resume_command(dlq)}"
            )
            await store.batches.stop_queue(vhost, dlq, reason, now_ms=leases.clock_ms(), who=who)
        yield


async def _holder(store: Store, lease_name: str) -> str:
    held = await store.leases.held()
    return next((one.owner for one in held if one.name == lease_name), "another collector")
