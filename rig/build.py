"""Makes RabbitMQ versions available: the distribution's own package, and small Debian chroots for the others.

A chroot is made in a folder of another name and renamed when it is complete, so a build that was interrupted leaves
nothing that looks finished; a lock keeps two builders from doing the same work. What can't be had is returned as a
value and its reason kept for the test run's summary: one version failing must not keep the others from being tested.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rig import apt
from rig.apt import AptFailed
from rig.errors import Unavailable
from rig.privilege import NO_ROOT_HINT, root_prefix
from rig.versions import (
    LABELS,
    SUITES,
    chroot_folder,
    find_installations,
    installed_version,
    label_of,
    reason_file,
)

CHROOT_S_MAX = 1800
LOCK_S_MAX = 3600
Say = Callable[[str], None]


def build(labels: Sequence[str], *, cache: Path, say: Say, host: Path = Path("/")) -> list[Unavailable]:
    """Make every label available that can be; return those that can't, each with its reason.

    Costs a look at a few folders when there is nothing to do. `host` is where the distribution's own package is.
    """
    lacking = _lacking(labels, cache, host)
    if not lacking:
        return []
    cache.mkdir(parents=True, exist_ok=True)
    if not apt.is_here():
        unavailable = [Unavailable(label=label, reason="there is no apt-get on this machine") for label in lacking]
    elif root_prefix() is None:
        unavailable = [Unavailable(label=label, reason=f"it needs root: {NO_ROOT_HINT}") for label in lacking]
    else:
        with _build_lock(cache, say):
            # Another builder may have been at it while we waited.
            unavailable = _build_lacking(_lacking(labels, cache, host), cache, say, host)
    _remember(unavailable, lacking, cache)
    return unavailable


def _build_lacking(lacking: Sequence[str], cache: Path, say: Say, host: Path) -> list[Unavailable]:
    if not lacking:
        return []
    try:
        say("apt-get update")
        apt.update()
    except AptFailed as error:
        # Old package lists may still do; if not, the installation below says so better.
        say(f"warning: {error}")
    candidate = apt.candidate_version("rabbitmq-server")
    failed: list[Unavailable] = []
    for label in lacking:
        started = time.monotonic()
        say(f"making RabbitMQ {label} available (once; it takes a minute or two)")
        try:
            if candidate is not None and label_of(candidate) == label and installed_version(host) is None:
                apt.install(["rabbitmq-server"])
            else:
                _make_chroot(label, cache)
        except AptFailed as error:
            failed.append(Unavailable(label=label, reason=str(error)))
        else:
            say(f"RabbitMQ {label} is available ({time.monotonic() - started:.0f} s)")
    if not find_installations(cache, host=host) and candidate is not None:
        _install_stand_in(candidate, say)
    return failed


def _install_stand_in(candidate: str, say: Say) -> None:
    """With no known version at all, the distribution's own package is better than nothing, whatever its version."""
    say(f"installing the distribution's own RabbitMQ {candidate} to stand in")
    try:
        apt.install(["rabbitmq-server"])
    except AptFailed as error:
        say(f"warning: {error}")


def _make_chroot(label: str, cache: Path) -> None:
    target = chroot_folder(cache, label)
    if target.exists():
        raise AptFailed(f"Debian {SUITES[label]} now has {installed_version(target) or 'no RabbitMQ'}")
    for leftover in cache.glob("building-*"):
        # Mounts of an interrupted build ended with its mount namespace, so this removes nothing but its files.
        apt.as_root(["rm", "-rf", "--one-file-system", str(leftover)], timeout_s=300)
    mirror = apt.debian_mirror()
    if mirror is None:
        raise AptFailed(f"it comes from Debian {SUITES[label]}, and apt here is not configured with a Debian mirror")
    apt.install(["mmdebstrap"])
    building = cache / f"building-{label}-{os.getpid()}"
    apt.as_root(_mmdebstrap(SUITES[label], building, mirror), timeout_s=CHROOT_S_MAX)
    made = installed_version(building)
    if made is None:
        raise AptFailed(f"Debian {SUITES[label]} has no RabbitMQ at the moment")
    apt.as_root(["mv", "-T", str(building), str(target)], timeout_s=60)
    if label_of(made) != label:
        raise AptFailed(f"Debian {SUITES[label]} now has {made}")


def _mmdebstrap(suite: str, folder: Path, mirror: str) -> list[str]:
    # In namespaces of their own, and killed with us: an interrupted build leaves neither mounts nor processes.
    contained = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    hosts = 'printf "127.0.0.1 localhost\\n" > "$1/etc/hosts"'
    return [
        *contained,
        "--mount-proc",
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=apt",
        "--include=rabbitmq-server",
        # The Release file of a testing suite may have expired on a mirror that lags.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude=/usr/share/{unread}/*" for unread in ("doc", "man", "locale")),
        f"--customize-hook={hosts}",
        suite,
        str(folder),
        mirror,
    ]


def _lacking(labels: Sequence[str], cache: Path, host: Path) -> list[str]:
    had = {installation.label for installation in find_installations(cache, host=host)}
    return [label for label in LABELS if label in labels and label not in had]


def _remember(unavailable: Sequence[Unavailable], tried: Sequence[str], cache: Path) -> None:
    """Keep the reasons where the test run finds them; forget those of versions that are there by now."""
    reasons = {each.label: each.reason for each in unavailable}
    for label in tried:
        file = reason_file(cache, label)
        if label in reasons:
            file.write_text(reasons[label] + "\n", encoding="utf-8")
        else:
            file.unlink(missing_ok=True)


@contextmanager
def _build_lock(cache: Path, say: Say) -> Iterator[None]:
    """Held by one builder at a time; the kernel gives it back when its holder dies."""
    with (cache / "build.lock").open("a", encoding="utf-8") as file:
        deadline = time.monotonic() + LOCK_S_MAX
        waiting = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another build holds {shlex.quote(file.name)} for over an hour") from None
                if not waiting:
                    say("another build is under way; waiting for it")
                waiting = True
                time.sleep(0.5)
        yield
