"""Connections that hold what others need: how many there may be, how long one may take to ask and to read.

uvicorn waits for a request's head as long as it takes and as large as it gets, and for its answer to be read for ever.
Here a connection that waits for a request is closed after a while, and at once where a new one needs its place: the
oldest of whoever has the most, by the token they asked with, else by their address. So ten thousand of them that say
nothing keep nobody else out, and nobody loses their own to somebody who opens many. Nothing here looks at what is
asked.
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
"""An answer of which nothing was read for so long is given up."""
LOOKED_AFTER_S = 1.0


@dataclass(slots=True, kw_only=True)
class Patience:
    """What connections may take of one server, and which of them wait."""

    connections_max: int
    head_s_max: float
    """From the connection, or from the answer before, until the next request's head is here."""
    sending_s_max: float
    """Until an answer is read."""
    owned_max: int = 250
    """Connections of one token that stay open after an answer."""
    waiting: "OrderedDict[GuardedConnection, float]" = field(default_factory=OrderedDict)
    """Those without a request in hand, and since when; the oldest first."""
    owned: "Counter[str]" = field(default_factory=Counter)
    """How many connections each owner has, waiting or not."""
    looking: asyncio.TimerHandle | None = None

    waiting_of: "dict[str, OrderedDict[GuardedConnection, None]]" = field(default_factory=dict)
    """Those that wait, by owner; the oldest first."""

    def wait(self, connection: "GuardedConnection", since_s: float) -> None:
        """It has no request in hand from now on."""
        self.waiting[connection] = since_s
        self.waiting_of.setdefault(connection.owner, OrderedDict())[connection] = None

    def end_wait(self, connection: "GuardedConnection") -> None:
        """It has one, or is gone."""
        if self.waiting.pop(connection, None) is None:
            return
        others = self.waiting_of[connection.owner]
        del others[connection]
        if not others:
            del self.waiting_of[connection.owner]

    def oldest_of_the_most(self) -> "GuardedConnection | None":
        """Which of those that wait gives way; None where none waits."""
        owner = max(self.waiting_of, key=lambda one: self.owned[one], default=None)
        return None if owner is None else next(iter(self.waiting_of[owner]))

    def look(self, connections: set[Any]) -> None:
        """Closes what waited too long, gives up what nobody reads; and looks again while there are any."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection, since_s in list(self.waiting.items()):
            if now_s - since_s < self.head_s_max:
                break
            connection.close()
        for connection in list(connections):
            connection.look_at_reader(now_s)
        self.looking = loop.call_later(LOOKED_AFTER_S, self.look, connections) if connections else None


def guarded(patience: Patience) -> type[HttpToolsProtocol]:
    """uvicorn's protocol for one server, with this patience."""

    class Connection(GuardedConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, patience=patience, **options)

    return Connection


class GuardedConnection(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        patience: Patience,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience = patience
        self.owner = ""
        """Who has it: a token's id, or an address until there is one."""
        self._plain_bytes = 0
        """Of the request that is being read, all but its body: heads, trailers, the framing of chunks."""
        self._body_bytes = 0
        self._unread = 0
        self._unread_since_s: float | None = None
        self._moved_at_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes the place of the one that waits longest, where there is none left; is refused where none waits."""
        patience = self._patience
        super().connection_made(transport)
        self._belong_to(str(self.client[0]) if self.client else "unknown")
        if len(self.connections) > patience.connections_max and not self._make_room():
            self._refuse(503, "busy", "Too much at once", "as many requests as may be are in hand; ask again")
            return
        patience.wait(self, self.loop.time())
        if patience.looking is None:
            patience.looking = self.loop.call_later(LOOKED_AFTER_S, patience.look, self.connections)

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
        """A request is in hand."""
        self._patience.end_wait(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._plain_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of a request is here."""
        self._plain_bytes = self._body_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The next request is waited for; what may still come of the last one's body is read and forgotten."""
        super().on_response_complete()
        caller = self.cycle.scope.get(CALLER)
        if isinstance(caller, Caller):
            self._belong_to(f"token {caller.token_id}")
            if self._patience.owned[self.owner] > self._patience.owned_max and not self.transport.is_closing():
                self.close()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._patience.wait(self, self.loop.time())

    def close(self) -> None:
        """Waits no longer for a request; what was answered before is still sent."""
        self._patience.end_wait(self)
        self.transport.close()

    def look_at_reader(self, now_s: float) -> None:
        """Gives up an answer that is not read, or too slowly."""
        left = self.transport.get_write_buffer_size()
        if not left:
            self._unread_since_s = None
        elif self._unread_since_s is None:
            self._unread_since_s, self._moved_at_s, self._unread = now_s, now_s, left
        else:
            if left != self._unread:
                self._moved_at_s, self._unread = now_s, left
            is_stalled = now_s - self._moved_at_s >= STALLED_S_MAX
            if is_stalled or now_s - self._unread_since_s >= self._patience.sending_s_max:
                self.transport.abort()

    def _make_room(self) -> bool:
        oldest = self._patience.oldest_of_the_most()
        if oldest is None:
            return False
        oldest.close()
        return True

    def _belong_to(self, owner: str) -> None:
        self._patience.end_wait(self)
        owned = self._patience.owned
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
        self._patience.end_wait(self)
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.transport.close()
