"""A RabbitMQ node of the rig: start, stop, kill, pause and restart it, run rabbitmqctl on it.

On loopback only, with its own data, which survive `stop`, `kill` and `restart` and are removed with the process group.
Must not know pytest, nor which tests share it.
"""

from __future__ import annotations

import shutil
import signal
import socket
import time
from pathlib import Path
from urllib.parse import quote

from rig.errors import ManagementRefused, NodeFailed
from rig.management import Management
from rig.node_config import NodeOptions, NodePlace, enabled_plugins, environment, rabbitmq_conf
from rig.process_group import Process, ProcessGroup
from rig.versions import Installation

PROGRAMS = "/usr/lib/rabbitmq/bin"
START_S_MAX = 120.0
STOP_S_MAX = 60.0
PAUSE_S_MAX = 10.0
# `load_definitions` makes the broker create no user of its own, so the rig adds the one it looks through.
ADD_GUEST = (
    'rabbit_auth_backend_internal:add_user(<<"guest">>, <<"guest">>, <<"rig">>),'
    ' rabbit_auth_backend_internal:set_tags(<<"guest">>, [administrator], <<"rig">>),'
    ' [rabbit_auth_backend_internal:set_permissions(<<"guest">>, V, <<".*">>, <<".*">>, <<".*">>, <<"rig">>)'
    " || V <- rabbit_vhost:list_names()], ok."
)


