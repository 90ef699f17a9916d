"""`redrive serve` as a process of its own, and curl to ask it with."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from redrive import App
from redrive.wiring import running
from rig.dlq_operator import Operator

ROOT = Path(__file__).parents[1]
START_S_MAX = 60.0
WAIT_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What curl printed."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Served:
    """A server that runs. `token` is the first one, where it made it."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, lines: list[dict[str, Any]]) -> None:
        self.process = process
        self.log = folder / "serve.log"
        self.config = lines[0]["config"]
        self.address = str(lines[1]["listening"])
        made = lines[1]["new_token"]
        self.token = None if made is None else Path(made["file"]).read_text().strip()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def sh(self, line: str, token: str | None = None) -> Answered:
        """A line of a runbook, as a shell runs it: with $TOKEN set, the document's port 3000 made this server's."""
        line = line.replace("localhost:3000", f"localhost:{self.port}").removeprefix("curl ")
        given = token if token is not None else self.token
        return curl(*[part.replace("$TOKEN", given or "") for part in shlex.split(line)])

    def ask(self, path: str, *options: str, token: str | None = None) -> Answered:
        """GET a path, or with options another request."""
        given = token if token is not None else self.token
        header = [] if given is None else ["-H", f"Authorization: Bearer {given}"]
        return curl(*options, f"{self.address}{path}", *header)

    def post(self, path: str, body: object = None, **options: Any) -> Answered:
        """POST JSON."""
        sent = [] if body is None else ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        return self.ask(path, "-X", "POST", *sent, **options)

    def wait(self, path: str, is_so: Callable[[Any], bool]) -> Any:
        """Asks until the JSON of an answer is so."""
        until_s = time.monotonic() + WAIT_S_MAX
        while True:
            answered = self.ask(path)
            if answered.status == 200 and is_so(answered.json):
                return answered.json
            assert time.monotonic() < until_s, (path, answered.status, answered.text)
            time.sleep(0.1)

    def logged(self) -> list[dict[str, Any]]:
        """The log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=100)
        lines = self.log.read_text().splitlines()
        assert [line for line in lines if not line.startswith("{")] == []  # no traceback, nothing from elsewhere
        return code


def curl(*arguments: str) -> Answered:
    """Runs curl itself."""
    ran = subprocess.run(
        ["curl", "-s", "-i", "--max-time", "50", *arguments], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, (ran.returncode, arguments, ran.stderr)
    head, _, body = ran.stdout.replace("\r\n", "\n").partition("\n\n")
    first, *lines = head.split("\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answered(status=int(first.split()[1]), headers=headers, text=body)


@contextmanager
def serving(folder: Path, environment: Mapping[str, str], *arguments: str, port: int = 0) -> Iterator[Served]:
    """A server, up; it is killed at the end unless the test has stopped it."""
    log = folder / "serve.log"
    with log.open("a") as stderr:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "redrive",
                "serve",
                *arguments,
                "--port",
                str(port),
                *_token_file(folder, arguments),
            ],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **environment},
        )
    try:
        yield Served(process, folder, _first_lines(process, log))
    finally:
        process.kill()
        process.wait(timeout=30)
        assert process.stdout is not None
        process.stdout.close()


def _token_file(folder: Path, arguments: tuple[str, ...]) -> list[str]:
    """A file of its own for a first token, should one be made."""
    return [] if "--first-token-file" in arguments else ["--first-token-file", str(folder / f"token-{time.time_ns()}")]


def let_fail_until(operator: Operator, file: str, queue: str, is_so: Callable[[], bool]) -> None:
    """Runs a consumer whose handler always fails, until something is so."""
    app = App(file)

    @app.consumer(queue)
    async def handle(body: dict[str, Any]) -> None:
        raise TimeoutError(f"the hotel is away for {body['id']}")

    async def run() -> None:
        async with running(app, url=operator.url), asyncio.timeout(WAIT_S_MAX):
            while not await asyncio.to_thread(is_so):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    asyncio.run(run())


def _first_lines(process: "subprocess.Popen[str]", log: Path) -> list[dict[str, Any]]:
    """What it prints when it begins: the configuration, and where it listens."""
    found: Queue[str] = Queue()

    def read() -> None:
        assert process.stdout is not None
        for _ in range(2):
            found.put(process.stdout.readline())

    threading.Thread(target=read, daemon=True).start()
    lines = []
    for _ in range(2):
        try:
            line = found.get(timeout=START_S_MAX)
        except Empty:
            line = ""
        if not line:
            pytest.fail(f"redrive serve did not start: {log.read_text()[-2000:]}")
        lines.append(json.loads(line))
    return lines
