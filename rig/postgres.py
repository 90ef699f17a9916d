"""A PostgreSQL of the rig: a cluster of its own on loopback, gone when the tests are.

Debian's server programs, which `python -m rig build` installs; `initdb` into the run's folder, as an unprivileged
user, since the server refuses root. The supervisor starts it like a broker, so it ends with the test run whatever
happens. Must not know pytest, nor what Redrive keeps in a database.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig import apt
from rig.apt import AptFailed
from rig.build import Say
from rig.errors import NodeFailed
from rig.privilege import NO_ROOT_HINT, root_prefix
from rig.process_group import PATH, Process, ProcessGroup

DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")
START_S_MAX = 60.0
STOP_S_MAX = 60.0
COMMAND_S_MAX = 60.0
NOT_UP_YET = ("not yet accepting connections", "starting up", "Connection refused")
USER = "redrive"
# The cluster trusts everybody on loopback; the password is there to be kept out of logs.
PASSWORD = "not-for-logs"
NOTHING = "PostgreSQL is not here: run `python -m rig build` (Debian or Ubuntu, as root or with sudo)"


def find_programs(host: Path = DEBIAN_PROGRAMS) -> Path | None:
    """The folder with initdb and postgres: Debian's newest, else the one on the PATH; None when there is none."""
    versions = [folder for folder in host.glob("*") if folder.name.isdigit() and (folder / "bin/initdb").exists()]
    if versions:
        return max(versions, key=lambda folder: int(folder.name)) / "bin"
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def build_postgres(say: Say) -> None:
    """Install PostgreSQL unless it is here. What can't be done is said, not raised: the tests on it are skipped."""
    if find_programs() is not None:
        return
    if not apt.is_here() or root_prefix() is None:
        reason = f"it needs root: {NO_ROOT_HINT}" if apt.is_here() else "there is no apt-get on this machine"
        say(f"!!! PostgreSQL can't be had and will not be tested: {reason}")
        return
    say("installing PostgreSQL (once)")
    try:
        apt.install(["postgresql"])
    except AptFailed:
        # The package lists may be older than what the mirror has.
        try:
            apt.update()
            apt.install(["postgresql"])
        except AptFailed as error:
            say(f"!!! PostgreSQL can't be had and will not be tested: {error}")


class Postgres:
    """One cluster. Its data survive `stop`, `kill` and `restart` and go with the run.

    Without `fsync` it is faster and keeps nothing over a crash of the machine; a test that kills it asks for it.
    """

    def __init__(self, group: ProcessGroup, programs: Path, *, fsync: bool = False) -> None:
        self._group = group
        self._programs = programs
        self._fsync = fsync
        self._process: Process | None = None
        self._databases = 0
        self.port = group.ports.reserve()
        self.folder = group.folder / f"{group.new_name()}-postgres"
        self._data = self.folder / "data"
        self._initialise()

    def __repr__(self) -> str:
        return f"<Postgres {self._programs.parent.name} on port {self.port}>"

    @property
    def pid(self) -> int:
        """The postmaster's process id. Raises NodeFailed when it was never started."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and wait until it serves. Raises NodeFailed with the end of its log.

        After a `kill` the backends of the killed server may hold its memory for a moment; it is started again until
        they are gone.
        """
        deadline = time.monotonic() + START_S_MAX
        while True:
            self._process = self._spawn(self._command(), "postgres.log")
            while self._process.poll() is None and time.monotonic() < deadline:
                if self._serves():
                    return
                time.sleep(0.02)
            if time.monotonic() > deadline:
                raise NodeFailed(node=repr(self), what="was not up in time", output=self._process.output())
            if "pre-existing shared memory" not in self._process.output(5):
                raise NodeFailed(node=repr(self), what="ended while starting", output=self._process.output())
            time.sleep(0.05)

    def stop(self) -> None:
        """Shut it down in order, without waiting for whoever is connected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL the postmaster: connections break at once; a later `start` recovers from the log."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """`stop` (unless it is down already) and `start`, on the same port with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop the postmaster in mid-air: who connects waits. Connections that are open go on."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().signal(signal.SIGCONT)

    def create_database(self, purpose: str = "") -> str:
        """A new, empty database; its name."""
        self._databases += 1
        # Identifiers are cut at 63 bytes; the number comes first, so that they stay apart.
        name = re.sub(r"[^a-z0-9]+", "_", f"t{self._databases}_{purpose.lower()}")[:63].rstrip("_")
        self._ask("createdb", name)
        return name

    def drop_database(self, name: str) -> None:
        """Remove it, whoever is connected; a server that another test has just killed is waited for."""
        until_s = time.monotonic() + START_S_MAX
        while True:
            try:
                self._ask("dropdb", "--force", "--if-exists", name)
                return
            except NodeFailed as error:
                if not any(word in str(error) for word in NOT_UP_YET) or time.monotonic() > until_s:
                    raise
            time.sleep(0.2)

    @contextmanager
    def fresh_database(self, purpose: str = "") -> Iterator[str]:
        """The URL of a new, empty database, which is removed in the end if the server runs then."""
        name = self.create_database(purpose)
        try:
            yield self.url(name)
        finally:
            if self.is_running:
                self.drop_database(name)

    def _initialise(self) -> None:
        self.folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            # The run's folder is root's; others may pass through it to what is theirs, and list nothing.
            self._group.folder.chmod(0o711)
            account = _account()
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        process = self._spawn([*command, "--locale=C.UTF-8", "--no-sync"], "initdb.log")
        if process.wait_ended(START_S_MAX) != 0:
            raise NodeFailed(node=repr(self), what="initdb failed", output=process.output())

    def _command(self) -> list[str]:
        fsync = "on" if self._fsync else "off"
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": fsync,
            "full_page_writes": fsync,
            "max_connections": "100",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    def _spawn(self, argv: list[str], log: str) -> Process:
        prefix: list[str] = []
        if root_prefix() is not None:
            # The supervisor is root. A change of user clears the death signal that it set, so it is set again.
            account = _account()
            who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
            prefix = ["setpriv", *who, "--pdeathsig", "KILL", "--"]
        path = self._group.folder / f"{self.folder.name}-{log}"
        env = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": str(self.folder)}
        answer = self._group.ask(do="spawn", argv=[*prefix, *argv], env=env, log=str(path))
        return Process(group=self._group, pid=answer["pid"], log=path)

    def _serves(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        # It listens before it has recovered.
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, timeout=COMMAND_S_MAX).returncode == 0

    def _ask(self, program: str, *arguments: str) -> None:
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        argv = [str(self._programs / program), *place, "--maintenance-db=postgres", *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S_MAX)
        if done.returncode != 0:
            raise NodeFailed(node=repr(self), what=f"{program} ended with {done.returncode}", output=done.stderr)

    def _running(self) -> Process:
        if self._process is None:
            raise NodeFailed(node=repr(self), what="was not started", output="")
        return self._process

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or not process.signal(number):
            return
        process.signal(signal.SIGCONT)
        if process.wait_ended(STOP_S_MAX) is None:
            process.signal(signal.SIGKILL)
            process.wait_ended(STOP_S_MAX)


def _account() -> pwd.struct_passwd:
    """Who runs the server: whoever runs the tests, or `nobody` in root's place."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
