"""What the harness and a client program agree on.

    PROGRAM WORKLOAD URL MESSAGES SOURCE TARGET WINDOW PREFETCH BODY

W0  connect, open a channel, close both: what starting costs, to be subtracted
W1  publish MESSAGES persistent copies of BODY to SOURCE, never more than WINDOW unconfirmed; ends with the last confirm
W2  consume MESSAGES from SOURCE with PREFETCH, each with an outcome of its own; ends with the last ack
W3  consume from SOURCE with PREFETCH; a message whose `x-death` shows fewer than three rejections by SOURCE is rejected
    (requeue=false) and comes back; the others are published to TARGET (mandatory) and acked when that is confirmed;
    ends with the last of MESSAGES acks
W4  consume MESSAGES from SOURCE with PREFETCH, publish each to TARGET (mandatory), ack it when confirmed; ends with the
    last ack

The queues exist and SOURCE is filled (W2–W4) before the program starts; it declares nothing. Seconds run from the
first message (published or delivered) to the last outcome. After the last ack the program waits `LINGER_S`, closes its
channel and then its connection, prints one line `{"seconds": …, "messages": …, "library": "name version"}` and exits
with 0. A message returned, refused or lost is an error: a text on standard error and any other exit code. Whatever
happens, it ends by itself after `LIFE_S_MAX`.

Why it lingers: the broker's channel holds acks back while more than 32 commands to a quorum queue are under way
(`rabbit_fifo_client`), and forgets them when it is closed. The messages would be back in the queue afterwards.

Used by the programs written in Python, which may run in an environment where nothing else of the project is installed.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LIFE_S_MAX = 120
LINGER_S = 0.5
RETRIES = 3
CONTENT_TYPE = "application/json"
PERSISTENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the command line asks for."""

    workload: str
    url: str
    messages: int
    source: str
    target: str
    window: int
    prefetch: int
    body: bytes


# Does the workload and returns the seconds it took.
Measured = Callable[[Case], Awaitable[float]]


class Progress:
    """Counts outcomes and keeps the time: from `begin`, at the first message, to the last `settle`."""

    def __init__(self, case: Case) -> None:
        self._left = case.messages
        self._acks = case.workload != "W1"
        self._started: float | None = None
        self._seconds: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Call it at every message: only the first counts."""
        if self._started is None:
            self._started = time.perf_counter()

    def settle(self) -> None:
        """One message has its outcome."""
        self._left -= 1
        if self._left == 0 and self._started is not None and not self._seconds.done():
            self._seconds.set_result(time.perf_counter() - self._started)

    def fail(self, reason: str) -> None:
        """End the run as an error."""
        if not self._seconds.done():
            self._seconds.set_exception(RuntimeError(reason))

    async def wait_settled(self) -> float:
        """The seconds, when every message has its outcome and the broker has had the time to take note of it."""
        seconds = await self._seconds
        if self._acks:
            await asyncio.sleep(LINGER_S)
        return seconds


def run(library: str, workloads: Mapping[str, Measured]) -> None:
    """The whole of a client program: read the command line, do the workload, print the result."""
    signal.alarm(LIFE_S_MAX)
    case = read_case(sys.argv[1:])
    if case.workload not in workloads:
        sys.exit(f"{library} has no {case.workload}")
    seconds = asyncio.run(_seconds(workloads[case.workload], case))
    named = f"{library} {importlib.metadata.version(library)}, Python {platform.python_version()}"
    print(json.dumps({"seconds": seconds, "messages": case.messages, "library": named}), flush=True)


def read_case(arguments: Sequence[str]) -> Case:
    """Exits with the usage when there are not as many arguments as the contract names."""
    if len(arguments) != 8:
        sys.exit("usage: PROGRAM WORKLOAD URL MESSAGES SOURCE TARGET WINDOW PREFETCH BODY")
    workload, url, messages, source, target, window, prefetch, body = arguments
    return Case(
        workload=workload,
        url=url,
        messages=int(messages),
        source=source,
        target=target,
        window=int(window),
        prefetch=int(prefetch),
        body=body.encode(),
    )


def count_retries(headers: Mapping[str, Any] | None, queue: str) -> int:
    """How often `queue` rejected the message, by its `x-death` header."""
    for death in (headers or {}).get("x-death", ()):
        if death["queue"] == queue and death["reason"] == "rejected":
            return int(death["count"])
    return 0


async def _seconds(measured: Measured, case: Case) -> float:
    return await measured(case)
