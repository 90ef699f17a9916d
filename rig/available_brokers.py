"""The brokers that tests can run on, the known version that each stands for, and which versions are missing.

They are those of REDRIVE_TEST_URLS if it is set, otherwise those that `python -m rig build` installed. Nothing is
started here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rig.external_brokers import VARIABLE, ExternalBroker, connect, parse_test_urls
from rig.privilege import NO_ROOT_HINT, root_prefix
from rig.versions import (
    LABELS,
    Installation,
    cache_folder,
    choose_installations,
    find_installations,
    reason_file,
)

Source = Installation | ExternalBroker
NOTHING = (
    "There is no RabbitMQ to run the live tests on: run `python -m rig build` (Debian or Ubuntu, as root or with "
    f"sudo), or start one with its management plugin and name it in {VARIABLE} (amqp://guest:guest@localhost:5672/), "
    "or run `make test-quick`, which needs none."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableBrokers:
    """`sources` to test on; `missing` known versions, which no source has exactly, each with the reason."""

    sources: tuple[Source, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def sources_for(self, label: str) -> list[Source]:
        """The sources that have this version or stand in for it; no source stands for two known versions."""
        return [source for source in self.sources if source.profile == label]


def discover(environ: Mapping[str, str]) -> AvailableBrokers:
    """Raises TestUrlsRefused."""
    named = environ.get(VARIABLE, "")
    if named.strip():
        brokers = [connect(address) for address in parse_test_urls(named)]
        reasons = dict.fromkeys(LABELS, f"{VARIABLE} names no such broker")
        return list_available(brokers, reasons)
    cache = cache_folder(environ)
    installations = choose_installations(find_installations(cache))
    reasons = {label: _why_not_built(environ, label) for label in LABELS}
    if any(each.needs_root for each in installations) and root_prefix() is None:
        reasons |= {each.label: f"its chroot needs root: {NO_ROOT_HINT}" for each in installations if each.needs_root}
        installations = [each for each in installations if not each.needs_root]
    return list_available(installations, reasons)


def list_available(sources: list[ExternalBroker] | list[Installation], reasons: Mapping[str, str]) -> AvailableBrokers:
    missing: dict[str, str] = {}
    for label in LABELS:
        if any(source.label == label for source in sources):
            continue
        stand_ins = [source.version for source in sources if source.profile == label]
        stands_in = f" ({', '.join(stand_ins)} stands in for it)" if stand_ins else ""
        missing[label] = reasons[label] + stands_in
    return AvailableBrokers(sources=tuple(sources), missing=missing)


def _why_not_built(environ: Mapping[str, str], label: str) -> str:
    file = reason_file(cache_folder(environ), label)
    if file.is_file():
        return file.read_text(encoding="utf-8").strip()
    return f"it was not built; run `python -m rig build {label}`"
