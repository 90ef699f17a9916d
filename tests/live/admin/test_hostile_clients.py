"""Clients that take more than their share: endless bodies and heads, slow ones, ten thousand at once.

Each is refused or served; the server answers others meanwhile and afterwards, its memory stays bounded, and nothing is
changed. It runs as a process, without a broker.
"""

import asyncio
import json
import resource
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rig.serve_process import Served, serving

from redrive.stores import Store
from tests.unit.stores.made_letters import make_exported, make_letter, on_store, put

MEGABYTE = 1_000_000
TEST_S_MAX = 55.0
ANSWER_S_MAX = 20.0
"""Generous: the machine may be busy. Nobody waits so long on one that is not."""
LETTERS = 20
CONNECTIONS, BATCH = 10_000, 500
FILES = CONNECTIONS + 500
NO_CONNECTION = -1
CHUNK = bytes(64 * 1024)
GROWTH_MAX = 150 * MEGABYTE
"""Of the process's memory by all that a test does at once: far less than what is thrown at it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with dead letters, a megabyte each, and no broker; one for all tests, which it survives."""
    folder = tmp_path_factory.mktemp("hostile")
    database = f"sqlite:///{folder / 'redrive.db'}"

    async def fill(store: Store) -> None:
        letters = [make_letter(n, size_bytes=MEGABYTE) for n in range(LETTERS)]
        await put(store, [make_exported(one, body="x" * MEGABYTE) for one in letters])

    on_store(database, fill)
    environment = {"REDRIVE_DATABASE": database, "REDRIVE_URL": "amqp://guest:guest@127.0.0.1:1/"}
    with serving(folder, environment, "--no-collect") as made:
        yield made
        assert made.stop() == 0


@pytest.fixture
def served(server: Served) -> Iterator[Served]:
    """The server, of which nothing is changed by the test."""
    yield server
    assert_unchanged(server.log.parent / "redrive.db")


def assert_unchanged(path: Path) -> None:
    """Every dead letter is as it was put, and there is no operation."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        assert database.execute("SELECT status, version, COUNT(*) FROM letters GROUP BY 1, 2").fetchall() == [
            ("pending", 1, LETTERS)
        ]
        assert database.execute("SELECT COUNT(*) FROM operations").fetchall() == [(0,)]


class Client:
    """Raw connections to a server, and what its process takes."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._pid = served.process.pid
        # Whoever asks beside them has a token of its own: what one takes for itself is its own share only.
        new = json.dumps({"name": f"bystander {uuid4()}", "role": "viewer", "payloads": True})
        made = served.ask("/api/v1/tokens", "--json", new)
        self._bystander = str(made.json["token"])
        self.before = self.memory()

    def memory(self) -> int:
        """The server's resident bytes."""
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def assert_bounded(self, growth: int = GROWTH_MAX) -> None:
        grown = self.memory() - self.before
        assert grown < growth, f"{grown / MEGABYTE:.0f} MB more than before"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await asyncio.open_connection("127.0.0.1", self._served.port)

    def head(self, method: str, path: str, *headers: str, token: bool | str = True) -> bytes:
        """A request's head, with the admin's token, with another one, or with none."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
        if token:
            lines.append(f"Authorization: Bearer {self._served.token if token is True else token}")
        return "\r\n".join([*lines, "", ""]).encode()

    async def ask(self, path: str = "/api/v1/messages?limit=1") -> int:
        """The status of a plain request on a connection of its own."""
        reader, writer = await self.open()
        try:
            writer.write(self.head("GET", path, "Connection: close", token=self._bystander))
            return await status_of(reader)
        finally:
            writer.close()

    async def assert_answers(self) -> None:
        """It answers a plain request, soon."""
        begun_s = time.monotonic()
        assert await self.ask() == 200
        assert time.monotonic() - begun_s < ANSWER_S_MAX


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the answer that comes; 0 where the connection is closed without one."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            line = await reader.readline()
    except ConnectionError:
        return 0
    return int(line.split()[1]) if line else 0


async def send_all(writer: asyncio.StreamWriter, size: int, wrap: Callable[[bytes], bytes] = bytes) -> int:
    """Sends so many bytes, or until the server has enough; how many went."""
    sent = 0
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            while sent < size:
                writer.write(wrap(CHUNK))
                await writer.drain()
                sent += len(CHUNK)
    except (ConnectionError, TimeoutError):
        pass
    return sent


def as_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario, which must come to its end by itself."""

    async def in_time() -> None:
        async with asyncio.timeout(TEST_S_MAX):
            await scenario

    asyncio.run(in_time())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("token", [True, False])
