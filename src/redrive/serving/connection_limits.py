"""How many connections there may be, and how long one may take to send a request and to read its answer.

uvicorn waits for a request's head as long as it takes and as large as it gets, and forever for its answer to be read.
Here an idle connection is closed after a while, and at once when a new one needs its slot: the oldest idle one of the
owner with the most connections (an owner is the token they asked with, else their address). So ten thousand silent
connections keep nobody out, and nobody loses their own to somebody who opens many. Nothing here looks at what is asked.
"""

import asyncio
import json
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from redrive.admin import CALLER, Caller

HEAD_BYTES_MAX = 64 * 1024
"""Of a request's first line and headers."""
STALLED_S_MAX = 30.0
"""An answer of which the client read nothing for so long is aborted."""
CHECK_INTERVAL_S = 1.0


@dataclass(slots=True, kw_only=True)
class ConnectionLimits:
    """The limits of one server, and which of its connections are idle."""

    connections_max: int
    head_s_max: float
    """From the connection, or from the answer before, until the next request's head is here."""
    sending_s_max: float
    """Until an answer is read."""
    owned_max: int = 250
    """Connections of one token that stay open after an answer."""
    waiting: "OrderedDict[LimitedConnection, float]" = field(default_factory=OrderedDict)
    """Idle connections, and since when; the oldest first."""
    owned: "Counter[str]" = field(default_factory=Counter)
    """How many connections each owner has, idle or not."""
    checking: asyncio.TimerHandle | None = None

    waiting_of: "dict[str, OrderedDict[LimitedConnection, None]]" = field(default_factory=dict)
    """Idle connections by owner; the oldest first."""

    def wait(self, connection: "LimitedConnection", since_s: float) -> None:
        """The connection is idle from now on."""
        self.waiting[connection] = since_s
        self.waiting_of.setdefault(connection.owner, OrderedDict())[connection] = None

    def end_wait(self, connection: "LimitedConnection") -> None:
        """The connection has a request, or is gone."""
        if self.waiting.pop(connection, None) is None:
            return
        others = self.waiting_of[connection.owner]
        del others[connection]
        if not others:
            del self.waiting_of[connection.owner]

    def next_to_close(self) -> "LimitedConnection | None":
        """The idle connection to close when a new one needs a slot; None if none is idle."""
        owner = max(self.waiting_of, key=lambda one: self.owned[one], default=None)
        return None if owner is None else next(iter(self.waiting_of[owner]))

    def check(self, connections: set[Any]) -> None:
        """Closes what was idle too long, aborts answers that nobody reads; repeats while there are connections."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection, since_s in list(self.waiting.items()):
            if now_s - since_s < self.head_s_max:
                break
            connection.close()
        for connection in list(connections):
            connection.check_reader(now_s)
        self.checking = loop.call_later(CHECK_INTERVAL_S, self.check, connections) if connections else None


def limited_protocol(limits: ConnectionLimits) -> type[HttpToolsProtocol]:
    """uvicorn's protocol for one server, with these limits."""

    class Connection(LimitedConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, limits=limits, **options)

    return Connection


class LimitedConnection(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self.owner = ""
        """Who has it: a token's id, or an address until there is one."""
        self._plain_bytes = 0
        """Of the request that is being read, all but its body: heads, trailers, the framing of chunks."""
        self._body_bytes = 0
        self._unread = 0
        self._unread_since_s: float | None = None
        self._moved_at_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the slot of an idle connection if none is left; is refused if none is idle."""
        limits = self._limits
        super().connection_made(transport)
        self._belong_to(str(self.client[0]) if self.client else "unknown")
        if len(self.connections) > limits.connections_max and not self._close_an_idle_one():
            self._refuse(503, "busy", "Too much at once", "the server has reached its connection limit; try again")
            return
        limits.wait(self, self.loop.time())
        if limits.checking is None:
            limits.checking = self.loop.call_later(CHECK_INTERVAL_S, limits.check, self.connections)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._belong_to("")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, unless the head gets too large."""
        if self.transport.is_closing():
            return
        self._plain_bytes += len(data)
        super().data_received(data)
        # Which of it was body is known only now.
        if self._plain_bytes <= HEAD_BYTES_MAX + self._body_bytes or self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            detail = f"the request's first line and headers are larger than {HEAD_BYTES_MAX:,} bytes; send less"
            self._refuse(431, "head-too-large", "The head is too large", detail)
        else:
            self.transport.abort()  # trailers without end, or bytes in chunks of their own

    def on_headers_complete(self) -> None:
        """A request begins."""
        self._limits.end_wait(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._plain_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        self._plain_bytes = self._body_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request; what still arrives of the last one's body is read and dropped."""
        super().on_response_complete()
        caller = self.cycle.scope.get(CALLER)
        if isinstance(caller, Caller):
            self._belong_to(f"token {caller.token_id}")
            if self._limits.owned[self.owner] > self._limits.owned_max and not self.transport.is_closing():
                self.close()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._limits.wait(self, self.loop.time())

    def close(self) -> None:
        """Waits for no further request; earlier answers are still sent."""
        self._limits.end_wait(self)
        self.transport.close()

    def check_reader(self, now_s: float) -> None:
        """Aborts an answer that is not read, or too slowly."""
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread_since_s = None
        elif self._unread_since_s is None:
            self._unread_since_s, self._moved_at_s, self._unread = now_s, now_s, left
        else:
            if left != self._unread:
                self._moved_at_s, self._unread = now_s, left
            is_stalled = now_s - self._moved_at_s >= STALLED_S_MAX
            if is_stalled or now_s - self._unread_since_s >= self._limits.sending_s_max:
                self.transport.abort()

    def _close_an_idle_one(self) -> bool:
        oldest = self._limits.next_to_close()
        if oldest is None:
            return False
        oldest.close()
        return True

    def _belong_to(self, owner: str) -> None:
        self._limits.end_wait(self)
        owned = self._limits.owned
        if self.owner:
            owned[self.owner] -= 1
            if not owned[self.owner]:
                del owned[self.owner]
        self.owner = owner
        if owner:
            owned[owner] += 1

    def _refuse(self, status: int, name: str, title: str, detail: str) -> None:
        """Answers without a request, and closes."""
        problem = {"type": f"urn:redrive:problem:{name}", "title": title, "status": status, "detail": detail}
        body = json.dumps({**problem, "instance": ""}).encode()
        phrase = {431: "Request Header Fields Too Large", 503: "Service Unavailable"}[status]
        lines = [
            f"HTTP/1.1 {status} {phrase}",
            "content-type: application/problem+json",
            f"content-length: {len(body)}",
            "connection: close",
            *(["retry-after: 5"] if status == 503 else []),
        ]
        self._limits.end_wait(self)
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()