class Node:
    """One node. `label` is its version as major.minor, `version` the whole of it, `profile` the known label whose
    behaviour it is expected to have; the same as `label` unless it stands in for another version."""

    def __init__(
        self,
        group: ProcessGroup,
        installation: Installation,
        options: NodeOptions | None = None,
        *,
        short_name: str | None = None,
    ) -> None:
        self.installation = installation
        self.options = NodeOptions() if options is None else options
        if short_name is None:
            short_name = group.new_name()
        self.place = NodePlace(
            name=node_name(short_name),
            folder=group.folder / short_name,
            amqp_port=group.ports.reserve(),
            management_port=group.ports.reserve(),
            dist_port=group.ports.reserve(),
            tls_port=group.ports.reserve(),
        )
        self.management = Management(self.management_url)
        self._group = group
        self._process: Process | None = None
        self._version: str | None = None
        self._commands = 0
        self.place.folder.mkdir(mode=0o700)
        for part in ("etc", "data", "log"):
            (self.place.folder / part).mkdir()

    def __repr__(self) -> str:
        return f"<Node {self.name} RabbitMQ {self.version}>"

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def label(self) -> str:
        return self.installation.label

    @property
    def profile(self) -> str:
        return self.installation.profile

    @property
    def version(self) -> str:
        """The full version, in the node's own words once it was up."""
        return self.installation.version if self._version is None else self._version

    @property
    def pid(self) -> int:
        """The Erlang VM's process id. Raises NodeFailed when the node was never started."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def user(self) -> str:
        return "guest"

    @property
    def management_url(self) -> str:
        return f"http://127.0.0.1:{self.place.management_port}"

    def amqp_url(self, vhost: str = "/") -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.place.amqp_port}/{quote(vhost, safe='')}"

    def amqps_url(self, vhost: str = "/") -> str:
        """For nodes with a `tls` option."""
        return f"amqps://guest:guest@localhost:{self.place.tls_port}/{quote(vhost, safe='')}"

    def start(self) -> None:
        """Start the node and wait until it serves AMQP and its management API. Raises NodeFailed with its log."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the node without waiting for it."""
        etc = self.place.folder / "etc"
        (etc / "rabbitmq.conf").write_text(rabbitmq_conf(self.place, self.options), encoding="utf-8")
        (etc / "enabled_plugins").write_text(enabled_plugins(self.options), encoding="utf-8")
        if self.options.advanced:
            (etc / "advanced.config").write_text(self.options.advanced, encoding="utf-8")
        match self.options.definitions:
            case Path() as file:
                shutil.copyfile(file, self.place.definitions_file)
            case str() as text:
                self.place.definitions_file.write_text(text, encoding="utf-8")
        self._group.ensure_epmd(self.installation)
        self._process = self._group.spawn(
            self.installation,
            [f"{PROGRAMS}/rabbitmq-server"],
            env=environment(self.place),
            log=self.place.folder / "log" / "console",
        )

    def wait_ready(self, timeout_s: float = START_S_MAX) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # The management API answers a moment before the AMQP listener is there.
                overview = self.management.get("overview")
                socket.create_connection(("127.0.0.1", self.place.amqp_port), timeout=5).close()
                self._version = str(overview["rabbitmq_version"])
                return
            except ManagementRefused as refused:
                if refused.status == 401:
                    self.ctl("eval", ADD_GUEST)
                    continue
            except OSError:
                pass
            code = self._running().poll()
            if code is not None:
                raise NodeFailed(node=repr(self), what=f"ended with {code} while starting", output=self.log())
            if time.monotonic() > deadline:
                raise NodeFailed(node=repr(self), what=f"was not up after {timeout_s:.0f} s", output=self.log())
            time.sleep(0.1)

    def stop(self) -> None:
        """Shut the node down in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the node as a crash of its machine would: at once. A later `start` finds its data as they were."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the node's whole VM in mid-air: its sockets stay open and silent until `resume`.

        Raises NodeFailed. On a busy machine a thread of the VM may go on for a moment after the signal was sent.
        """
        self._running().signal(signal.SIGSTOP)
        deadline = time.monotonic() + PAUSE_S_MAX
        while not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise NodeFailed(node=repr(self), what=f"was not paused after {PAUSE_S_MAX:.0f} s", output=self.log())
            time.sleep(0.01)

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def restart(self) -> None:
        """`stop` (unless it is down already) and `start`, on the same ports with the same data."""
        self.stop()
        self.start()

    def ctl(self, *arguments: str, timeout_s: float = 60.0, program: str = "rabbitmqctl") -> str:
        """What rabbitmqctl, or another of the broker's programs, prints. Raises NodeFailed when it fails."""
        self._commands += 1
        log = self.place.folder / "log" / f"command-{self._commands}"
        argv = [f"{PROGRAMS}/{program}", "--node", self.name, *arguments]
        process = self._group.spawn(self.installation, argv, env=environment(self.place), log=log)
        code = process.wait_ended(timeout_s)
        if code is None:
            process.signal(signal.SIGKILL)
        if code != 0:
            what = f"{program} {' '.join(arguments)} " + ("took too long" if code is None else f"ended with {code}")
            raise NodeFailed(node=repr(self), what=what, output=process.output())
        return log.read_text(encoding="utf-8")

    def log(self, lines_max: int = 40) -> str:
        """What matters of the node's log: from its first error on, the cause of the others, or else its end."""
        folder = self.place.folder / "log"
        files = [file for file in (*sorted(folder.glob("*.log")), folder / "console") if file.exists()]
        lines = [line for file in files for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
        first_error = next((n for n, line in enumerate(lines) if "[error]" in line or "[critical]" in line), None)
        return "\n".join(lines[-lines_max:] if first_error is None else lines[first_error:][:lines_max])

    def _running(self) -> Process:
        if self._process is None:
            raise NodeFailed(node=repr(self), what="was not started", output="")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or not process.signal(number):
            return
        # A paused VM gets no other signal than KILL before it goes on.
        process.signal(signal.SIGCONT)
        if process.wait_ended(STOP_S_MAX) is None:
            process.signal(signal.SIGKILL)
            process.wait_ended(STOP_S_MAX)


def node_name(short_name: str) -> str:
    """A node's name for Erlang."""
    return f"{short_name}@localhost"


def _is_stopped(pid: int) -> bool:
    """Whether the kernel has stopped every thread of a process."""
    try:
        told = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended in the meantime
        return False
    return all(line.rpartition(")")[2].split()[0] in "Tt" for line in told)
