"""The RabbitMQ versions the rig knows, and which of them this machine has.

A version is named by its label, "major.minor". The distribution's own package serves the label it really has; the
other labels come from the Debian suite that ships them, in a chroot under the user's cache folder. A folder there with
the label for its name is complete: it gets that name in the last step of its making. The real version is read from the
name of the folder RabbitMQ is installed in, so looking costs no process.

Must not know how versions are installed (build.py) or run (node.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SUITES: Mapping[str, str] = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
LABELS: tuple[str, ...] = tuple(SUITES)

# Enters the chroot in a mount namespace of its own: what is mounted there ends with the last process in it, however
# that process dies. The temp folder keeps its path, so that configuration may name files of a test's tmp_path.
ENTER_CHROOT = """
root=$1 shared=$2; shift 2
mount -t proc proc "$root/proc" && mkdir -p "$root$shared" && mount --rbind "$shared" "$root$shared" || exit 70
exec chroot "$root" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One RabbitMQ on this machine: the distribution's own (`root` is /) or one in a chroot."""

    version: str
    root: Path

    @property
    def label(self) -> str:
        return label_of(self.version)

    @property
    def profile(self) -> str:
        return profile_of(self.label)

    @property
    def needs_root(self) -> bool:
        return self.root != Path("/")

    def command(self, program: str, *arguments: str, shared: Path) -> list[str]:
        """The command line that runs `program` of this installation; `shared` is visible to it at its own path."""
        if not self.needs_root:
            return [program, *arguments]
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", ENTER_CHROOT, "enter", str(self.root), str(shared), program, *arguments]


def label_of(version: str) -> str:
    """`3.10.8` → `3.10`."""
    major, minor = version_numbers(version)
    return f"{major}.{minor}"


def profile_of(label: str) -> str:
    """The known label whose behaviour a broker is expected to have: the newest that is not newer than it."""
    older = [known for known in LABELS if version_numbers(known) <= version_numbers(label)]
    return older[-1] if older else LABELS[0]


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "redrive" / "rig"


def chroot_folder(cache: Path, label: str) -> Path:
    return cache / label


def reason_file(cache: Path, label: str) -> Path:
    """Where a build that failed leaves its reason for the test run's closing summary."""
    return cache / f"{label}.reason"


def installed_version(root: Path) -> str | None:
    """The full version of the RabbitMQ package under `root`, or None."""
    prefix = "rabbitmq_server-"
    found = [folder.name.removeprefix(prefix) for folder in (root / "usr/lib/rabbitmq/lib").glob(f"{prefix}*")]
    return max((version for version in found if re.match(r"\d+\.\d+", version)), key=version_numbers, default=None)


def find_installations(cache: Path, *, host: Path = Path("/")) -> list[Installation]:
    """Everything there is, the distribution's own first."""
    roots = [host, *(chroot_folder(cache, label) for label in LABELS)]
    versions = [(root, installed_version(root)) for root in roots]
    return [Installation(version=version, root=root) for root, version in versions if version is not None]


def choose_installations(installations: Iterable[Installation]) -> list[Installation]:
    """One installation for each known label; one of another version only where it must stand in for a known label."""
    exact: dict[str, Installation] = {}
    others: dict[str, Installation] = {}
    for installation in installations:
        known = installation.label in SUITES
        (exact if known else others).setdefault(installation.profile, installation)
    chosen = others | exact
    return [chosen[label] for label in LABELS if label in chosen]


def installation_for(label: str, installations: Iterable[Installation]) -> Installation | None:
    """The installation that serves a label, itself or standing in."""
    return next((each for each in installations if label in (each.label, each.profile)), None)


def version_numbers(version: str) -> tuple[int, int]:
    """Major and minor, to sort by. Raises ValueError."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise ValueError(f"{version!r} is not a RabbitMQ version: it does not begin with major.minor")
    return int(match[1]), int(match[2])
