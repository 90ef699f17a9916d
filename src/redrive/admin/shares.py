"""One token's share of the API, so that nobody can take it from the others: requests at once, bodies on their way,
bytes in hand, answers being read, streams of events, searches that no index answers.

Whoever is alone may have all of it. As soon as others ask too, a token works on a few requests at a time, its next ones
wait for its own, and beyond a bounded number of those it is answered 429, late. All this is decided before the token is
looked up, since looking it up is what a flood of requests would cost most: so it is about the secret that was sent, and
nobody can use up another's share without it. Whose secret was not looked up yet, or is nobody's, takes of the share of
the address it comes from until it was: as many made-up tokens as somebody likes are one sender. Nothing here looks at
what is asked.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin.problems import Problem
from redrive.admin.senders import address_of, bearer_of, origin_of
from redrive.admin.settings import Settings

SHARE = "redrive.share"
"""Where in a request's scope its share is."""
ACTIVE_S = 2.0
"""Who asked so lately counts as somebody to leave room for."""
WAIT_S_MAX = 10.0
LATE_S = 1.0
"""Who asks too much is told so after a while: an answer at once would be asked for again at once."""
LATE_MAX = 64
"""But so many at a time of one token: they hold connections."""
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
_TOKENS_MAX = 10_000
_ADDRESS = "address "
"""Begins the key of a share that is no token's: an id has no blanks."""
_NEWCOMERS = 8


