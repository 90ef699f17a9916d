"""Makes the client programs available: compiles, installs into the user's cache folder, says what could not be had.

Nothing is installed into the project or its environment. What is there already is used again; a change of the pinned
versions below, or of the C program, makes it anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rig import apt
from rig.apt import AptFailed

FOLDER = Path(__file__).parent / "clients"
PROJECT = Path(__file__).parents[2]
PYTHON_PACKAGES = ("aio-pika==10.2.1", "aiormq==7.2.4", "faststream[rabbit]==0.7.8", "dramatiq[rabbitmq]==2.2.1")
NODE_PACKAGES = ("amqplib@2.3.1", "rascal@21.0.1")
C_PACKAGES = ("gcc", "libc6-dev", "librabbitmq-dev")
INSTALL_S_MAX = 600
COMPILE_S_MAX = 120
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A client that can be run; the contract's arguments follow `argv`."""

    argv: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A client that can't be run here, and why."""

    reason: str


class _Failed(Exception):
    """A step failed; the text says which and why."""


class Programs:
    """Makes programs on request, each environment once."""

    def __init__(self, *, cache: Path, say: Say) -> None:
        self._cache = cache
        self._say = say
        self._made: dict[str, Path | Missing] = {}

    def get(self, client: str) -> Program | Missing:
        """The client's program."""
        match client:
            case "c":
                return self._in("c", self._compile, lambda made: Program(argv=(str(made),), folder=PROJECT))
            case "redrive" | "runtime" | "runtime-typed" | "pika":
                return _python_program(Path(sys.executable), client)
            case "aio-pika" | "aiormq" | "faststream" | "dramatiq":
                return self._in("python", self._install_python, lambda made: _python_program(made, client))
            case "amqplib" | "rascal":
                return self._in("node", self._install_node, lambda made: _node_program(made, client))
            case _:
                return Missing(reason=f"there is no program for {client}")

    def _in(
        self, environment: str, make: Callable[[], Path], program: Callable[[Path], Program | Missing]
    ) -> Program | Missing:
        if environment not in self._made:
            try:
                self._cache.mkdir(parents=True, exist_ok=True)
                self._made[environment] = make()
            except (_Failed, AptFailed, OSError) as error:
                self._made[environment] = Missing(reason=str(error))
        made = self._made[environment]
        return made if isinstance(made, Missing) else program(made)

    def _compile(self) -> Path:
        source = FOLDER / "client.c"
        target = self._cache / f"client-{_digest(source.read_text(encoding='utf-8'))}"
        if target.exists():
            return target
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-o", str(target), str(source), "-lrabbitmq"]
        try:
            _run(command, timeout_s=COMPILE_S_MAX)
        except _Failed:
            self._install_packages(C_PACKAGES)
            _run(command, timeout_s=COMPILE_S_MAX)
        return target

    def _install_python(self) -> Path:
        folder = self._cache / f"python-{_digest(sys.version, *PYTHON_PACKAGES)}"
        python = folder / "bin" / "python"
        if _is_complete(folder):
            return python
        self._say(f"installing {', '.join(PYTHON_PACKAGES)} into an environment of their own")
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)], timeout_s=INSTALL_S_MAX)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *PYTHON_PACKAGES], timeout_s=INSTALL_S_MAX)
        _complete(folder)
        return python

    def _install_node(self) -> Path:
        folder = self._cache / f"node-{_digest(*NODE_PACKAGES)}"
        if shutil.which("node") is None or shutil.which("npm") is None:
            self._install_packages(("nodejs", "npm"))
        if _is_complete(folder):
            return folder
        self._say(f"installing {', '.join(NODE_PACKAGES)}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
        npm = ["npm", "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"]
        _run([*npm, *NODE_PACKAGES], timeout_s=INSTALL_S_MAX)
        _complete(folder)
        return folder

    def _install_packages(self, packages: Sequence[str]) -> None:
        if not apt.is_here():
            raise _Failed(f"it needs {', '.join(packages)}, and there is no apt-get here: install them yourself")
        self._say(f"installing {', '.join(packages)}")
        try:
            apt.install(packages)
        except AptFailed:
            # The package lists may be older than what the mirror has.
            apt.update()
            apt.install(packages)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where compiled and installed clients are kept."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "redrive" / "bench"


def _python_program(python: Path, client: str) -> Program | Missing:
    module = f"{client.replace('-', '_')}_client"
    if not (FOLDER / f"{module}.py").is_file():
        return Missing(reason=f"bench/amqp/clients/{module}.py is not there")
    return Program(argv=(str(python), "-m", f"bench.amqp.clients.{module}"), folder=PROJECT)


def _node_program(folder: Path, client: str) -> Program:
    return Program(argv=("node", str(FOLDER / f"{client}_client.mjs")), folder=folder)


def _run(argv: Sequence[str], *, timeout_s: float) -> None:
    shown = " ".join([Path(argv[0]).name, *argv[1:3]])
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
    except FileNotFoundError:
        raise _Failed(f"there is no {Path(argv[0]).name} here") from None
    except subprocess.TimeoutExpired:
        raise _Failed(f"`{shown} …` was not done after {timeout_s:.0f} s") from None
    if done.returncode != 0:
        said = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise _Failed(f"`{shown} …` failed: {said}")


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def _is_complete(folder: Path) -> bool:
    return (folder / "complete").is_file()


def _complete(folder: Path) -> None:
    (folder / "complete").touch()
