"""The supervisor: a small process that starts a test run's brokers and outlives the test run, to end them.

Whatever happens to the test run (it ends, Ctrl-C, kill -9), nothing that it started may stay. So the test run starts
nothing itself: it asks the supervisor, over a pipe. When the pipe closes or the test run's process is gone, the
supervisor kills its children, then everything else that has the run's mark in its environment (an epmd that Erlang put
into the background, say), removes the run's folder and ends. If the supervisor itself is killed, the kernel kills its
children (PR_SET_PDEATHSIG) and the next run's supervisor removes the folder.

It is run as a script, as root when chroots must be entered, so it imports nothing of the project.

    python -I -B supervisor.py FOLDER CLIENT_PID

Requests and answers are JSON, one a line, in order; an answer repeats its request's "id":
    {"do": "spawn", "argv": […], "env": {…}, "log": "path"}  →  {"pid": 123}
    {"do": "signal", "pid": 123, "signal": 9}                →  {"delivered": true}
    {"do": "poll", "pid": 123}                               →  {"code": null}    its exit code once it has ended
An answer {"error": "…"} means that it was not done.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

MARK = "REDRIVE_RIG_RUN"
FOLDER_PREFIX = "redrive-rig-"
LOCK = "lock"
SWEEP_S_MAX = 10.0
# A folder this young may belong to a run that has not taken its lock yet.
ABANDONED_S_MIN = 60.0


class Ended(Exception):
    """The supervisor itself got a signal to end."""


class Supervisor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            match request["do"]:
                case "spawn":
                    return {"pid": self._spawn(request["argv"], request["env"], request["log"])}
                case "signal":
                    return {"delivered": self._signal(request["pid"], request["signal"])}
                case "poll":
                    return {"code": self._children[request["pid"]].poll()}
                case unknown:
                    return {"error": f"the supervisor knows no {unknown!r}"}
        except (KeyError, OSError) as error:
            return {"error": f"{type(error).__name__}: {error}"}

    def end(self) -> None:
        """Kill everything of this run and remove its folder."""
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait(SWEEP_S_MAX)
        sweep(self._folder)

    def _spawn(self, argv: list[str], env: dict[str, str], log: str) -> int:
        with open(log, "ab") as output:
            child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                env={**env, MARK: str(self._folder)},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[child.pid] = child
        return child.pid

    def _signal(self, pid: int, number: int) -> bool:
        child = self._children[pid]
        if child.poll() is not None:
            return False
        child.send_signal(number)
        return True


def sweep(folder: Path) -> None:
    """Kill every process that carries the mark of the run in `folder`, until there is none, and remove the folder."""
    deadline = time.monotonic() + SWEEP_S_MAX
    while (marked := list(marked_processes(folder))) and time.monotonic() < deadline:
        for pid in marked:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def marked_processes(folder: Path) -> Iterator[int]:
    mark = f"{MARK}={folder}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environ = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        if mark in environ.split(b"\0"):
            yield int(entry.name)


def sweep_abandoned(own: Path) -> None:
    """Remove what runs of the same user left behind when their supervisor was killed: their lock is free."""
    owner = own.stat().st_uid
    for folder in own.parent.glob(f"{FOLDER_PREFIX}*"):
        try:
            status = folder.lstat()
            if folder == own or status.st_uid != owner or time.time() - status.st_mtime < ABANDONED_S_MIN:
                continue
            with open(folder / LOCK, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sweep(folder)
        except OSError:
            continue


def serve(supervisor: Supervisor, client_pid: int) -> None:
    """Answer requests until the client closes the pipe or is gone."""
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    # A process the client forked may hold the pipe open after the client died; its pidfd tells the truth.
    client = os.pidfd_open(client_pid)
    selector.register(client, selectors.EVENT_READ)
    pending = b""
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if client in ready:
            return
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            print(json.dumps({"id": request.get("id"), **supervisor.answer(request)}), flush=True)


def main(folder: Path, client_pid: int) -> None:
    def asked_to_end(_number: int, _frame: FrameType | None) -> None:
        raise Ended

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, asked_to_end)
    signal.signal(signal.SIGHUP, asked_to_end)
    try:
        # Out of the terminal's reach: Ctrl-C is for the test run, which then closes the pipe.
        os.setsid()
    except PermissionError:
        pass
    supervisor = Supervisor(folder)
    with open(folder / LOCK, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            sweep_abandoned(folder)
            serve(supervisor, client_pid)
        except (Ended, BrokenPipeError, ProcessLookupError):
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            supervisor.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