class Shares:
    """Who has how much of one app in hand. Belongs to one event loop."""

    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()
        """Bodies that are being received."""
        self.bytes: Counter[str] = Counter()
        """Of bodies in hand."""
        self.answers: Counter[str] = Counter()
        """Answers that are being sent, streams not among them."""
        self.streams: Counter[str] = Counter()
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._late: Counter[str] = Counter()
        self._searching: dict[str, asyncio.Lock] = {}
        self._searchers: Counter[str] = Counter()
        self._searches: asyncio.Semaphore | None = None
        self._known: OrderedDict[bytes, str] = OrderedDict()

    def key_of(self, scope: Scope) -> str:
        """Whose share a request is of: its token's, where that was lately right; else that of its address."""
        text = bearer_of(scope)
        token_id = None if text is None else self._known.get(_digest(text))
        return f"{_ADDRESS}{origin_of(address_of(scope))}" if token_id is None else token_id

    def know(self, text: str, token_id: str) -> None:
        """This text is the token with this id."""
        digest = _digest(text)
        self._known[digest] = token_id
        self._known.move_to_end(digest)
        while len(self._known) > _TOKENS_MAX:
            self._known.popitem(last=False)

    def forget(self, text: str) -> None:
        """This text is no token, or no longer."""
        self._known.pop(_digest(text), None)

    def leave(self, key: str) -> None:
        """Nobody counts as asking by this key, unless there is something in hand."""
        if not self._working[key] and not self._waiting.get(key):
            self._seen.pop(key, None)

    @asynccontextmanager
    async def receiving(self, token_id: str, settings: Settings) -> AsyncIterator[None]:
        """While the block runs a body is received. Raises `Problem` 429 where as many are on their way as may be."""
        if self.bodies[token_id] >= settings.token_bodies_max:
            reason = f"{self.bodies[token_id]} request bodies of this token are on their way already"
            raise await self._late_refusal(token_id, reason)
        with _counted(self.bodies, token_id):
            yield

    def hold(self, token_id: str, count: int, settings: Settings) -> None:
        """So many bytes more of a body are in hand; `drop` gives them back. Raises `Problem` 429."""
        _change(self.bytes, token_id, count)
        if self.bytes[token_id] > settings.token_bytes_max:
            raise too_many(f"this token's requests have more than {settings.token_bytes_max:,} bytes in hand together")

    def drop(self, token_id: str, count: int) -> None:
        """Gives back what `hold` took."""
        _change(self.bytes, token_id, -count)

    def take_stream(self, token_id: str, settings: Settings) -> None:
        """One stream of events more. Raises `Problem` 429."""
        if self.streams[token_id] >= settings.token_streams_max:
            raise too_many(f"{self.streams[token_id]} streams of this token are open, which is as many as may be")
        self.streams[token_id] += 1

    def drop_stream(self, token_id: str) -> None:
        """Gives it back."""
        _change(self.streams, token_id, -1)

    async def wait_turn(self, token_id: str, settings: Settings) -> None:
        """Returns when a request of this token may be worked on; `end_turn` gives it back. Raises `Problem` 429."""
        if self.answers[token_id] >= settings.token_answers_max:
            raise too_many(f"{self.answers[token_id]} answers to this token are not read; read them first")
        self._look(token_id)
        waiting = self._waiting.get(token_id)
        if not waiting and self._working[token_id] < self._limit(settings):
            self._working[token_id] += 1
            return
        if waiting is None:
            waiting = self._waiting[token_id] = deque()
        # Behind an address may be many who come for the first time.
        most = settings.token_waiting_max * (_NEWCOMERS if token_id.startswith(_ADDRESS) else 1)
        if len(waiting) >= most:
            raise await self._late_refusal(
                token_id, f"{len(waiting)} requests of this token wait for their turn already"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except TimeoutError:
            self._leave(token_id, turn, settings)
            raise too_many("this token's other requests take all of its time") from None
        except BaseException:
            self._leave(token_id, turn, settings)
            raise

    def end_turn(self, token_id: str, settings: Settings) -> None:
        """Another request may be worked on."""
        _change(self._working, token_id, -1)
        self._wake(token_id, settings)

    @asynccontextmanager
    async def searching(self, token_id: str, settings: Settings) -> AsyncIterator[None]:
        """While the block runs a search looks at dead letters one by one, which takes one of the database's few
        connections for long: one for each token at a time, and a few in all. Raises `Problem` 429."""
        if self._searchers[token_id] >= settings.token_searches_max:
            raise too_many(f"{self._searchers[token_id]} such searches of this token wait or run already")
        if self._searches is None:
            self._searches = asyncio.Semaphore(settings.searches_max)
        own = self._searching.setdefault(token_id, asyncio.Lock())
        with _counted(self._searchers, token_id):
            try:
                async with own, self._searches:
                    yield
            finally:
                if self._searchers[token_id] <= 1:
                    self._searching.pop(token_id, None)

    async def _late_refusal(self, token_id: str, reason: str) -> Problem:
        if self._late[token_id] >= LATE_MAX:
            problem = too_many(reason)
            problem.headers["Connection"] = "close"
            return problem
        with _counted(self._late, token_id):
            await asyncio.sleep(LATE_S)
        return too_many(reason)

    def _limit(self, settings: Settings, *, is_queued: bool = False) -> int:
        """How many requests of one token are worked on at a time; of one that has more waiting, while others ask too,
        one."""
        others = len(self._seen) - 1
        return 1 if is_queued and others > 0 else max(1, settings.requests_at_once // (max(others, 0) + 1))

    def _look(self, token_id: str) -> None:
        """Who asks, and who has not for a while and has nothing in hand."""
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

    def _wake(self, token_id: str, settings: Settings) -> None:
        waiting = self._waiting.get(token_id)
        while waiting and self._working[token_id] < self._limit(settings, is_queued=True):
            turn = waiting.popleft()
            if not turn.done():
                self._working[token_id] += 1
                turn.set_result(None)
        if waiting is not None and not waiting:
            del self._waiting[token_id]

    def _leave(self, token_id: str, turn: "asyncio.Future[None]", settings: Settings) -> None:
        """Somebody waits no longer; a turn that was given meanwhile is given back."""
        if turn.done() and not turn.cancelled():
            self.end_turn(token_id, settings)
            return
        turn.cancel()
        waiting = self._waiting.get(token_id)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[token_id]


class Share:
    """What one request has of its token's share."""

    def __init__(self, shares: Shares, key: str, settings: Settings) -> None:
        self._shares = shares
        self._key = key
        self._settings = settings
        self._held = 0
        self._has_stream = False
        self._is_working = False
        self._is_answering = False

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """While the block runs its body is received, and nothing is worked on. Raises `Problem` 429."""
        self._end_work()
        async with self._shares.receiving(self._key, self._settings):
            yield

    def hold(self, count: int) -> None:
        """So many bytes of its body are in hand. Raises `Problem` 429."""
        self._held += count
        self._shares.hold(self._key, count, self._settings)

    def take_stream(self) -> None:
        """The answer will be a stream of events. Raises `Problem` 429."""
        self._shares.take_stream(self._key, self._settings)
        self._has_stream = True

    async def begin(self) -> None:
        """It is worked on. Raises `Problem` 429."""
        await self._shares.wait_turn(self._key, self._settings)
        self._is_working = True

    async def belong_to(self, key: str) -> None:
        """It turns out whose it is, and takes of that share from here on. Raises `Problem` 429."""
        if key == self._key:
            return
        was_working, before = self._is_working, self._key
        self._end_work()
        self._shares.leave(before)
        self._key = key
        if was_working:
            await self.begin()

    def answers(self) -> None:
        """The work is done: what is left is the client's reading, which must not hold up the token's other requests."""
        self._end_work()
        if not self._has_stream:
            self._is_answering = True
            self._shares.answers[self._key] += 1

    def end(self) -> None:
        """Gives back whatever it has."""
        self._end_work()
        self._shares.drop(self._key, self._held)
        self._held = 0
        if self._is_answering:
            self._is_answering = False
            _change(self._shares.answers, self._key, -1)
        if self._has_stream:
            self._has_stream = False
            self._shares.drop_stream(self._key)

    def _end_work(self) -> None:
        if self._is_working:
            self._is_working = False
            self._shares.end_turn(self._key, self._settings)


class FairTurns:
    """Each token's requests are worked on by turns."""

    def __init__(self, app: ASGIApp, *, shares: Shares, settings: Settings) -> None:
        self._app = app
        self._shares = shares
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Raises `Problem` 429."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        share = scope[SHARE] = Share(self._shares, self._shares.key_of(scope), self._settings)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                share.answers()
            await send(message)

        try:
            await share.begin()
            await self._app(scope, receive, sent)
        finally:
            share.end()


def too_many(reason: str) -> Problem:
    """429: one token takes too much; the others are as free as ever."""
    return Problem(
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
    """What is remembered of a token's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
