"""Live updates for event streams: one reading of the database at a time, however many streams there are.

A reading makes a `Snapshot`. A stream compares the latest with the one it sent last and sends the differences. A slow
reader skips some snapshots and misses nothing, because each has the current state, not a history. So nothing is queued,
and memory is bounded by the number of streams. Without streams the database is not read.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI, Request

from redrive.admin.problems import unavailable
from redrive.admin.services import Services, services_of
from redrive.core import RedriveError
from redrive.records import Operation
from redrive.stores import LetterStats

EVERY_S = 1.0
OPEN_MAX = 200
"""How many open operations are in a snapshot, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state at a moment. `ended`: operations that ended lately. `refused`: tokens that became invalid."""

    at_ms: int
    stats: LetterStats
    operations: dict[str, Operation] = field(default_factory=dict)
    ended: dict[str, Operation] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()


class LiveUpdates:
    """Reads the database while there are streams. Belongs to one event loop; one per app."""

    def __init__(self, services: Services, *, every_s: float = EVERY_S, ended_kept: int = OPEN_MAX) -> None:
        self._services = services
        self._every_s = every_s
        self._ended_kept = ended_kept
        self._tokens: Counter[str] = Counter()
        self._latest: Snapshot | None = None
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.is_closed = False

    @property
    def watchers(self) -> int:
        """How many streams there are."""
        return self._tokens.total()

    def require_room(self) -> None:
        """Raises `HttpProblem` 503 if there are too many streams, or the server stops."""
        if self.is_closed:
            raise unavailable(
                "stopping", "The server stops", "the server stops; ask another instance, or this one later"
            )
        if self.watchers >= self._services.settings.streams_max:
            detail = f"{self.watchers} streams are open, and there may not be more; close one, or ask again later"
            raise unavailable("too-many-streams", "Too many streams", detail)

    @contextmanager
    def watching(self, token_id: str) -> Iterator[None]:
        """While the block runs there is a stream with this token, and the database is read."""
        self._tokens[token_id] += 1
        if self._reading is None or self._reading.done():
            self._latest = None
            self._reading = asyncio.create_task(self._read_on(), name="redrive live updates")
        try:
            yield
        finally:
            self._tokens -= Counter([token_id])
            if not self._tokens and self._reading is not None:
                self._reading.cancel()

    async def wait_newer(self, than: Snapshot | None, *, timeout_s: float) -> Snapshot | None:
        """The latest snapshot if it is newer than this one, else the next; None after the timeout or when closed."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self.is_closed:
            if self._latest is not None and self._latest is not than:
                return self._latest
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                return None
            try:
                async with asyncio.timeout(left_s):
                    await self._changed.wait()
            except TimeoutError:
                return None
        return None

    def close(self) -> None:
        """Ends every stream soon: each sees that this is closed."""
        self.is_closed = True
        self._wake()

    async def _read_on(self) -> None:
        while self._tokens and not self.is_closed:
            try:
                self._latest = await self._read()
                self._wake()
            except (RedriveError, TimeoutError) as error:
                # The streams continue with heartbeats; they send the differences when the database is back.
                self._services.observer.note("admin.live_updates_failed", reason=type(error).__name__)
            await asyncio.sleep(self._every_s)

    async def _read(self) -> Snapshot:
        store, now_ms = self._services.store, self._services.clock_ms()
        stats = await store.stats.totals(None, now_ms=now_ms)
        opened = {one.id: one for one in await store.operations.open(OPEN_MAX)}
        ended: dict[str, Operation] = {}
        if self._latest is not None:
            ended = {id: one for id, one in self._latest.ended.items() if id not in opened}
            for id in self._latest.operations.keys() - opened.keys():
                found = await store.operations.get(id)
                if found is not None and found.ended_at_ms is not None:
                    ended[id] = found
        else:
            recent, _ = await store.operations.page(self._ended_kept)
            ended = {one.id: one for one in reversed(recent) if one.ended_at_ms is not None}
        for id in list(ended)[: -self._ended_kept]:
            del ended[id]
        refused = frozenset([id for id in list(self._tokens) if not await self._is_valid(id, now_ms)])
        return Snapshot(at_ms=now_ms, stats=stats, operations=opened, ended=ended, refused=refused)

    async def _is_valid(self, token_id: str, now_ms: int) -> bool:
        """Whether a token is still valid: an open stream must not outlive its revoked token."""
        if not self._services.settings.require_auth:
            return True
        found = await self._services.store.tokens.find(token_id)
        return found is not None and found[0].is_valid(now_ms)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def live_updates_of(request: Request) -> LiveUpdates:
    """The live updates of the app that handles a request."""
    state = request.app.state
    found = getattr(state, "live_updates", None)
    if not isinstance(found, LiveUpdates):
        found = state.live_updates = LiveUpdates(services_of(request))
    return found


def close_live_updates(app: FastAPI) -> None:
    """Ends the streams of an app that stops: the server waits for its responses, and streams do not end by
    themselves."""
    found = getattr(app.state, "live_updates", None)
    if isinstance(found, LiveUpdates):
        found.close()
