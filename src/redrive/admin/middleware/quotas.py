"""Token quotas: no token can take the API away from the others.

They limit, per token: requests worked on at once, request bodies being received, bytes of bodies in memory, responses
being read, event streams, and searches that no index answers. A token that is alone may use everything. As soon as
others send requests too, each token works on a few at a time, its further requests wait for its own, and beyond a
bounded number of waiting ones it gets a delayed 429.

All this happens before the token is looked up, because the lookup is what a flood of requests would cost most. So a
quota belongs to the secret that was sent, and nobody can use up another's quota without it. A secret that was not
looked up yet, or is nobody's, uses the quota of its sender's address until it is: any number of made-up tokens count as
one sender. Quotas ignore what a request asks for.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin.access.request_origin import address_network, bearer_token, client_address
from redrive.admin.problems import HttpProblem
from redrive.admin.settings import OPEN_PATHS, ApiSettings

QUOTA = "redrive.quota"
"""The key of a request's quota in its ASGI scope."""
ACTIVE_S = 2.0
"""A token counts as active for so long after its last request."""
WAIT_S_MAX = 10.0
REFUSAL_DELAY_S = 1.0
"""A 429 is delayed by so long: an immediate one would be retried immediately."""
DELAYED_REFUSALS_MAX = 64
"""Per token. Each of them occupies a connection."""
_TOKENS_MAX = 10_000
_ADDRESS = "address "
"""Prefix of the key of an address's quota. No token id contains a blank."""
_ADDRESS_FACTOR = 8
"""An address may have so many times more waiting requests than a token: many new clients may share it."""


