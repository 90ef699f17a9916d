"""A connection as a server passes it to an ASGI app, for tests of middleware."""

import asyncio

from starlette.types import Message, Receive, Scope, Send


class Wire:
    """A connection as a server hands it to an app: pieces of a body, and what comes back."""

    def __init__(self, pieces: list[bytes], *, is_endless: bool = False, stalls: bool = False) -> None:
        self._pieces = pieces
        self._is_endless = is_endless
        self._stalls = stalls
        self.taken = 0
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        if self._stalls and not self._pieces:
            await asyncio.sleep(3600)
        piece = self._pieces[0] if self._is_endless else self._pieces.pop(0) if self._pieces else b""
        self.taken += len(piece)
        more = self._is_endless or bool(self._pieces) or self._stalls
        return {"type": "http.request", "body": piece, "more_body": more}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}


def scope_of(method: str = "POST", path: str = "/x", **headers: str) -> Scope:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
        "scheme": "http",
        "http_version": "1.1",
    }


async def echo_length(scope: Scope, receive: Receive, send: Send) -> None:
    """IdempotentResponses with how much it got."""
    got = 0
    while True:
        message = await receive()
        got += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-got", str(got).encode())]})
    await send({"type": "http.response.body", "body": b""})
