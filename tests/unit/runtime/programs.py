"""`redrive run` as a program of its own, on an app that a test writes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pika

from redrive.client import Client
from redrive.wiring import declare_missing
from tests.unit.runtime.stage import compiled

ROOT = Path(__file__).parents[3]


class Program:
    """A running program; `output` is what it has said so far, on both streams."""

    def __init__(self, folder: Path, *arguments: str, url: str) -> None:
        self._said = folder / f"output-{time.monotonic_ns()}.txt"
        with self._said.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redrive", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "REDRIVE_URL": url, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
            )

    @property
    def output(self) -> str:
        return self._said.read_text()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)

    def wait_said(self, text: str, *, times: int = 1, timeout_s: float = 20.0) -> None:
        wait_for(lambda: self.output.count(text) >= times, timeout_s=timeout_s, why=lambda: self.output)

    def end(self, number: signal.Signals = signal.SIGTERM, *, timeout_s: float = 20.0) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout_s)


def wait_for(condition: Callable[[], object], *, timeout_s: float = 20.0, why: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, why() or "it did not come about"
        time.sleep(0.02)


async def declare_at(url: str, text: str) -> None:
    await declare_missing(compiled(text), lambda _: Client(url))


@contextmanager
def channel_at(url: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        connection.close()


def send(url: str, queue: str, bodies: list[bytes]) -> None:
    """Persistent messages whose ids are their bodies."""
    with channel_at(url) as channel:
        for body in bodies:
            properties = pika.BasicProperties(delivery_mode=2, message_id=body.decode())
            channel.basic_publish("", queue, body, properties, mandatory=True)


def take(url: str, queue: str) -> list[tuple[bytes, dict[str, object]]]:
    """Everything ready in a queue, with its headers, taken for good."""
    found: list[tuple[bytes, dict[str, object]]] = []
    with channel_at(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((body, dict(properties.headers or {})))


def depth(url: str, queue: str) -> int:
    with channel_at(url) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)
