"""Services that do what a message tells them to, in Python and in node, and what must become of each message.

A message's body is `{"script": [503, 204]}`: what the service does the first time it sees the message, the second, and
so on; the last repeats. A number is a status, the words are what goes wrong on the way.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.runtime_push.services import Request, Service, Wire

NODE_SERVICE = Path(__file__).with_name("scripted_service.js")
TOO_SLOW_S = {"python": 0.6, "node": 1.5}
"""How long a pusher waits. A process that has just started may take its time over the first answers."""
ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A script, and where its message ends: handled (`parked` None), or parked for a reason with a status and an error.

    `requests` is how often the service sees it: once for each attempt, also where its connection is dropped.
    """

    script: list[int | str]
    requests: int
    parked: str | None = None
    status: int | None = None
    error: str = ""


CASES = {
    "m-done": Case(script=[200], requests=1),
    "m-no-content": Case(script=[204], requests=1),
    "m-second": Case(script=[503, 202], requests=2),
    "m-third": Case(script=[429, 409, 204], requests=3),
    "m-timeout-status": Case(script=[408, 204], requests=2),
    "m-unavailable": Case(script=[500], requests=3, parked="attempts", status=500, error="BadAnswer: 500"),
    "m-conflict": Case(script=[409], requests=3, parked="attempts", status=409, error="BadAnswer: 409"),
    "m-missing": Case(script=[404], requests=1, parked="status", status=404, error="BadAnswer: 404"),
    "m-bad": Case(script=[503, 422], requests=2, parked="status", status=422, error="BadAnswer: 422"),
    "m-moved": Case(script=[302], requests=3, parked="attempts", status=302, error="BadAnswer: 302"),
    "m-early": Case(script=[425, 204], requests=2),
    "m-retry-after": Case(script=["503 in 1", 204], requests=2),
    "m-half": Case(script=["half", 204], requests=2),
    "m-dropped": Case(script=["drop", "drop", 204], requests=3),
    "m-always-dropped": Case(script=["drop"], requests=3, parked="attempts", error="Dropped: "),
    "m-slow": Case(script=["slow", 204], requests=2),
    "m-always-slow": Case(script=["slow"], requests=3, parked="attempts", error="TooSlow: "),
}


def body_of(case: Case) -> bytes:
    return json.dumps({"script": case.script}).encode()


@dataclass(kw_only=True)
class Seen:
    """What a service was asked, by message id."""

    requests: Counter[str]
    attempts: dict[str, list[str]]
    unsigned: int = 0


def check_requests(seen: Seen, cases: dict[str, Case]) -> None:
    """Each message was seen as often as it had to be, with attempts that count up."""
    for name, case in cases.items():
        assert seen.requests[name] == case.requests, name
        attempts = [int(attempt) for attempt in seen.attempts[name]]
        counted = case.script[0] != 425
        assert attempts == sorted(attempts), name
        assert attempts[-1] == (case.requests if counted else 1), (name, attempts)
    assert seen.unsigned == 0


def check_parked(parked: dict[str, dict[str, object]], cases: dict[str, Case]) -> None:
    """Exactly the messages that had to be parked are, each saying why. `parked` has their headers by message id."""
    assert sorted(parked) == sorted(name for name, case in cases.items() if case.parked is not None)
    for name, headers in parked.items():
        case = cases[name]
        assert headers["x-redrive-reason"] == case.parked, name
        assert headers.get("x-final-status-code") == case.status, name
        assert str(headers["x-final-error"]).startswith(case.error), name
        assert headers["x-final-retry-count"] == (case.requests - 1), name
        assert headers["x-original-queue"] == "orders", name


@asynccontextmanager
async def python_service(is_signed: Callable[[str, bytes], bool]) -> AsyncIterator[tuple[str, Seen]]:
    """The service over raw sockets; yields its URL and what it has seen."""
    seen = Seen(requests=Counter(), attempts={})

    async def behave(request: Request, wire: Wire) -> None:
        name = request.headers["x-redrive-message-id"]
        script = json.loads(request.body)["script"]
        word = script[min(seen.requests[name], len(script) - 1)]
        seen.requests[name] += 1
        seen.attempts.setdefault(name, []).append(request.headers["x-redrive-attempt"])
        seen.unsigned += not is_signed(request.headers["x-redrive-signature"], request.body)
        match word:
            case int():
                await wire.answer(word, body=b"" if word == 204 else b"why not", location="/elsewhere")
            case "drop":
                wire.drop()
            case "half":
                await wire.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                wire.writer.close()
            case "slow":
                await asyncio.Event().wait()
            case _:
                status, _, seconds = word.partition(" in ")
                await wire.answer(int(status), retry_after=seconds)

    async with Service(behave) as service:
        yield service.url, seen


@asynccontextmanager
async def node_service(secret: str) -> AsyncIterator[tuple[str, Seen]]:
    """The same in node, as a process of its own, which tells what it sees on its output."""
    process = await asyncio.create_subprocess_exec(
        "node", str(NODE_SERVICE), env={"SECRET": secret, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    seen = Seen(requests=Counter(), attempts={})
    port = int(await asyncio.wait_for(process.stdout.readline(), 20))

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            told = json.loads(line)
            seen.requests[told["id"]] += 1
            seen.attempts.setdefault(told["id"], []).append(told["attempt"])
            seen.unsigned += not told["signed"]

    reading = asyncio.create_task(read())
    try:
        yield f"http://127.0.0.1:{port}/hook", seen
    finally:
        process.terminate()
        await process.wait()
        await reading
