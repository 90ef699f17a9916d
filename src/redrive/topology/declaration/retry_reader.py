"""`retry:` in all its forms: delays alone, a mapping with a shape, a shape object, or false; and how defaults merge."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

from redrive.topology.declaration.data_reader import DataReader
from redrive.topology.option_types import Invalid, OptionType, Path, describe, nearest
from redrive.topology.shapes import DEFAULT_SHAPE, SHAPES, ServiceShape, Shape


class RetryReader:
    """Reads the value of `retry:` into a shape; equal options become one object."""

    def __init__(self, reader: DataReader) -> None:
        self._reader = reader
        self._shapes: dict[Any, Shape] = {}

    def of_queue(
        self, entry: Mapping[str, Any], defaults: Mapping[str, Any], path: Path, service: str | None
    ) -> Shape | None:
        """The queue's own options over the defaults, key by key; defaults of another shape do not apply."""
        base = _retry_mapping(defaults.get("retry")) or {}
        written = entry.get("retry")
        if written is False and service is not None:
            summary = "a service always has its retry loop"
            self._reader.report((*path, "retry"), "not-service", summary, "list it under queues: instead")
        if written is False or (written is None and not base and service is None):
            return None
        if "retry" in entry and not self._is_retry(written, (*path, "retry")):
            return None
        own = _retry_mapping(written) or {}
        shape = own.get("shape", ServiceShape.name if service is not None else base.get("shape", DEFAULT_SHAPE))
        if shape != base.get("shape", DEFAULT_SHAPE):
            base = {}
        paths = dict.fromkeys(base, ("defaults", "retry")) | dict.fromkeys(own, (*path, "retry"))
        merged = {**base, **own, "shape": shape}
        if service is not None:
            merged["service"] = service
        elif shape == ServiceShape.name and "queue" in own:
            summary = "names queues that are listed under services:; this one has its name already"
            self._reader.report((*path, "retry", "queue"), "unknown-key", summary, "leave it out")
        # A short form (`retry: [30s, 5m]`) has no key of its own to point at.
        if not isinstance(written, Mapping | Shape) and "delays" in own:
            return self._shape(merged, {**paths, "delays": (*path, "retry")}, short=True)
        return self._shape(merged, paths)

    def check_default(self, value: Any, path: Path) -> None:
        """Checks a default `retry` where it stands, whether or not a queue uses it."""
        mapping = _retry_mapping(value) if self._is_retry(value, path) else None
        if mapping is None:
            return
        self._shape(
            {"shape": DEFAULT_SHAPE, **mapping}, dict.fromkeys(mapping, path), short=not isinstance(value, Mapping)
        )

    def _is_retry(self, value: Any, path: Path) -> bool:
        if isinstance(value, Mapping):
            return len(self._reader.mapping(value, path)) == len(value)
        if isinstance(value, list | tuple | str | timedelta | Shape) or value is None or value is False:
            return True
        hint = "write false without quotes for none" if value is True else ""
        self._reader.report(
            path,
            "wrong-type",
            f"must be a list of delays, a mapping with a shape, or false, not {describe(value)}",
            hint,
        )
        return False

    def _shape(self, options: Mapping[str, Any], paths: Mapping[str, Path], *, short: bool = False) -> Shape | None:
        remembered = _frozen(options)
        if remembered is not None and remembered in self._shapes:
            return self._shapes[remembered]
        name = options["shape"]
        where = (*paths["shape"], "shape") if "shape" in paths else ()
        if not isinstance(name, str) or name not in SHAPES:
            self._reader.report(where, "unknown-shape", f"there is no shape {describe(name)}", nearest(name, SHAPES))
            return None
        shape = SHAPES[name]
        option_types: dict[str, OptionType] = {one.name: one.metadata["type"] for one in fields(shape)}
        given: dict[str, Any] = {}
        before = len(self._reader.findings)
        for key, value in options.items():
            if key == "shape":
                continue
            path = paths.get(key, ()) if short and key == "delays" else (*paths.get(key, ()), key)
            if key not in option_types:
                self._reader.report(
                    path, "unknown-key", f"shape {name} has no option {describe(key)}", nearest(key, option_types)
                )
            elif self._reader.value(value, path, option_types[key]) is not None:
                given[key] = value
        if len(self._reader.findings) > before:
            return None
        try:
            built = shape(**given)
        except Invalid as problem:
            first = problem.path[0] if problem.path else "shape"
            self._reader.report(
                (*paths.get(str(first), ()), *problem.path), "invalid-option", problem.summary, problem.hint
            )
            return None
        if remembered is not None:
            self._shapes[remembered] = built
        return built


def _retry_mapping(value: Any) -> Mapping[str, Any] | None:
    """The value of `retry:` in its long form, a shape object as its options; None without a retry."""
    if value is None or value is False:
        return None
    if isinstance(value, Shape):
        options = {one.name: getattr(value, one.name) for one in fields(value)}
        return {"shape": value.name, **{key: one for key, one in options.items() if one is not None}}
    return value if isinstance(value, Mapping) else {"delays": value}


def _frozen(options: Mapping[str, Any]) -> Any:
    """A hashable key for options, so that equal ones share a shape; None if they are not hashable."""
    try:
        key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
        hash(key)
    except TypeError:
        return None
    return tuple((name, type(value), value) for name, value in key)
