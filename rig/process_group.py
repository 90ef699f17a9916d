"""The processes of one test run, with their folder, Erlang cookie, ports and epmd; the supervisor starts and ends them.

Every test run, and every `python -m rig start`, has a group of its own, so that several on one machine know nothing of
each other. Safe to use from several threads: a request to the supervisor is one line out and one line in.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rig import supervisor as supervisor
from rig.errors import NodeFailed
from rig.ports import Ports
from rig.privilege import root_prefix
from rig.versions import Installation

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SUPERVISOR_END_S_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that the supervisor started."""

    group: ProcessGroup
    pid: int
    log: Path

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; False when the process has ended already."""
        return bool(self.group.ask(do="signal", pid=self.pid, signal=int(number))["delivered"])

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that ended it), or None while it runs."""
        code: int | None = self.group.ask(do="poll", pid=self.pid)["code"]
        return code

    def wait_ended(self, timeout_s: float) -> int | None:
        """Its exit code, or None when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        return code

    def output(self, lines_max: int = 40) -> str:
        """The end of what it wrote."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines_max:])


class ProcessGroup:
    """Use it as a context manager, or `close` it; otherwise its supervisor ends everything with this process."""

    def __init__(self) -> None:
        # Resolved: the folder keeps its path in a chroot, where a link on the way to it would lead nowhere.
        self.shared = Path(tempfile.gettempdir()).resolve()
        self.folder = Path(tempfile.mkdtemp(prefix=supervisor.FOLDER_PREFIX, dir=self.shared))
        self.ports = Ports()
        self._lock = threading.Lock()
        self._epmd: Process | None = None
        self._epmd_lock = threading.Lock()
        self._names = 0
        self._requests = 0
        self._home = self.folder / "home"
        self._home.mkdir(mode=0o700)
        cookie = self._home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16), encoding="ascii")
        cookie.chmod(0o400)
        self._folder_lock = (self.folder / supervisor.LOCK).open("wb")
        fcntl.flock(self._folder_lock, fcntl.LOCK_SH)
        self.epmd_port = self.ports.reserve()
        self._supervisor = subprocess.Popen(
            [
                *(root_prefix() or ()),
                sys.executable,
                "-I",
                "-B",
                supervisor.__file__,
                str(self.folder),
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the group at once, and remove its folder. Returns when that is done."""
        if self._supervisor.stdin is not None and not self._supervisor.stdin.closed:
            self._folder_lock.close()
            self._supervisor.stdin.close()
            self._supervisor.wait(SUPERVISOR_END_S_MAX)
        if self._supervisor.stdout is not None:
            self._supervisor.stdout.close()
        self.ports.close()

    def ask(self, **request: object) -> dict[str, Any]:
        """Send one request to the supervisor and return its answer. Raises NodeFailed when it failed."""
        with self._lock:
            assert self._supervisor.stdin is not None
            assert self._supervisor.stdout is not None
            self._requests += 1
            number = self._requests
            answer: dict[str, Any] = {}
            try:
                self._supervisor.stdin.write(json.dumps({"id": number, **request}) + "\n")
                self._supervisor.stdin.flush()
                # Ctrl-C may have come between an earlier request and its answer, which is still on its way then.
                while answer.get("id") != number and (line := self._supervisor.stdout.readline()):
                    answer = json.loads(line)
            except (BrokenPipeError, ValueError):
                pass
        if answer.get("id") != number:
            raise NodeFailed(node="the rig's supervisor", what="has ended, and every node with it", output="")
        if "error" in answer:
            raise NodeFailed(
                node="the rig's supervisor", what=f"could not {request['do']}", output=str(answer["error"])
            )
        return answer

    def spawn(self, installation: Installation, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
        """Start a program of an installation, in an environment of `env` and what every program needs."""
        command = installation.command(argv[0], *argv[1:], shared=self.shared)
        answer = self.ask(do="spawn", argv=command, env={**self._environment(), **env}, log=str(log))
        return Process(group=self, pid=answer["pid"], log=log)

    def ensure_epmd(self, installation: Installation) -> None:
        """Start the group's Erlang port mapper unless it runs: in the foreground, so that it ends with the group."""
        with self._epmd_lock:
            if self._epmd is not None and self._epmd.poll() is None:
                return
            argv = ["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"]
            self._epmd = self.spawn(installation, argv, env={}, log=self.folder / "epmd.log")

    def new_name(self) -> str:
        """A node name that no other node of this group has."""
        with self._lock:
            self._names += 1
            return f"redrive{self._names}"

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": str(self._home),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
