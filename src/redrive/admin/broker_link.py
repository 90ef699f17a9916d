"""The API's own way to the broker: made when it is first needed, shared by all requests, made again when it was lost.

A request never waits for a broker that is away: after three seconds it is told so, with 503 and when to ask again. What
runs beside the API (the collector, the redriver) has connections of its own; `WorkerState` is how it says what it does.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from redrive.admin.problems import Problem, management_unavailable
from redrive.client import ClientError
from redrive.core import SILENT, Observer
from redrive.deadletters import PeekResult
from redrive.management import ManagementError
from redrive.stores import Store
from redrive.wiring import Broker, ConnectionSettings, KnownQueues, known_queues, opened_broker

CONNECT_S_MAX = 3.0
RETRY_AFTER_S = 5
QUEUES_S_OLD = 2.0
"""How old a list of queues may be when it is told again."""
_PEEK_S_MAX = 25.0
_TRIED_AGAIN_S = 1.0


class Doing(StrEnum):
    """What the worker beside the API does."""

    OFF = "off"
    CONNECTING = "connecting"
    COLLECTING = "collecting"
    """Connected and at work, also where there is nothing to collect."""
    WAITING = "waiting"
    """For the broker or the database; it goes on by itself."""
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What runs beside the API in this process."""

    doing: Doing
    reason: str = ""
    """Why it waits, in a sentence."""
    collects: bool = True
    """Whether it is to collect at all."""
    auto_retries: bool = True
    queues: Mapping[str, str] = field(default_factory=dict)
    """The dead-letter queues that are collected here, and why one is not at the moment ("" where it is)."""

    def why_not(self, dlq: str) -> str | None:
        """Why a queue is not collected at the moment, "" where it is; None where it is not to be collected here."""
        reason = self.queues.get(dlq)
        return self.text if reason == "" and self.doing is not Doing.COLLECTING else reason

    @property
    def is_ready(self) -> bool:
        """Whether the work is done that is to be done."""
        return self.doing is Doing.OFF or (self.doing is Doing.COLLECTING and not self.reason)

    @property
    def reason_without_address(self) -> str:
        """The reason as everybody may hear it: what comes after a colon may name hosts."""
        return self.reason.partition(":")[0]

    @property
    def text(self) -> str:
        """In a few words: `collecting`, `waiting: for the broker: …`."""
        doing = "redriving only" if self.doing is Doing.COLLECTING and not self.collects else str(self.doing)
        return f"{doing}: {self.reason}" if self.reason else doing


class BrokerLink:
    """The broker as requests see it. Belongs to one event loop; close it at the end."""

    def __init__(
        self,
        place: ConnectionSettings,
        store: Store,
        *,
        patterns: tuple[str, ...] = (),
        observer: Observer = SILENT,
        patience_s: float = CONNECT_S_MAX,
    ) -> None:
        self._place = place
        self._store = store
        self._patterns = patterns
        self._observer = observer
        self._patience_s = patience_s
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[Broker] | None = None
        self._tried_at_s = 0.0
        self._away_until_s = 0.0
        self._listing: asyncio.Task[KnownQueues] | None = None
        self._listed_at_s = 0.0
        self._looking: dict[str, asyncio.Lock] = {}

    async def broker(self) -> Broker:
        """A broker that was connected a moment ago. Raises `Problem` 503 within some seconds where there is none."""
        opening = self._open()
        loop = asyncio.get_running_loop()
        is_away = loop.time() < self._away_until_s
        try:
            # Whoever asks right after somebody who waited in vain need not wait too.
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
        """The first messages of a queue, which stay there; one look at a time. Raises `Problem` 503, `PeekRefused`."""
        broker = await self.broker()
        looking = asyncio.create_task(self._peek(broker, queue, limit), name=f"redrive peek at {queue}")
        try:
            async with asyncio.timeout(_PEEK_S_MAX):
                # Whoever asked may go away: what is held is given back all the same.
                return await asyncio.shield(looking)
        except TimeoutError:
            raise broker_unavailable(f"looking at {queue} took longer than {_PEEK_S_MAX:g} s") from None
        except ManagementError as error:
            raise management_unavailable(str(error)) from None
        except ClientError as error:
            raise broker_unavailable(str(error)) from None

    async def queues(self) -> KnownQueues:
        """The dead-letter queues, at most two seconds old; their `problem` says where the broker could not be asked."""
        now_s = asyncio.get_running_loop().time()
        listing = self._listing
        if listing is None or (listing.done() and now_s - self._listed_at_s >= QUEUES_S_OLD):
            listing = self._listing = asyncio.create_task(self._list(), name="redrive list of queues")
        try:
            return await asyncio.shield(listing)
        except BaseException:
            if listing.done() and self._listing is listing:
                self._listing = None  # the next one asks again
            raise

    async def close(self) -> None:
        """Hangs up."""
        for task in (self._opening, self._listing):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        await self._stack.aclose()

    def _open(self) -> "asyncio.Task[Broker]":
        """The connection under way or made; a failed one is tried again after a moment, not by every request."""
        opening = self._opening
        now_s = asyncio.get_running_loop().time()
        is_failed = opening is not None and opening.done() and (opening.cancelled() or opening.exception() is not None)
        if opening is None or (is_failed and now_s - self._tried_at_s >= _TRIED_AGAIN_S):
            self._tried_at_s = now_s
            opening = self._opening = asyncio.create_task(self._connect(), name="redrive link to the broker")
        return opening

    async def _connect(self) -> Broker:
        opened = opened_broker(self._place, self._store, observer=self._observer)
        return await self._stack.enter_async_context(opened)

    async def _peek(self, broker: Broker, queue: str, limit: int) -> PeekResult:
        # Two looks at once would hide messages from each other.
        async with self._looking.setdefault(queue, asyncio.Lock()):
            return await broker.peek(queue, limit)

    async def _list(self) -> KnownQueues:
        found = await known_queues(self._place, self._store, patterns=self._patterns, patience_s=self._patience_s)
        self._listed_at_s = asyncio.get_running_loop().time()
        return found


def broker_unavailable(reason: str) -> Problem:
    """503: the broker can't be reached now, and when to ask again."""
    return Problem(
        status=503,
        name="broker-unavailable",
        title="The broker can't be reached",
        detail=f"{reason}; what is stored can still be read, and redrives wait until the broker is back",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
