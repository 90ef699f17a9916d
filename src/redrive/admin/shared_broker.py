"""The API's connection to the broker: opened when it is first needed, shared by all requests, reopened when it is lost.

A request never waits long for a broker that is away: after three seconds it gets a 503 that says when to try again. The
worker beside the API has connections of its own.
"""

import asyncio
from contextlib import AsyncExitStack

from redrive.admin.problems import HttpProblem, management_unavailable
from redrive.client import ClientError
from redrive.core import NULL_OBSERVER, Observer
from redrive.deadletters import PeekResult
from redrive.management import ManagementError
from redrive.stores import Store
from redrive.wiring import ConnectionSettings, KnownQueues, RedriveBroker, known_queues, opened_broker

CONNECT_S_MAX = 3.0
RETRY_AFTER_S = 5
QUEUES_S_OLD = 2.0
"""How old a list of queues may be when it is used again."""
_PEEK_S_MAX = 25.0
_TRIED_AGAIN_S = 1.0


class SharedBroker:
    """The broker connection of all requests. Belongs to one event loop; close it at the end."""

    def __init__(
        self,
        place: ConnectionSettings,
        store: Store,
        *,
        patterns: tuple[str, ...] = (),
        observer: Observer = NULL_OBSERVER,
        patience_s: float = CONNECT_S_MAX,
    ) -> None:
        self._place = place
        self._store = store
        self._patterns = patterns
        self._observer = observer
        self._patience_s = patience_s
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[RedriveBroker] | None = None
        self._tried_at_s = 0.0
        self._away_until_s = 0.0
        self._listing: asyncio.Task[KnownQueues] | None = None
        self._listed_at_s = 0.0
        self._peeks: dict[str, asyncio.Lock] = {}

    async def get(self) -> RedriveBroker:
        """The broker, connected a moment ago. Raises `HttpProblem` 503 within some seconds if it can't be reached."""
        opening = self._open()
        loop = asyncio.get_running_loop()
        is_away = loop.time() < self._away_until_s
        try:
            # A request right after one that waited in vain need not wait too.
            async with asyncio.timeout(0 if is_away else self._patience_s):
                broker = await asyncio.shield(opening)
                await broker.client.connection()
        except TimeoutError:
            if not is_away:
                self._away_until_s = loop.time() + _TRIED_AGAIN_S
            reason = f"no answer from {self._place.target.address} in {self._patience_s:g} s"
            raise broker_unavailable(reason) from None
        except (ClientError, ManagementError) as error:
            raise broker_unavailable(str(error)) from None
        return broker

    async def peek(self, queue: str, limit: int) -> PeekResult:
        """The first messages of a queue, which stay there; one peek per queue at a time. Raises `HttpProblem` 503,
        `PeekRefused`."""
        broker = await self.get()
        peeking = asyncio.create_task(self._peek(broker, queue, limit), name=f"redrive peek at {queue}")
        try:
            async with asyncio.timeout(_PEEK_S_MAX):
                # The client may disconnect: the messages must be requeued nevertheless.
                return await asyncio.shield(peeking)
        except TimeoutError:
            raise broker_unavailable(f"looking at {queue} took longer than {_PEEK_S_MAX:g} s") from None
        except ManagementError as error:
            raise management_unavailable(str(error)) from None
        except ClientError as error:
            raise broker_unavailable(str(error)) from None

    async def queues(self) -> KnownQueues:
        """The dead-letter queues, at most two seconds old; `problem` says why, if the broker could not be asked."""
        now_s = asyncio.get_running_loop().time()
        listing = self._listing
        if listing is None or (listing.done() and now_s - self._listed_at_s >= QUEUES_S_OLD):
            listing = self._listing = asyncio.create_task(self._list(), name="redrive list of queues")
        try:
            return await asyncio.shield(listing)
        except BaseException:
            if listing.done() and self._listing is listing:
                self._listing = None  # the next request tries again
            raise

    async def close(self) -> None:
        """Closes the connection."""
        for task in (self._opening, self._listing):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        await self._stack.aclose()

    def _open(self) -> "asyncio.Task[RedriveBroker]":
        """The connection, opening or open. A failed one is retried after a moment, not by every request."""
        opening = self._opening
        now_s = asyncio.get_running_loop().time()
        is_failed = opening is not None and opening.done() and (opening.cancelled() or opening.exception() is not None)
        if opening is None or (is_failed and now_s - self._tried_at_s >= _TRIED_AGAIN_S):
            self._tried_at_s = now_s
            opening = self._opening = asyncio.create_task(self._connect(), name="redrive broker connection of the API")
        return opening

    async def _connect(self) -> RedriveBroker:
        opened = opened_broker(self._place, self._store, observer=self._observer)
        return await self._stack.enter_async_context(opened)

    async def _peek(self, broker: RedriveBroker, queue: str, limit: int) -> PeekResult:
        # Two peeks at once would hide messages from each other.
        async with self._peeks.setdefault(queue, asyncio.Lock()):
            return await broker.peek(queue, limit)

    async def _list(self) -> KnownQueues:
        found = await known_queues(self._place, self._store, patterns=self._patterns, patience_s=self._patience_s)
        self._listed_at_s = asyncio.get_running_loop().time()
        return found


def broker_unavailable(reason: str) -> HttpProblem:
    """503: the broker can't be reached now; says when to try again."""
    return HttpProblem(
        status=503,
        name="broker-unavailable",
        title="The broker can't be reached",
        detail=f"{reason}; what is stored can still be read, and redrives wait until the broker is back",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
