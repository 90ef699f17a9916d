"""Runs the cases: every client does every workload once in each round, the order of clients turned by one each round.

A case is new queues, filled; the client's program in a process of its own; and a count of every message afterwards. A
case that fails, or whose messages are not all where they belong, is an error and never a number.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.amqp import shovel
from bench.amqp.broker import Broker, Miscount, Queues
from bench.amqp.cases import PREFETCH, QUICK_DIVISOR, WINDOW, Client, Workload, make_body
from bench.amqp.programs import Missing, Program

CASE_S_MAX = 90.0
# The broker is still busy with the queue before, deleted, and with the messages just filled in.
SETTLE_S = 0.3
SAID_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of one case: its `rate` in messages a second, or an `error`.

    `cpu_s` is user and system time of the client's process, all of it; `start_up_cpu_s` what a run of the same client
    in the same round needed to connect and close alone. Both are None for the shovel.
    """

    round: int
    workload: Workload
    client: str
    messages: int
    seconds: float | None = None
    cpu_s: float | None = None
    start_up_cpu_s: float | None = None
    error: str | None = None

    @property
    def rate(self) -> float | None:
        return None if self.seconds is None else self.messages / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a program said, and the CPU seconds of its process."""

    messages: int
    seconds: float
    library: str
    cpu_s: float


class CaseFailed(Exception):
    """A client's program did not do what it should; the text says what it said."""


class Harness:
    """Runs cases on one broker with the programs there are."""

    def __init__(
        self,
        broker: Broker,
        programs: Mapping[str, Program | Missing],
        *,
        filler: Program,
        quick: bool,
        say: Callable[[str], None],
        settle_s: float = SETTLE_S,
    ) -> None:
        self.libraries: dict[str, str] = {}
        self._broker = broker
        self._programs = programs
        self._filler = filler
        self._quick = quick
        self._say = say
        self._settle_s = settle_s
        self._body = make_body()

    def run(self, clients: Sequence[Client], workloads: Sequence[Workload], rounds: int) -> Iterator[Measurement]:
        """Every case of every round; clients that are missing have none."""
        present = [client for client in clients if not isinstance(self._programs.get(client.name), Missing)]
        for client in present:
            # Once for nothing: the first start compiles bytecode and reads from the disk.
            self._measure_start_up(client)
        for number in range(rounds):
            # Another order each time: who follows a busy case may be slower, and it should not always be the same one.
            shuffled = random.Random(number).sample(present, len(present))
            start_up_cpu_s = {client.name: self._measure_start_up(client) for client in shuffled}
            for workload in workloads:
                for client in shuffled:
                    if workload in client.messages:
                        measured = self._run_case(number + 1, client, workload, start_up_cpu_s[client.name])
                        self._tell(measured)
                        yield measured

    def _measure_start_up(self, client: Client) -> float | None:
        program = self._programs.get(client.name)
        if not isinstance(program, Program):
            return None
        try:
            with self._broker.queues_for("W4") as queues:
                ended = run_program(program, "W0", self._broker.url, 0, queues, self._body)
        except CaseFailed as error:
            self._say(f"{client.title}: W0: {error}")
            return None
        self.libraries[client.name] = ended.library
        return ended.cpu_s

    def _run_case(self, number: int, client: Client, workload: Workload, start_up_cpu_s: float | None) -> Measurement:
        count = client.messages[workload] // (QUICK_DIVISOR if self._quick else 1)
        measured = Measurement(round=number, workload=workload, client=client.name, messages=count)
        try:
            with self._broker.queues_for(workload) as queues:
                body = self._body if client.body is None else client.body.replace("SOURCE", queues.source)
                self._fill(workload, queues, count, body)
                time.sleep(self._settle_s)
                ended = self._do(client, workload, queues, count, body)
                self._broker.expect(_counts_after(workload, queues, count))
        except (CaseFailed, Miscount, shovel.ShovelStuck) as error:
            return _with_error(measured, str(error))
        return Measurement(
            round=number,
            workload=workload,
            client=client.name,
            messages=ended.messages,
            seconds=ended.seconds,
            cpu_s=None if client.name == "shovel" else ended.cpu_s,
            start_up_cpu_s=start_up_cpu_s,
        )

    def _fill(self, workload: Workload, queues: Queues, count: int, body: str) -> None:
        if workload == "W1":
            return
        try:
            run_program(self._filler, "W1", self._broker.url, count, queues, body)
            self._broker.expect({queues.source: count})
        except (CaseFailed, Miscount) as error:
            raise CaseFailed(f"the queue could not be filled: {error}") from None

    def _do(self, client: Client, workload: Workload, queues: Queues, count: int, body: str) -> Ended:
        program = self._programs.get(client.name)
        if isinstance(program, Program):
            return run_program(program, workload, self._broker.url, count, queues, body)
        messages, seconds = shovel.move(self._broker, queues, count)
        return Ended(messages=messages, seconds=seconds, library="", cpu_s=0.0)

    def _tell(self, measured: Measurement) -> None:
        what = f"{measured.error}" if measured.rate is None else f"{measured.rate:>8,.0f} msg/s"
        self._say(f"round {measured.round}  {measured.workload}  {measured.client:<11}{what}")


def run_program(program: Program, workload: str, url: str, count: int, queues: Queues, body: str) -> Ended:
    """Run a client's program to its end. Raises CaseFailed when it does not end well, or not in time."""
    contract = [workload, url, str(count), queues.source, queues.target, str(WINDOW), str(PREFETCH), body]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as said,
        tempfile.TemporaryFile("w+", encoding="utf-8") as wrong,
    ):
        process = subprocess.Popen(
            [*program.argv, *contract], cwd=program.folder, stdin=subprocess.DEVNULL, stdout=said, stderr=wrong
        )
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(CASE_S_MAX, give_up)
        timer.start()
        try:
            # Not process.wait: only wait4 tells what this one process has used.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:
                process.kill()
                process.wait()
        said.seek(0)
        wrong.seek(0)
        if late.is_set():
            raise CaseFailed(f"was not done after {CASE_S_MAX:.0f} s")
        if process.returncode != 0:
            end = " / ".join(wrong.read().strip().splitlines()[-3:])
            raise CaseFailed(f"ended with {process.returncode}: {end[-SAID_MAX:]}")
        return _read_result(said.read(), count, cpu_s=used.ru_utime + used.ru_stime)


def _read_result(said: str, count: int, *, cpu_s: float) -> Ended:
    try:
        result = json.loads(said)
        messages, seconds, library = int(result["messages"]), float(result["seconds"]), str(result["library"])
    except (ValueError, KeyError, TypeError):
        raise CaseFailed(f"did not print a result but {said[:SAID_MAX]!r}") from None
    if messages != count or (seconds <= 0 and count > 0):
        raise CaseFailed(f"reports {messages} of {count} messages in {seconds} s")
    return Ended(messages=messages, seconds=seconds, library=library, cpu_s=cpu_s)


def _counts_after(workload: Workload, queues: Queues, count: int) -> dict[str, int]:
    """Where every message has to be when the workload is done."""
    match workload:
        case "W1":
            return {queues.source: count}
        case "W2":
            return {queues.source: 0}
        case "W3":
            return {queues.source: 0, queues.wait: 0, queues.target: count}
        case "W4":
            return {queues.source: 0, queues.target: count}


def _with_error(measured: Measurement, error: str) -> Measurement:
    return Measurement(
        round=measured.round,
        workload=measured.workload,
        client=measured.client,
        messages=measured.messages,
        error=error,
    )