class TokenQuotas:
    """What each token uses of one app at the moment. Belongs to one event loop."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self.bodies: Counter[str] = Counter()
        """Bodies that are being received."""
        self.bytes: Counter[str] = Counter()
        """Bytes of bodies in memory."""
        self.responses: Counter[str] = Counter()
        """Responses that are being sent, without event streams."""
        self.streams: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._delayed: Counter[str] = Counter()
        self._searching: dict[str, asyncio.Lock] = {}
        self._searchers: Counter[str] = Counter()
        self._searches: asyncio.Semaphore | None = None
        self._known: OrderedDict[bytes, str] = OrderedDict()

    def key_of(self, scope: Scope) -> str:
        """The key of a request's quota: its token's id, if that token was valid lately; else its address."""
        text = bearer_token(scope)
        token_id = None if text is None else self._known.get(_digest(text))
        return f"{_ADDRESS}{address_network(client_address(scope))}" if token_id is None else token_id

    def remember(self, text: str, token_id: str) -> None:
        """Remembers that this text is the token with this id."""
        digest = _digest(text)
        self._known[digest] = token_id
        self._known.move_to_end(digest)
        while len(self._known) > _TOKENS_MAX:
            self._known.popitem(last=False)

    def forget(self, text: str) -> None:
        """Forgets a text that is no token, or no longer."""
        self._known.pop(_digest(text), None)

    def leave(self, key: str) -> None:
        """Counts a key as inactive, unless a request of it runs or waits."""
        if not self._working[key] and not self._waiting.get(key):
            self._seen.pop(key, None)

    @asynccontextmanager
    async def receiving(self, token_id: str) -> AsyncIterator[None]:
        """Counts a body that is received in the block. Raises `HttpProblem` 429 if there are too many."""
        if self.bodies[token_id] >= self._settings.token_bodies_max:
            reason = f"{self.bodies[token_id]} request bodies of this token are being received already"
            raise await self._delayed_refusal(token_id, reason)
        with _counted(self.bodies, token_id):
            yield

    def hold(self, token_id: str, count: int) -> None:
        """Counts bytes of a body until `drop`. Raises `HttpProblem` 429."""
        _change(self.bytes, token_id, count)
        if self.bytes[token_id] > self._settings.token_bytes_max:
            most = self._settings.token_bytes_max
            raise too_many(f"the bodies of this token's requests have more than {most:,} bytes together")

    def drop(self, token_id: str, count: int) -> None:
        """Releases what `hold` counted."""
        _change(self.bytes, token_id, -count)

    def take_stream(self, token_id: str) -> None:
        """Counts an event stream until `drop_stream`. Raises `HttpProblem` 429."""
        if self.streams[token_id] >= self._settings.token_streams_max:
            raise too_many(f"{self.streams[token_id]} streams of this token are open, and it may not have more")
        self.streams[token_id] += 1

    def drop_stream(self, token_id: str) -> None:
        """Releases what `take_stream` counted."""
        _change(self.streams, token_id, -1)

    async def wait_turn(self, token_id: str) -> None:
        """Waits until a request of this token may be worked on, until `end_turn`. Raises `HttpProblem` 429."""
        if self.responses[token_id] >= self._settings.token_answers_max:
            raise too_many(f"{self.responses[token_id]} responses to this token are not read; read them first")
        self._mark_active(token_id)
        waiting = self._waiting.get(token_id)
        if not waiting and self._working[token_id] < self._limit():
            self._working[token_id] += 1
            return
        if waiting is None:
            waiting = self._waiting[token_id] = deque()
        most = self._settings.token_waiting_max * (_ADDRESS_FACTOR if token_id.startswith(_ADDRESS) else 1)
        if len(waiting) >= most:
            raise await self._delayed_refusal(token_id, f"{len(waiting)} requests of this token wait already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except TimeoutError:
            self._stop_waiting(token_id, turn)
            raise too_many("this token's other requests take all of its time") from None
        except BaseException:
            self._stop_waiting(token_id, turn)
            raise

    def end_turn(self, token_id: str) -> None:
        """Lets the token's next waiting request be worked on."""
        _change(self._working, token_id, -1)
        self._wake(token_id)

    @asynccontextmanager
    async def searching(self, token_id: str) -> AsyncIterator[None]:
        """Runs the block as a search that no index answers: one per token at a time, and a few in all. Such a search
        occupies one of the database's few connections for long. Raises `HttpProblem` 429."""
        if self._searchers[token_id] >= self._settings.token_searches_max:
            raise too_many(f"{self._searchers[token_id]} such searches of this token wait or run already")
        if self._searches is None:
            self._searches = asyncio.Semaphore(self._settings.searches_max)
        own = self._searching.setdefault(token_id, asyncio.Lock())
        with _counted(self._searchers, token_id):
            try:
                async with own, self._searches:
                    yield
            finally:
                if self._searchers[token_id] <= 1:
                    self._searching.pop(token_id, None)

    async def _delayed_refusal(self, token_id: str, reason: str) -> HttpProblem:
        if self._delayed[token_id] >= DELAYED_REFUSALS_MAX:
            problem = too_many(reason)
            problem.headers["Connection"] = "close"
            return problem
        with _counted(self._delayed, token_id):
            await asyncio.sleep(REFUSAL_DELAY_S)
        return too_many(reason)

    def _limit(self, *, is_queued: bool = False) -> int:
        """How many requests of one token are worked on at a time: one, if it has more waiting while others are
        active too."""
        others = len(self._seen) - 1
        return 1 if is_queued and others > 0 else max(1, self._settings.requests_at_once // (max(others, 0) + 1))

    def _mark_active(self, token_id: str) -> None:
        """Marks a token as active, and forgets those that were not for a while and have no request."""
        now_s = asyncio.get_running_loop().time()
        self._seen[token_id] = now_s
        self._seen.move_to_end(token_id)
        for other, at_s in list(self._seen.items()):
            if now_s - at_s <= ACTIVE_S and len(self._seen) <= _TOKENS_MAX:
                break
            if self._working[other] or self._waiting.get(other):
                self._seen[other] = now_s
                self._seen.move_to_end(other)
            else:
                del self._seen[other]

    def _wake(self, token_id: str) -> None:
        waiting = self._waiting.get(token_id)
        while waiting and self._working[token_id] < self._limit(is_queued=True):
            turn = waiting.popleft()
            if not turn.done():
                self._working[token_id] += 1
                turn.set_result(None)
        if waiting is not None and not waiting:
            del self._waiting[token_id]

    def _stop_waiting(self, token_id: str, turn: "asyncio.Future[None]") -> None:
        """Stops waiting for a turn; one that was granted meanwhile is released."""
        if turn.done() and not turn.cancelled():
            self.end_turn(token_id)
            return
        turn.cancel()
        waiting = self._waiting.get(token_id)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[token_id]


class RequestQuota:
    """What one request uses of its token's quota."""

    def __init__(self, quotas: TokenQuotas, key: str) -> None:
        self._quotas = quotas
        self._key = key
        self._held = 0
        self._has_stream = False
        self._is_working = False
        self._is_responding = False

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receives the body in the block; the request is not worked on meanwhile. Raises `HttpProblem` 429."""
        self._end_work()
        async with self._quotas.receiving(self._key):
            yield

    def hold(self, count: int) -> None:
        """Counts so many bytes of its body. Raises `HttpProblem` 429."""
        self._held += count
        self._quotas.hold(self._key, count)

    def take_stream(self) -> None:
        """Counts its response as an event stream. Raises `HttpProblem` 429."""
        self._quotas.take_stream(self._key)
        self._has_stream = True

    async def begin(self) -> None:
        """Waits until it may be worked on. Raises `HttpProblem` 429."""
        await self._quotas.wait_turn(self._key)
        self._is_working = True

    async def belong_to(self, key: str) -> None:
        """Moves it to the quota of its token, which is now known. Raises `HttpProblem` 429."""
        if key == self._key:
            return
        was_working, before = self._is_working, self._key
        self._end_work()
        self._quotas.leave(before)
        self._key = key
        if was_working:
            await self.begin()

    def start_response(self) -> None:
        """Ends its work: the client still reads, which must not delay the token's other requests."""
        self._end_work()
        if not self._has_stream:
            self._is_responding = True
            self._quotas.responses[self._key] += 1

    def end(self) -> None:
        """Releases everything it uses."""
        self._end_work()
        self._quotas.drop(self._key, self._held)
        self._held = 0
        if self._is_responding:
            self._is_responding = False
            _change(self._quotas.responses, self._key, -1)
        if self._has_stream:
            self._has_stream = False
            self._quotas.drop_stream(self._key)

    def _end_work(self) -> None:
        if self._is_working:
            self._is_working = False
            self._quotas.end_turn(self._key)


class QuotaMiddleware:
    """Gives each request its quota, and releases it at the end."""

    def __init__(self, app: ASGIApp, *, quotas: TokenQuotas) -> None:
        self._app = app
        self._quotas = quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request. Raises `HttpProblem` 429."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        quota = scope[QUOTA] = RequestQuota(self._quotas, self._quotas.key_of(scope))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                quota.start_response()
            await send(message)

        try:
            await quota.begin()
            await self._app(scope, receive, sent)
        finally:
            quota.end()


def too_many(reason: str) -> HttpProblem:
    """429: one token uses too much; the others are not affected."""
    return HttpProblem(
        status=429,
        name="too-many-requests",
        title="Too much at once for one token",
        detail=f"{reason}; wait for some of them, then ask again",
        headers={"Retry-After": "1"},
    )


@contextmanager
def _counted(counter: Counter[str], token_id: str) -> Iterator[None]:
    counter[token_id] += 1
    try:
        yield
    finally:
        _change(counter, token_id, -1)


def _change(counter: Counter[str], token_id: str, by: int) -> None:
    counter[token_id] += by
    if not counter[token_id]:
        del counter[token_id]


def _digest(text: str) -> bytes:
    """What is remembered of a token's text instead of the text itself."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
