"""apt for the rig: which RabbitMQ it would install, which mirror it uses, installing packages.

Installing rabbitmq-server would start a broker on port 5672. Running the tests must not leave a broker running on a
machine that had none, so services are held back while apt works and the new ones are not left enabled. A broker that
was installed before is not touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rig.privilege import NO_ROOT_HINT, root_prefix

POLICY = Path("/usr/sbin/policy-rc.d")
POLICY_TEXT = "#!/bin/sh\n# redrive rig: no service starts while packages are installed for tests\nexit 101\n"
# Units that come with rabbitmq-server, erlang-base and postgresql.
UNITS = ("rabbitmq-server.service", "epmd.service", "epmd.socket", "postgresql.service")
UPDATE_S_MAX = 300
INSTALL_S_MAX = 900


class AptFailed(Exception):
    """apt could not do it; the text says why in half a sentence."""


def is_here() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-query") is not None


def candidate_version(package: str) -> str | None:
    """The version apt would install, without epoch, or None when it knows no such package."""
    for line in _output(["apt-cache", "policy", package]).splitlines():
        key, _, value = line.strip().partition(": ")
        if key == "Candidate" and value != "(none)":
            return value.rpartition(":")[2]
    return None


def debian_mirror() -> str | None:
    """The Debian mirror this machine's own apt uses, or None (Ubuntu has none)."""
    lines = _output(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
    ).splitlines()
    targets = [line.split("|", 2) for line in lines if line.count("|") >= 2]
    named = [uri for origin, label, uri in targets if (origin, label) == ("Debian", "Debian")]
    # Before the first `apt-get update` origin and label are not known, only the address.
    guessed = [uri for origin, _, uri in targets if not origin and uri.rstrip("/").endswith("/debian")]
    return next(iter(named + guessed), None)


def update() -> None:
    """Renew the package lists. Raises AptFailed."""
    as_root(["apt-get", "update", "-qq"], timeout_s=UPDATE_S_MAX)


def install(packages: Sequence[str]) -> None:
    """Install what is not installed yet, without starting any service. Raises AptFailed."""
    missing = [package for package in packages if not is_installed(package)]
    if not missing:
        return
    units_before = {unit for unit in UNITS if _unit_exists(unit)}
    apt_get = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"]
    with _services_held_back():
        # An installation that was interrupted must be finished before apt will do anything else.
        as_root(["env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--configure", "-a"], timeout_s=INSTALL_S_MAX)
        as_root([*apt_get, "install", "-y", "-qq", "--no-install-recommends", *missing], timeout_s=INSTALL_S_MAX)
    _put_to_rest([unit for unit in UNITS if unit not in units_before and _unit_exists(unit)])


def is_installed(package: str) -> bool:
    query = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True)
    return query.returncode == 0 and query.stdout == "installed"


def as_root(argv: Sequence[str], *, timeout_s: float, text: str | None = None) -> None:
    """Run a command as root, with `text` for its standard input. Raises AptFailed with the end of its output."""
    prefix = root_prefix()
    if prefix is None:
        raise AptFailed(f"it needs root: {NO_ROOT_HINT}")
    try:
        done = subprocess.run(
            [*prefix, *argv], input="" if text is None else text, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise AptFailed(f"`{' '.join(argv[:4])} …` was not done after {timeout_s:.0f} s") from None
    if done.returncode != 0:
        said = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise AptFailed(f"`{' '.join(argv[:4])} …` failed: {said}")


@contextmanager
def _services_held_back() -> Iterator[None]:
    """A policy-rc.d that forbids starting services, for a while. One that is there already (Docker's) decides instead,
    unless it is ours, left by a run that was killed."""
    if POLICY.exists() and POLICY.read_text(encoding="utf-8", errors="replace") != POLICY_TEXT:
        yield
        return
    as_root(["sh", "-c", f"cat > {POLICY} && chmod 755 {POLICY}"], timeout_s=30, text=POLICY_TEXT)
    try:
        yield
    finally:
        as_root(["rm", "-f", str(POLICY)], timeout_s=30)


def _put_to_rest(units: Sequence[str]) -> None:
    """Stop and disable units that only came with the packages just installed, whatever let them start."""
    if units:
        as_root(["systemctl", "--quiet", "disable", "--now", *units], timeout_s=60)
        running = [unit for unit in units if _systemctl("is-active", unit)]
        if running:
            raise AptFailed(f"{', '.join(running)} still runs; stop it with systemctl stop {' '.join(running)}")


def _unit_exists(unit: str) -> bool:
    return Path("/run/systemd/system").is_dir() and _systemctl("cat", unit)


def _systemctl(*arguments: str) -> bool:
    return subprocess.run(["systemctl", *arguments], capture_output=True, timeout=30).returncode == 0


def _output(argv: Sequence[str]) -> str:
    """What a command prints, in English; nothing when it fails."""
    environ = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environ, stdin=subprocess.DEVNULL)
    return done.stdout if done.returncode == 0 else ""
