"""Several worker processes for one app: started, watched, started again when they crash, and stopped together.

A worker that crashes (or is killed for its memory) is started again after a pause, which grows while it keeps crashing,
and the log names the messages that were in its handlers. A worker that could not begin (exit code 2: a bad app, no
broker) stops all of them, because the others can't begin either. Its record says whether it had begun, not its exit
code, which a handler may choose. A worker that replaces one that had begun does not stop the others: the broker may be
away for a moment, and the others are at work. Workers hold the other end of a pipe: when the parent is gone they stop
in order by themselves.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from redrive.client import ReconnectBackoff
from redrive.core import Observer
from redrive.runtime.run_records import LOGGED_MAX, RECORD_PATH, CrashReport, RunRecords, read_crash_report

COULD_NOT = 2
_FIRST_S, _LONGEST_S = 0.2, 30.0
_LIVED_S = 60.0
_AFTER_GRACE_S = 10.0


class WorkerProcesses:
    """A number of processes that run one command each. `command(n)` is that of the nth, from 0.

    `records` is the folder for their run records: each worker finds the path of its own in its environment.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        workers: int,
        *,
        grace_s: float,
        observer: Observer,
        records: RunRecords | None = None,
    ) -> None:
        self._records = records
        self._command = command
        self._workers = workers
        self._grace_s = grace_s
        self._observer = observer
        self._stopping = asyncio.Event()
        self._failed = False
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Runs until `stop`, or until a worker could not begin. Returns the exit code: 0, or 2 if one could not
        begin."""
        await asyncio.gather(*(self._keep(number) for number in range(self._workers)))
        return COULD_NOT if self._failed else 0

    def stop(self) -> None:
        """Stops them in order; the second time at once."""
        self._stopping.set()
        for process in self._running.values():
            _send(process, signal.SIGTERM)

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        pauses = ReconnectBackoff(first_s=_FIRST_S, longest_s=_LONGEST_S)
        had_begun = False
        while not self._stopping.is_set():
            began_s = loop.time()
            path = None if self._records is None else self._records.new_path()
            environment = {**os.environ, **({} if path is None else {RECORD_PATH: os.fspath(path)})}
            process = await asyncio.create_subprocess_exec(
                *self._command(number), stdin=asyncio.subprocess.PIPE, start_new_session=True, env=environment
            )
            self._running[number] = process
            self._observer.note("runtime.worker_started", worker=number, pid=process.pid)
            if self._stopping.is_set():
                _send(process, signal.SIGTERM)
            code = await self._wait_end(process)
            del self._running[number]
            if self._stopping.is_set():
                return
            report = None if path is None else read_crash_report(path, code=code)
            could_begin = report is not None and (report.had_started or bool(report.unfinished))
            if code == COULD_NOT and not had_begun and not could_begin:
                self._failed = True
                self.stop()
                return
            had_begun = True
            if loop.time() - began_s > _LIVED_S:
                pauses.reset()
            pause_s = pauses.next_s()
            self._observer.note(
                "runtime.worker_died",
                worker=number,
                pid=process.pid,
                code=code,
                **_signal_name(code),
                restart_in_ms=round(pause_s * 1000),
                **_unfinished(report),
            )
            await self._pause(pause_s)

    async def _wait_end(self, process: asyncio.subprocess.Process) -> int:
        exited = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((exited, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await asyncio.wait([exited], timeout=self._grace_s + _AFTER_GRACE_S)
            if not exited.done():
                _send(process, signal.SIGKILL)
            return await exited
        finally:
            stopping.cancel()
            if not exited.done():
                _send(process, signal.SIGKILL)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass


def _signal_name(code: int) -> dict[str, object]:
    try:
        return {"signal": signal.Signals(-code).name} if code < 0 else {}
    except ValueError:
        return {}


def _unfinished(report: CrashReport | None) -> dict[str, object]:
    """The runs that had not ended: the latest in fields of its own, since it is the likeliest cause; then the
    others."""
    if report is None:
        return {}
    fields: dict[str, object] = {"in_hand": len(report.unfinished)}
    if report.unfinished:
        latest, *others = report.unfinished
        fields |= {
            "queue": latest.queue,
            "message_id": latest.message_id,
            "delivery_tag": latest.delivery_tag,
            "ran_ms": latest.ran_ms,
        }
        if others:
            fields["others"] = [
                f"{one.queue} {one.message_id or '(no id)'} (delivery tag {one.delivery_tag}, {one.ran_ms} ms)"
                for one in others[:LOGGED_MAX]
            ]
    return fields


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        pass


async def wait_parent_gone(stdin: int = 0) -> None:
    """In a worker: waits until its parent has closed the pipe, which happens only when the parent ends."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()

    def look() -> None:
        if not os.read(stdin, 4096) and not gone.done():
            gone.set_result(None)

    loop.add_reader(stdin, look)
    try:
        await gone
    finally:
        loop.remove_reader(stdin)
