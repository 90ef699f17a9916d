"""`auto_retry:` in its forms: true, false, or a mapping of what differs from the default; and how defaults merge."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redrive.core import parse_duration_ms
from redrive.topology.declaration.data_reader import DataReader
from redrive.topology.declaration.keys import AUTO_RETRY_KEYS
from redrive.topology.declaration.model import DeclaredAutoRetry
from redrive.topology.option_types import Count, Duration, Path, describe

ATTEMPTS = Count(1, 1_000, "attempts counts redrives before a dead letter is failed")
PAUSE = Duration()
_ATTRIBUTES = {"first": "first_ms", "max": "max_ms", "settle": "settle_ms"}


def read_auto_retry(
    reader: DataReader, entry: Mapping[str, Any], defaults: Mapping[str, Any], path: Path
) -> DeclaredAutoRetry | None:
    """The queue's own values over the defaults, key by key; None where neither has any."""
    own = entry.get("auto_retry")
    base = defaults.get("auto_retry")
    if own is None:
        return _read(reader, base, ("defaults", "auto_retry"), DeclaredAutoRetry())
    start = _read(reader, base, ("defaults", "auto_retry"), DeclaredAutoRetry())
    return _read(reader, own, (*path, "auto_retry"), DeclaredAutoRetry() if start is None else start)


def _read(reader: DataReader, value: Any, path: Path, start: DeclaredAutoRetry) -> DeclaredAutoRetry | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return replace(start, is_on=value)
    if not isinstance(value, Mapping):
        summary = f"must be true, false or a mapping, not {describe(value)}"
        reader.report(path, "wrong-type", summary, f"known here: {', '.join(AUTO_RETRY_KEYS)}")
        return None
    options = {"attempts": start.attempts} | {one: getattr(start, one) for one in _ATTRIBUTES.values()}
    given = reader.mapping(value, path, AUTO_RETRY_KEYS)
    if given.get("attempts") is not None:
        options["attempts"] = reader.value(given["attempts"], (*path, "attempts"), ATTEMPTS) or start.attempts
    for key, attribute in _ATTRIBUTES.items():
        if given.get(key) is not None:
            text = reader.value(given[key], (*path, key), PAUSE)
            options[attribute] = getattr(start, attribute) if text is None else parse_duration_ms(text)
    if options["first_ms"] > options["max_ms"]:
        reader.report(path, "contradiction", "first is longer than max, the longest pause", "make max longer")
    return DeclaredAutoRetry(
        attempts=options["attempts"],
        first_ms=options["first_ms"],
        max_ms=options["max_ms"],
        settle_ms=options["settle_ms"],
    )
