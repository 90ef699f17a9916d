"""The way back: dead letters returned to the queue they were collected from, as they were.

An operation of kind `return` is run by the redriver; here is what its copies are, and how collectors are kept from
eating them again.

A returned copy is the message as it was collected (or as somebody edited it), byte for byte, x-death included: it is
the evidence of how it died, and without it nobody who looks at the queue later could tell. It harms nothing that the
original would not have: 3.10 counts on in an x-death that a publisher brings, and its cycle detection judges the copy
as it would have judged the original; 4.x begins a new one. Only what would harm is taken off:

    x-delivery-count, x-acquired-count     the broker's, about a stay in the queue that is over
    CC, BCC                                would route the copy to further queues
    an x-death that no broker wrote        3.10 crashes on it, if the queue lets the copy die
    expiration                             would let it expire in the DLQ
    user_id                                another user's closes the channel
    delivery_mode other than 2             would not survive a restart, as it does in the store

and kept in `x-redrive-stripped`, but for the broker's counts. A copy whose earlier copy may be with the broker already
says so in `x-redrive-possible-duplicate`.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from redrive.client import Outgoing
from redrive.core import Observer, RedriveError, headers
from redrive.deadletters.collect.sources import Source, resume_command
from redrive.deadletters.held_leases import hold_lease
from redrive.deadletters.redrive.copies import Uncopyable
from redrive.records import ClaimedLetter, Operation
from redrive.stores import Store
from redrive.wire import Properties, ProtocolError, odd_deaths, stripped_of

_PERSISTENT = 2
_HARMFUL = headers.COUNT_HEADERS | headers.ROUTING_HEADERS


class StillCollected(RedriveError):
    """A collector has the queue: what is returned to it would be collected again at once."""

    def __init__(self, dlq: str, owner: str) -> None:
        self.dlq = dlq
        self.owner = owner
        super().__init__(
            f"{dlq} is being collected by {owner}, which would take back what is returned; stop the collector, or leave"
            f" {dlq} out of what it collects, and try again"
        )


def restored_copy(operation: Operation, letter: ClaimedLetter, now_ms: int) -> Outgoing:
    """The copy of a dead letter for the queue it came from: a runner's `Copying`. Raises Uncopyable."""
    if not letter.dlq:
        raise Uncopyable("nobody knows the queue it was collected from")
    raw = letter.content.properties
    try:
        properties = Properties(raw)
        made = _as_it_was(properties, was_in_doubt=letter.was_in_doubt)
    except ProtocolError as error:
        raise Uncopyable(f"its properties can't be copied: {error}") from None
    return Outgoing("", letter.dlq, letter.content.body, made)


@asynccontextmanager
async def keep_collectors_away(
    store: Store,
    vhost: str,
    dlqs: Iterable[str],
    *,
    owner: str,
    who: str,
    clock_ms: Callable[[], int],
    observer: Observer,
    lease_s: float = 60.0,
) -> AsyncIterator[None]:
    """Nobody collects these queues while the block runs, nor afterwards until somebody says resume.

    Raises `StillCollected` if a collector has one of them, with nothing changed but queues stopped before it; and
    `StoreUnavailable`.
    """
    async with AsyncExitStack() as stack:
        names = sorted(set(dlqs))
        for dlq in names:
            lease_name = Source(vhost=vhost, dlq=dlq).lease_name
            held = await stack.enter_async_context(
                hold_lease(
                    store,
                    lease_name,
                    owner,
                    ttl_s=lease_s,
                    patience_s=lease_s,
                    clock_ms=clock_ms,
                    observer=observer,
                )
            )
            if held is None:
                raise StillCollected(dlq, await _holder(store, lease_name))
        for dlq in names:
            reason = (
                f"{who or 'somebody'} returned dead letters to {dlq}; collect them again with: {resume_command(dlq)}"
            )
            await store.batches.stop_queue(vhost, dlq, reason, now_ms=clock_ms(), who=who)
        yield


def _as_it_was(properties: Properties, *, was_in_doubt: bool) -> Properties:
    drops = {name for name in _HARMFUL if properties.raw_header(name) is not None}
    if odd_deaths(properties) is not None:
        drops.add(headers.DEATHS)
    stripped = stripped_of(properties, headers.ROUTING_HEADERS | drops)
    written: dict[str, Any] = {headers.STRIPPED: stripped} if stripped else {}
    if was_in_doubt:
        written[headers.POSSIBLE_DUPLICATE] = True
    if not drops and not written and properties.delivery_mode == _PERSISTENT:
        return properties
    return properties.edit(headers=written, drop=drops, expiration=None, user_id=None, delivery_mode=_PERSISTENT)


async def _holder(store: Store, lease_name: str) -> str:
    held = await store.leases.held()
    return next((one.owner for one in held if one.name == lease_name), "another collector")
