"""`python -m tests.live.admin.two_instances.load`: asks at a steady rate, in a process of its own.

Reads what to do as JSON from stdin, prints what came of it as JSON. A request is timed from the moment it was due, not
from when it was sent: whoever waits for a slow server waits for the requests before theirs too.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.live.admin.two_instances.asking import Balanced, NoAnswer

MIX = {"list": 25, "filtered": 20, "show": 20, "stats": 8, "groups": 8, "redrives": 7, "progress": 7, "resolve": 5}
KNOWN_MAX = 500
REMEMBERED_EVERY = 4
LAST_S_MAX = 60.0


@dataclass(slots=True, kw_only=True)
class Known:
    """Ids that answers told of."""

    letters: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)


class Load:
    """One run."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._balanced = Balanced(plan["addresses"], plan["token"])
        self._queues: Sequence[str] = plan["queues"]
        self._rate = float(plan["rate"])
        self._seconds = float(plan["seconds"])
        self._luck = random.Random(plan["seed"])
        self._known = Known()
        self._rows: list[tuple[float, str, int, float, int]] = []
        self._failures: list[str] = []
        self._asked = 0

    async def run(self) -> dict[str, Any]:
        """All requests, each begun when it is due."""
        began_s = time.monotonic()
        tasks: set[asyncio.Task[None]] = set()
        for number in range(round(self._rate * self._seconds)):
            due_s = began_s + number / self._rate
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            task = asyncio.create_task(self._one(due_s, began_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_S_MAX)
        self._balanced.close()
        return {"rows": self._rows, "failures": self._failures, "unanswered": len(tasks)}

    async def _one(self, due_s: float, began_s: float) -> None:
        kind, method, path, body = self._choose()
        try:
            answered = await self._balanced.ask(method, path, body)
        except (NoAnswer, TimeoutError) as error:
            self._failures.append(f"{kind}: {type(error).__name__}")
            return
        took_ms = (time.monotonic() - due_s) * 1000
        self._rows.append((round(due_s - began_s, 3), kind, answered.status, round(took_ms, 1), answered.died))
        if answered.status >= 500:
            self._failures.append(f"{kind}: {answered.status} {answered.body[:300].decode(errors='replace')}")
        elif kind in ("filtered", "redrives") and answered.status == 200:
            self._remember(kind, answered.body)

    def _choose(self) -> tuple[str, str, str, object]:
        (kind,) = self._luck.choices(list(MIX), list(MIX.values()))
        known, choice = self._known, self._luck.choice
        if kind == "show" and known.letters:
            return kind, "GET", f"/api/v1/messages/{choice(known.letters)}", None
        if kind == "progress" and known.operations:
            return kind, "GET", f"/api/v1/redrives/{choice(known.operations)}", None
        if kind == "resolve" and known.pending:
            path = f"/api/v1/messages/{known.pending.pop(self._luck.randrange(len(known.pending)))}/resolve"
            return kind, "POST", path, {"why": "asked by the load"}
        if kind == "stats":
            return kind, "GET", choice(("/api/v1/stats", "/dlq/stats")), None
        if kind == "groups":
            return kind, "GET", choice(("/api/v1/groups", "/api/v1/groups?order=count")), None
        if kind in ("redrives", "progress"):
            return "redrives", "GET", "/api/v1/redrives", None
        if kind in ("filtered", "resolve"):
            queue = choice(self._queues)
            asked = choice((f"queue:{queue} status:pending", f"queue:{queue}", "error:Gateway", "redrives:0"))
            return "filtered", "GET", f"/api/v1/messages?q={quote(asked)}", None
        return "list", "GET", choice(("/api/v1/messages", "/dlq")), None

    def _remember(self, kind: str, body: bytes) -> None:
        self._asked += 1
        if self._asked % REMEMBERED_EVERY and self._known.letters and self._known.operations:
            return
        told = json.loads(body)
        if kind == "redrives":
            self._known.operations = [one["id"] for one in told["redrives"]]
            return
        self._known.letters = [*(one["id"] for one in told["messages"]), *self._known.letters][:KNOWN_MAX]
        pending = [one["id"] for one in told["messages"] if one["status"] == "pending"]
        self._known.pending = [*pending, *self._known.pending][:KNOWN_MAX]


if __name__ == "__main__":
    json.dump(asyncio.run(Load(json.load(sys.stdin)).run()), sys.stdout)
