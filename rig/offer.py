"""What there is to test on: which brokers, standing for which known versions, and what is missing.

REDRIVE_TEST_URLS decides alone when it is set; otherwise what `python -m rig build` made. Nothing is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rig.external import VARIABLE, ExternalBroker, connect, parse_test_urls
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
class Offer:
    """`sources` to test on; `missing` known versions, which no source has exactly, each with the reason."""

    sources: tuple[Source, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def sources_for(self, label: str) -> list[Source]:
        """Whoever has this version or stands in for it; never for two known versions."""
        return [source for source in self.sources if source.profile == label]


def discover(environ: Mapping[str, str]) -> Offer:
    """Raises TestUrlsRefused."""
    named = environ.get(VARIABLE, "")
    if named.strip():
        brokers = [connect(address) for address in parse_test_urls(named)]
        reasons = dict.fromkeys(LABELS, f"{VARIABLE} names no such broker")
        return make_offer(brokers, reasons)
    cache = cache_folder(environ)
    installations = choose_installations(find_installations(cache))
    reasons = {label: _why_not_built(environ, label) for label in LABELS}
    if any(each.needs_root for each in installations) and root_prefix() is None:
        reasons |= {each.label: f"its chroot needs root: {NO_ROOT_HINT}" for each in installations if each.needs_root}
        installations = [each for each in installations if not each.needs_root]
    return make_offer(installations, reasons)


def make_offer(sources: list[ExternalBroker] | list[Installation], reasons: Mapping[str, str]) -> Offer:
    missing: dict[str, str] = {}
    for label in LABELS:
        if any(source.label == label for source in sources):
            continue
        stand_ins = [source.version for source in sources if source.profile == label]
        stands_in = f" ({', '.join(stand_ins)} stands in for it)" if stand_ins else ""
        missing[label] = reasons[label] + stands_in
    return Offer(sources=tuple(sources), missing=missing)


def _why_not_built(environ: Mapping[str, str], label: str) -> str:
    file = reason_file(cache_folder(environ), label)
    if file.is_file():
        return file.read_text(encoding="utf-8").strip()
    return f"it was not built; run `python -m rig build {label}`"
