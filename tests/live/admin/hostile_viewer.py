"""One viewer at full strength against everybody else: `python -m tests.live.admin.hostile_viewer [--seconds 60]`.

A server of its own with some thousand dead letters of a thousand topics, twenty of a megabyte, some with bodies dear
to hide a value in. First three honest callers ask for a while alone; then a viewer, who may see payloads, does what
they can at once: bodies that trickle, streams of events with their token written in many ways, filters that no index
answers, names with stars, dear bodies, as many lists as fit, answers that nobody reads, connections that say nothing.
Told are ratios of one run, since machines differ: the others' 95th percentile with and without the viewer, what they
were answered, whether they still had streams, and whether /healthz answered throughout.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from rig.serve_process import serving

from redrive.records import Redaction, Role, Token, mint_token
from redrive.stores import open_store
from redrive.wiring import new_id, new_secret, now_ms
from tests.unit.stores.made_letters import make_exported, make_letter, put

LETTERS, LARGE, LARGE_BYTES = 3_000, 20, 1_000_000
DEAR = " ".join(["-body.a.*.1:zz"] * 20)
STARS = ",".join(f"*z{number}*b*c*" for number in range(50))
EXACT = ",".join(f"t{number}" for number in range(450))
DEAR_BODIES, DEAR_BODY = 3, json.dumps({"customer": ['{"card'] * 300_000}).encode()
HONEST = (Role.VIEWER, Role.OPERATOR, Role.OPERATOR)
RATIO_MAX = 3.0
HEALTH_S_MAX = 5.0


@dataclass(slots=True)
class Seen:
    """What honest callers saw in one part of the run."""

    took_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def p95_ms(self) -> float:
        return sorted(self.took_s)[int(len(self.took_s) * 0.95)] * 1000 if self.took_s else 0.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How the run went."""

    before: Seen
    during: Seen
    health_asked: int
    health_answered: int
    health_s_max: float
    attack: dict[str, int]
    streams: Counter[int]
    """What an honest caller was answered who watched."""

    @property
    def ratio(self) -> float:
        return self.during.p95_ms / self.before.p95_ms

    @property
    def failures(self) -> list[str]:
        """What is not as it must be."""
        found = []
        if self.ratio > RATIO_MAX:
            found.append(f"others' p95 is {self.ratio:.2f} times that without the viewer")
        bad = {status: n for status, n in self.during.statuses.items() if status >= 500 or status in (0, 429)}
        if bad:
            found.append(f"others were answered {bad}")
        if set(self.streams) != {200}:
            found.append(f"others' streams of events were answered {dict(self.streams)}")
        if self.health_answered < self.health_asked:
            found.append(f"/healthz answered {self.health_answered} of {self.health_asked}")
        if any(int(status) >= 500 for status in self.attack if status.isdigit()):
            found.append(f"the viewer was answered 5xx: {self.attack}")
        return found


