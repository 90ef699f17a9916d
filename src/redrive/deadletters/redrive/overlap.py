"""Two batches in hand: while one is on the wire, the database writes down the one before it and takes the next.

    wire        | send 1          | send 2          | send 3          |
    database    |          take 2 | record 1 take 3 | record 2 take 4 | record 3 …

Broker and database would otherwise wait for each other. A batch is sent only when its taking is committed, as ever. In
hand are two batches, so each has half the size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from redrive.records import ClaimedLetter, SendResult

Send: TypeAlias = Callable[[Sequence[ClaimedLetter]], Awaitable[list[SendResult]]]
"""Sends a batch; how each ended."""
Exchange: TypeAlias = Callable[[Sequence[SendResult], int], Awaitable[Sequence[ClaimedLetter]]]
"""Records these ends and takes the next batch, while so many are on the wire; () to take no more."""


async def send_overlapped(first: Sequence[ClaimedLetter], *, send: Send, exchange: Exchange) -> list[SendResult]:
    """Sends the batch, and those that `exchange` takes until it takes none. The ends of the last are returned, to be
    recorded; all others are."""
    claimed, ends = first, list[SendResult]()
    while claimed:
        exchanging = asyncio.ensure_future(exchange(ends, len(claimed)))
        try:
            ends = await send(claimed)
            claimed = await exchanging
        finally:
            await _end(exchanging)
    return ends


async def _end(task: "asyncio.Future[Sequence[ClaimedLetter]]") -> None:
    """Nothing is left running; what it would have raised is of no interest where something else was raised before."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()