def test_a_hundred_megabytes_are_refused_and_not_held(served: Served, method: str, token: bool) -> None:
    async def scenario() -> None:
        client = Client(served)
        path = f"/api/v1/messages/{make_letter(0).id}" if method == "PATCH" else "/api/v1/messages/delete"
        refused = 413 if token else 401
        size = 100 * MEGABYTE

        async def declared() -> int:
            reader, writer = await client.open()
            writer.write(client.head(method, path, f"Content-Length: {size}", token=token))
            status = await status_of(reader)  # before any of the body was sent
            await send_all(writer, size)
            writer.close()
            return status

        async def chunked() -> int:
            reader, writer = await client.open()
            writer.write(client.head(method, path, "Transfer-Encoding: chunked", token=token))
            sending = asyncio.create_task(send_all(writer, size, as_chunk))
            status = await status_of(reader)
            await sending
            writer.close()
            return status

        assert await declared() == refused
        assert await chunked() == refused
        await client.assert_answers()
        client.assert_bounded()

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("endless", ["path", "header", "headers", "trailers"])
def test_a_head_without_an_end_is_refused_and_not_held(served: Served, endless: str) -> None:
    begins = {
        "path": b"GET /",
        "header": b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ",
        "headers": b"GET / HTTP/1.1\r\nHost: x\r\n",
        "trailers": b"POST /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ",
    }
    wraps: dict[str, Callable[[bytes], bytes]] = {
        "headers": lambda data: b"X-Some: " + b"x" * (len(data) - 10) + b"\r\n"
    }

    async def scenario() -> None:
        client = Client(served)
        reader, writer = await client.open()
        writer.write(begins[endless])
        sent = await send_all(writer, 50 * MEGABYTE, wraps.get(endless, lambda data: b"x" * len(data)))
        assert sent < 50 * MEGABYTE  # it did not take all of it
        assert await status_of(reader) in (0, 431, 401, 405)  # a reset may come before the answer is read
        writer.close()
        await client.assert_answers()
        client.assert_bounded(30 * MEGABYTE)

    run(scenario())


@pytest.mark.slow
def test_slow_clients_hold_nobody_up_and_are_given_up(served: Served) -> None:
    """Slow heads and bodies, at the same time; they end when the server has had enough of them."""

    async def scenario() -> None:
        client = Client(served)

        async def drip(begin: bytes) -> int:
            reader, writer = await client.open()
            writer.write(begin)
            answer = asyncio.create_task(reader.readline())
            try:
                async with asyncio.timeout(45):
                    while not answer.done():
                        writer.write(b"x")
                        await writer.drain()
                        await asyncio.wait([answer], timeout=0.5)
                line = await answer
                return int(line.split()[1]) if line else 0
            except ConnectionError:
                return 0
            finally:
                answer.cancel()
                writer.close()

        body = client.head(
            "POST", "/api/v1/messages/delete", "Content-Length: 500000", "Content-Type: application/json"
        )
        slow = [asyncio.create_task(drip(b"GET /healthz HTTP/1.1\r\nX-Slow: ")) for _ in range(200)]
        slow += [asyncio.create_task(drip(body)) for _ in range(200)]
        for _ in range(10):
            await client.assert_answers()
        ended = Counter(await asyncio.gather(*slow))
        # Slow heads are hung up on. Of the slow bodies a token may have only some at once: the others are told so.
        assert ended[0] == 200
        assert ended[408] > 0
        assert ended[408] + ended[429] == 200
        await client.assert_answers()
        client.assert_bounded()

    run(scenario())


@pytest.mark.slow
def test_clients_that_do_not_read_hold_nobody_up(served: Served) -> None:
    async def scenario() -> None:
        client = Client(served)
        held: list[asyncio.StreamWriter] = []
        for n in range(40):
            _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
            transport = writer.transport
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            writer.write(client.head("GET", f"/api/v1/messages/{make_letter(n % LETTERS).id}/body"))
            held.append(writer)
        for _ in range(10):
            await client.assert_answers()
        # An answer is held once by each that asked for it, and twice while it is written.
        client.assert_bounded(40 * 2 * MEGABYTE + GROWTH_MAX)
        for writer in held:
            writer.transport.abort()
        await client.assert_answers()

    run(scenario())


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may open as many files as ten thousand connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"this machine allows a process only {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("many_files")
def test_ten_thousand_connections_at_once_keep_nobody_out(served: Served) -> None:
    """A quarter says nothing, a quarter half of a head; the others ask, with a token and without."""

    async def scenario() -> None:
        client = Client(served)
        kinds = {
            "silent": b"",
            "half": b"GET /healthz HTTP/1.1\r\nHost: ",
            "asks": client.head("GET", "/healthz"),
            "tokenless": client.head("POST", "/api/v1/messages/delete", "Content-Length: 0", token=False),
        }
        held: list[asyncio.StreamWriter] = []
        statuses: Counter[tuple[str, int]] = Counter()

        async def connect(kind: str) -> None:
            try:
                reader, writer = await client.open()
                held.append(writer)
                writer.write(kinds[kind])
                if kind in ("asks", "tokenless"):
                    statuses[kind, await status_of(reader)] += 1
            except (OSError, TimeoutError):
                statuses[kind, NO_CONNECTION] += 1

        for start in range(0, CONNECTIONS, BATCH):
            await asyncio.gather(*(connect(list(kinds)[n % 4]) for n in range(BATCH)))
            if start % 2_500 == 0:
                await client.assert_answers()
        await client.assert_answers()
        client.assert_bounded()
        # Who asks is answered; at most some lose their place to others before they have said so.
        assert statuses["asks", 200] > CONNECTIONS / 4 * 0.9, statuses
        assert statuses["tokenless", 401] > CONNECTIONS / 4 * 0.9, statuses
        assert {status for _, status in statuses} <= {200, 401, 503, 0, NO_CONNECTION}
        for writer in held:
            writer.transport.abort()
        await client.assert_answers()

    run(scenario())