class Caller:
    """One connection that asks one thing after the other, as a dashboard's keep-alive does."""

    def __init__(self, address: str, token: str) -> None:
        place = urlsplit(address)
        self._host, self._port = str(place.hostname), int(place.port or 80)
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, *, method: str = "GET", body: Any = None) -> int:
        """The status; 0 where there was no answer."""
        sent = b"" if body is None else json.dumps(body).encode()
        for is_again in (False, True):
            was_used = self._streams is not None
            try:
                reader, writer = self._streams or await asyncio.open_connection(self._host, self._port)
                self._streams = reader, writer
                writer.write(self.head(method, path, len(sent)) + sent)
                await writer.drain()
                status, is_kept = await read_answer(reader)
            except (OSError, asyncio.IncompleteReadError, ValueError):
                self.close()
                # A connection that was kept may be closed just when it is used again: every client asks once more.
                if was_used and not is_again and method == "GET":
                    continue
                return 0
            if not is_kept:
                self.close()
            return status
        return 0

    def head(self, method: str, path: str, length: int) -> bytes:
        """A request's head."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Authorization: Bearer {self._token}"]
        if method != "GET":
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        return "\r\n".join([*lines, "", ""]).encode()

    def close(self) -> None:
        """Its connection is given up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """The status, and whether the connection stays."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(None, 2)[1])
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    if "content-length" in headers:
        await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return status, headers.get("connection") != "close"


async def be_honest(address: str, token: str, role: Role, ids: list[str], seen: Seen, until_s: float) -> None:
    """Lists, reads, counts; an operator changes something too."""
    caller, number = Caller(address, token), 0
    while time.monotonic() < until_s:
        id = ids[number % len(ids)]
        asks: list[tuple[str, str, Any]] = [
            ("GET", "/api/v1/messages?limit=20", None),
            ("GET", f"/api/v1/messages/{id}", None),
            ("GET", "/api/v1/messages?q=queue:orders&limit=20", None),
            ("GET", "/api/v1/stats", None),
        ]
        if role is Role.OPERATOR:
            asks.append(("POST", f"/api/v1/messages/{id}/resolve", {"why": "looked at"}))
        method, path, body = asks[number % len(asks)]
        number += 1
        began_s = time.monotonic()
        status = await caller.ask(path, method=method, body=body)
        seen.took_s.append(time.monotonic() - began_s)
        seen.statuses[status] += 1
        await asyncio.sleep(0.02)
    caller.close()


async def look_at_health(address: str, until_s: float) -> tuple[int, int, float]:
    """How often /healthz was asked and answered 200 in time, and the longest it took."""
    asked = answered = 0
    longest_s = 0.0
    caller = Caller(address, "")
    while time.monotonic() < until_s:
        asked += 1
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(HEALTH_S_MAX):
                answered += await caller.ask("/healthz") == 200
        except TimeoutError:
            caller.close()
        longest_s = max(longest_s, time.monotonic() - began_s)
        await asyncio.sleep(0.2)
    caller.close()
    return asked, answered, longest_s


async def watch_events(address: str, token: str, until_s: float) -> Counter[int]:
    """A dashboard that comes again and again; what it was answered."""
    statuses: Counter[int] = Counter()
    caller = Caller(address, token)
    while time.monotonic() < until_s:
        statuses[await caller.ask("/api/v1/events?for_s=1")] += 1
    caller.close()
    return statuses


async def attack(address: str, token: str, seconds: float) -> dict[str, int]:
    """Everything at once; how often the viewer was answered what, by status."""
    until_s, got = time.monotonic() + seconds, Counter[str]()

    async def flood(path: str) -> None:
        caller = Caller(address, token)
        while time.monotonic() < until_s:
            status = await caller.ask(path)
            got[str(status)] += 1
            if status in (0, 429):
                await asyncio.sleep(0.05)
        caller.close()

    async def trickle(method: str, path: str) -> None:
        while time.monotonic() < until_s:
            caller = Caller(address, token)
            try:
                reader, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port)
                writer.write(caller.head(method, path, 100_000) + b"{")
                while time.monotonic() < until_s and not reader.at_eof():
                    writer.write(b" ")
                    await writer.drain()
                    try:
                        async with asyncio.timeout(0.5):
                            got[str((await read_answer(reader))[0])] += 1
                        break
                    except TimeoutError:
                        pass
                writer.close()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                got["0"] += 1
            await asyncio.sleep(0.1)

    async def never_read(path: str, blanks: int = 0) -> None:
        while time.monotonic() < until_s:
            caller = Caller(address, " " * blanks + token)
            try:
                _, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port, limit=1)
                writer.write(caller.head("GET", path, 0))
                await writer.drain()
                await asyncio.sleep(min(5.0, max(0.0, until_s - time.monotonic())))
                writer.close()
            except OSError:
                got["0"] += 1
                await asyncio.sleep(0.1)

    async def say_nothing() -> None:
        while time.monotonic() < until_s:
            try:
                _, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port)
                await asyncio.sleep(min(3.0, max(0.0, until_s - time.monotonic())))
                writer.close()
            except OSError:
                await asyncio.sleep(0.1)

    dear = quote(DEAR)
    jobs = [
        *(flood(f"/api/v1/messages?limit=1000&q={dear}") for _ in range(9)),
        *(flood(f"/api/v1/stats?q={dear}") for _ in range(6)),
        *(flood("/api/v1/messages?limit=1000") for _ in range(14)),
        *(trickle("POST", "/api/v1/messages/resolve") for _ in range(30)),
        *(trickle("PATCH", "/api/v1/messages/x") for _ in range(30)),
        flood(f"/api/v1/messages?q=topic:{quote(STARS)}"),
        flood(f"/api/v1/messages?q=topic:{EXACT}"),
        flood("/dlq?" + "&".join(f"topic={quote(one)}" for one in STARS.split(","))),
        *(flood(f"/api/v1/messages/{dear_id(number % DEAR_BODIES)}") for number in range(2)),
        *(never_read("/api/v1/events", number % 8) for number in range(40)),
        *(never_read("/api/v1/messages?limit=1000") for _ in range(20)),
        *(say_nothing() for _ in range(300)),
    ]
    await asyncio.gather(*jobs)
    return dict(got)


def dear_id(number: int) -> str:
    """The id of a dead letter whose body is dear to hide a value in."""
    return make_letter(LETTERS + LARGE + number).id


async def seed(url: str) -> tuple[list[str], list[str]]:
    """Tokens, the viewer's first, and ids of dead letters."""
    texts = []
    async with await open_store(url) as store:
        for number, role in enumerate((Role.VIEWER, *HONEST)):
            token = Token(
                id=new_id(),
                name=f"caller {number}",
                role=role,
                sees_payloads=number == 0,
                created_at_ms=now_ms(),
                created_by="test",
            )
            text, secret_hash = mint_token(token.id, new_secret())
            await store.tokens.create(token, secret_hash=secret_hash, now_ms=now_ms())
            texts.append(text)
        hidden = Redaction(id=new_id(), kind="body", path="customer.card", hidden_from=Role.VIEWER)
        await store.redactions.set(hidden, who="test", now_ms=now_ms())
        small = [
            make_exported(make_letter(one, routing_key=f"topic.{one % 1_000}.{'x' * 60}"), body={"order": one})
            for one in range(LETTERS)
        ]
        for start in range(0, LETTERS, 500):
            await put(store, small[start : start + 500])
        lists = {"a": [[number, f"text {number}"] for number in range(LARGE_BYTES // 22)]}
        for one in range(LARGE):
            await put(store, [make_exported(make_letter(LETTERS + one), body=lists)])
        for one in range(DEAR_BODIES):
            await put(store, [make_exported(make_letter(LETTERS + LARGE + one), body=DEAR_BODY)])
    return texts, [one.letter.id for one in small]


async def play(address: str, tokens: list[str], ids: list[str], *, before_s: float, seconds: float) -> Outcome:
    """Honest callers alone, then with the viewer, who is a process of its own."""

    async def honest(seen: Seen, until_s: float) -> None:
        calls = zip(tokens[1:], HONEST, strict=True)
        await asyncio.gather(*(be_honest(address, token, role, ids, seen, until_s) for token, role in calls))

    await honest(Seen(), time.monotonic() + min(2.0, before_s))  # the first answers are slower
    before, during = Seen(), Seen()
    await honest(before, time.monotonic() + before_s)
    viewer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.admin.hostile_viewer", "--attack", address, "--seconds", str(seconds)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "HOSTILE_TOKEN": tokens[0]},
    )
    until_s = time.monotonic() + seconds
    (asked, answered, longest_s), _, streams, (told, _) = await asyncio.gather(
        look_at_health(address, until_s),
        honest(during, until_s),
        watch_events(address, tokens[1], until_s),
        viewer.communicate(),
    )
    return Outcome(
        before=before,
        during=during,
        health_asked=asked,
        health_answered=answered,
        health_s_max=longest_s,
        attack=json.loads(told),
        streams=streams,
    )


def run_hostile(folder: Path, *, before_s: float, seconds: float, database: str | None = None) -> Outcome:
    """A server of its own, and the run."""
    url = database or f"sqlite:///{folder / 'redrive.db'}"
    tokens, ids = asyncio.run(seed(url))
    away = {"REDRIVE_URL": "amqp://guest:guest@127.0.0.1:1/", "REDRIVE_DATABASE": url}
    with serving(folder, away, "--no-collect", "--no-auto-retry") as served:
        return asyncio.run(play(served.address, tokens, ids, before_s=before_s, seconds=seconds))


def main() -> None:
    """Exit 0: everybody else was served."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--before", type=float, default=15.0)
    parser.add_argument("--database", help="PostgreSQL, empty; else a new file of SQLite.")
    parser.add_argument("--attack", metavar="ADDRESS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        print(json.dumps(asyncio.run(attack(given.attack, os.environ["HOSTILE_TOKEN"], given.seconds))))
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_hostile(Path(folder), before_s=given.before, seconds=given.seconds, database=given.database)
    before, during = outcome.before, outcome.during
    print(f"others alone       {len(before.took_s):>6} requests, p95 {before.p95_ms:8.1f} ms, {dict(before.statuses)}")
    print(f"with the viewer    {len(during.took_s):>6} requests, p95 {during.p95_ms:8.1f} ms, {dict(during.statuses)}")
    print(f"ratio of p95       {outcome.ratio:6.2f}  (at most {RATIO_MAX:g})")
    print(
        f"/healthz           {outcome.health_answered} of {outcome.health_asked}, longest {outcome.health_s_max:.2f} s"
    )
    print(f"others' streams    {dict(outcome.streams)}")
    print(f"the viewer heard   {outcome.attack}")
    for failure in outcome.failures:
        print(f"FAILED: {failure}")
    raise SystemExit(1 if outcome.failures else 0)


if __name__ == "__main__":
    main()
