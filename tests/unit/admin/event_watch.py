"""A client of the event stream, for tests."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import FastAPI

EVENTS = "/api/v1/events"
PATIENCE_S = 20.0


class Watch:
    """A stream that is read as it comes: httpx would wait for its end."""

    def __init__(self, app: FastAPI, client: httpx.AsyncClient, **headers: str) -> None:
        self.status: int | None = None
        self.text = ""
        self._gone = asyncio.Event()
        self._heard = asyncio.Condition()
        sent = {"authorization": client.headers["authorization"], "host": "127.0.0.1", **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": EVENTS,
            "raw_path": EVENTS.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        async with self._heard:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self.text += message.get("body", b"").decode()
            self._heard.notify_all()

    async def until(self, is_so: Callable[["Watch"], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self._heard:
            await self._heard.wait_for(lambda: is_so(self))

    def events(self, name: str) -> list[dict[str, Any]]:
        found = []
        for block in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if fields.get("event") == name:
                found.append(json.loads(fields["data"]))
        return found

    async def go_away(self) -> None:
        self._gone.set()
        await self.ended()

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([self.task])
        self.task.result()
