"""A client that costs little, so that what is measured is the server: HTTP/1.1 over kept connections, by asyncio alone.

Like a client behind a load balancer it asks another instance when a connection dies, and leaves one alone for a while
that nobody listens at. Where the first try may have been carried out, the Idempotency-Key sees to it that it is done
once.
"""

import asyncio
import itertools
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

ANSWER_S_MAX = 60.0
AWAY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An answer, and how often its connection died before it came."""

    status: int
    body: bytes
    died: int

    @property
    def json(self) -> Any:
        """The body's document."""
        return json.loads(self.body)


class NoAnswer(Exception):
    """No instance answers."""


class Balanced:
    """Asks the instances in turn."""

    def __init__(self, addresses: list[str], token: str) -> None:
        self._instances = [_Instance(address) for address in addresses]
        self._head = f"Authorization: Bearer {token}\r\nHost: localhost\r\n"
        self._turn = itertools.count()

    async def ask(self, method: str, path: str, body: object = None, *, first: int | None = None) -> Asked:
        """One request, tried until an instance answers. `first`: the instance to begin with. Raises NoAnswer."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        content = b""
        if body is not None:
            content = json.dumps(body).encode()
            head += f"Content-Type: application/json\r\nIdempotency-Key: {uuid.uuid4()}\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        begin = next(self._turn) if first is None else first
        died = 0
        async with asyncio.timeout(ANSWER_S_MAX):
            for turn in range(begin, begin + 4 * len(self._instances)):
                instance = self._instances[turn % len(self._instances)]
                if instance.is_away:
                    continue
                try:
                    status, answer = await instance.ask(request)
                except ConnectionRefusedError:
                    instance.leave()
                except (OSError, asyncio.IncompleteReadError):
                    died += 1
                else:
                    return Asked(status=status, body=answer, died=died)
        raise NoAnswer(path)

    def close(self) -> None:
        """Ends every connection."""
        for instance in self._instances:
            instance.close()


class _Instance:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition("//")[2].rpartition(":")
        self._place = host, int(port)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._away_until_s = 0.0

    @property
    def is_away(self) -> bool:
        return time.monotonic() < self._away_until_s

    def leave(self) -> None:
        self._away_until_s = time.monotonic() + AWAY_S

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        reader, writer = self._kept() or await asyncio.open_connection(*self._place)
        is_whole = False
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            is_whole = headers.get("connection") != "close"
            return int(lines[0].split()[1]), body
        finally:
            # Half an answer must not be taken for the next one.
            if is_whole:
                self._idle.append((reader, writer))
            else:
                writer.close()

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A connection that was kept, and that the server has not closed meanwhile."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return None

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
