"""Brings a suite into the user's cache folder: its source distribution, unpacked, and a virtual environment for it.

What is complete has a file that says so, written last; a second run finds it done. Must not know what a suite tests.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.suites import Suite

INSTALL_S_MAX = 900.0


class NotFetched(Exception):
    """A suite can't be had; the message says which step failed, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """A suite on this machine: its unpacked source and the Python that runs it."""

    source: Path
    python: Path


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where suites are kept."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "redrive" / "conformance"


def fetch(suite: Suite, cache: Path) -> Checkout:
    """The suite, fetched if it is not there. Raises NotFetched."""
    folder = cache / f"{suite.name}-{suite.version}"
    folder.mkdir(parents=True, exist_ok=True)
    source = _unpack(suite, folder)
    return Checkout(source=source, python=_environment(suite, folder, source))


def _unpack(suite: Suite, folder: Path) -> Path:
    unpacked = folder / "source"
    if not unpacked.exists():
        wanted = folder / "wanted.txt"
        wanted.write_text(suite.requirement + "\n", encoding="utf-8")
        no_wheel = ["--no-deps", "--no-binary", suite.distribution]
        _run(
            f"download {suite.name}", _pip(sys.executable), "download", *no_wheel, "-r", str(wanted), "-d", str(folder)
        )
        archive = next(folder.glob("*.tar.gz"))
        half = folder / "source.unfinished"
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(half, filter="data")
            else:  # before 3.11.4; the archive's hash is known, so its paths are too
                tar.extractall(half)
        half.rename(unpacked)
    return next(path for path in unpacked.iterdir() if path.is_dir())


def _environment(suite: Suite, folder: Path, source: Path) -> Path:
    """A virtual environment with what the suite needs and the suite's own library, built from its source."""
    python = folder / "venv" / "bin" / "python"
    wanted = "\n".join(suite.requirements) + "\n"
    complete = folder / "installed.txt"
    if not complete.exists() or complete.read_text(encoding="utf-8") != wanted:
        lock = folder / "requirements.txt"
        lock.write_text(wanted, encoding="utf-8")
        _run(f"make an environment for {suite.name}", [sys.executable, "-m", "venv", str(folder / "venv")])
        _run(f"install what {suite.name} needs", _pip(str(python)), "install", "-r", str(lock))
        archive = next(folder.glob("*.tar.gz"))
        _run(f"install {suite.name}", _pip(str(python)), "install", "--no-deps", str(archive))
        complete.write_text(wanted, encoding="utf-8")
    return python


def _pip(python: str) -> list[str]:
    return [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def _run(what: str, command: list[str], *arguments: str) -> None:
    try:
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"could not {what}: not done after {INSTALL_S_MAX:.0f} s") from None
    if done.returncode:
        raise NotFetched(f"could not {what}:\n{(done.stdout + done.stderr)[-2000:]}")
