"""From plain data, as YAML gives it or Python writes it, to a `Declaration`; every problem at once.

The reader owns the grammar of `redrive.yaml`: which keys there are, which short forms, how defaults merge. What an
option's value may be is its kind's business (`options`), what a shape makes of it the shape's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from redrive.core import Finding, InvalidDeclaration
from redrive.topology.declaration.grammar import (
    APPLY_TO,
    BINDING_KEYS,
    DEFAULT_KEYS,
    EXCHANGE_KEYS,
    POLICY_KEYS,
    QUEUE_KEYS,
    TOP_KEYS,
)
from redrive.topology.declaration.yaml_source import YamlSource
from redrive.topology.declared import (
    BindingSource,
    Declaration,
    DeclaredExchange,
    DeclaredQueue,
    Locate,
    finding_at,
)
from redrive.topology.model import DEFAULT_VHOST, ExchangeType, Policy, QueueType
from redrive.topology.names import name_problem
from redrive.topology.options import Choice, Flag, Invalid, Kind, Path, Text, describe, nearest, quote_hint
from redrive.topology.shapes import DEFAULT_SHAPE, SHAPES, Service, Shape
from redrive.topology.values import NO_ARGUMENTS, Arguments

_TEXT = Text()
_FLAG = Flag()
_QUEUE_TYPE = Choice(tuple(QueueType))


def read_declaration(text: str, *, file: str = "redrive.yaml") -> Declaration:
    """A declaration from YAML text. Raises `InvalidDeclaration` with every finding, each with its line and column."""
    source = YamlSource(text, file)
    return _Reader(source.locate).declaration(source.data)


def declare(**sections: Any) -> Declaration:
    """A declaration in Python: the sections of `redrive.yaml` as keyword arguments, in the same forms.

    `declare(exchanges={"domain.events": "topic"}, queues={"orders": {"from": {"domain.events": ["orders.#"]},
    "retry": ["30s", "5m"]}})`. A `retry` may also be a shape object (`Ladder(delays=["30s", "5m"])`) and a duration a
    timedelta. Raises `InvalidDeclaration`.
    """
    return _Reader(lambda _path: None).declaration(sections)


class _Reader:
    """One reading: collects findings as it goes, and raises them together at the end."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self._findings: dict[tuple[Path, str], Finding] = {}
        self._shapes: dict[Any, Shape] = {}

    def declaration(self, data: Any) -> Declaration:
        top = self._mapping(data, (), TOP_KEYS)
        if data is None:
            self._report((), "empty", "is empty", "start with: redrive init")
        defaults = self._mapping(top.get("defaults"), ("defaults",), DEFAULT_KEYS)
        if "retry" in defaults:
            self._retry(defaults["retry"], ("defaults", "retry"), None)
        declaration = Declaration(
            vhost=self._name(top.get("vhost", DEFAULT_VHOST), ("vhost",), "vhost") or DEFAULT_VHOST,
            broker=self._value(top.get("broker"), ("broker",), Text(optional=True)),
            database=self._value(top.get("database"), ("database",), Text(optional=True)),
            exchanges=tuple(self._exchanges(top.get("exchanges"))),
            queues=(*self._queues(top.get("queues"), defaults), *self._services(top.get("services"), defaults)),
            policies=(
                *self._policies(top.get("policies"), "policies"),
                *self._policies(top.get("operator_policies"), "operator_policies"),
            ),
            locate=self._locate,
        )
        if self._findings:
            raise InvalidDeclaration(sorted(self._findings.values(), key=_reading_order))
        return declaration

    # Sections

    def _exchanges(self, data: Any) -> Iterable[DeclaredExchange]:
        for name, value in self._mapping(data, ("exchanges",)).items():
            path = ("exchanges", name)
            self._name(name, path, "exchange")
            entry = {"type": value} if isinstance(value, str) else self._mapping(value, path, EXCHANGE_KEYS)
            if value is not None and "type" not in entry and isinstance(value, Mapping):
                self._report(path, "missing-type", "has no type", f"say one of {', '.join(ExchangeType)}")
            elif value is None:
                self._report(path, "missing-type", "has no type", f"write {name}: topic")
            yield DeclaredExchange(
                name=name,
                type=self._exchange_type(entry.get("type", "topic"), (*path, "type") if entry is value else path),
                durable=self._flag(entry, "durable", path, True),
                auto_delete=self._flag(entry, "auto_delete", path, False),
                internal=self._flag(entry, "internal", path, False),
                alternate=self._value(entry.get("alternate"), (*path, "alternate"), Text(optional=True)),
                arguments=self._arguments(entry.get("arguments"), (*path, "arguments")),
                sources=self._sources(entry.get("from"), (*path, "from")),
            )

    def _queues(self, data: Any, defaults: Mapping[str, Any]) -> Iterable[DeclaredQueue]:
        for name, value in self._mapping(data, ("queues",)).items():
            path: Path = ("queues", name)
            self._name(name, path, "queue")
            entry = self._mapping(value, path, QUEUE_KEYS)
            yield self._queue(name, entry, defaults, path, self._merged_retry(entry, defaults, path, None))

    def _services(self, data: Any, defaults: Mapping[str, Any]) -> Iterable[DeclaredQueue]:
        if isinstance(data, list | tuple):
            data = self._service_list(data)
        for service, value in self._mapping(data, ("services",)).items():
            path: Path = ("services", service)
            entry = self._mapping(value, path, QUEUE_KEYS)
            retry = self._merged_retry(entry, defaults, path, service)
            shape = retry if isinstance(retry, Service) else Service(service=service)
            if retry is not None and not isinstance(retry, Service):
                self._report((*path, "retry"), "not-service", "a service has shape service", "list it under queues:")
            name = shape.queue_name(service)
            self._name(name, path, "queue")
            yield self._queue(name, entry, defaults, path, shape, service)

    def _service_list(self, data: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
        services: dict[str, Any] = {}
        for index, service in enumerate(data):
            if self._value(service, ("services", index), _TEXT) is None:
                continue
            if service in services:
                self._report(("services", index), "duplicate-service", f"{service} is listed twice", "keep one")
            services[service] = None
        return services

    def _queue(
        self,
        name: str,
        entry: Mapping[str, Any],
        defaults: Mapping[str, Any],
        path: Path,
        retry: Shape | None,
        service: str | None = None,
    ) -> DeclaredQueue:
        def setting(key: str) -> tuple[Any, Path]:
            return (entry[key], (*path, key)) if key in entry else (defaults.get(key), ("defaults", key))

        kind, kind_path = setting("type")
        durable, durable_path = setting("durable")
        auto_delete, auto_delete_path = setting("auto_delete")
        filed_under, service_path = setting("service")
        arguments = self._arguments(defaults.get("arguments"), ("defaults", "arguments"))
        own = self._arguments(entry.get("arguments"), (*path, "arguments"))
        return DeclaredQueue(
            name=name,
            type=None if kind is None else self._value(kind, kind_path, _QUEUE_TYPE),
            durable=True if durable is None else bool(self._value(durable, durable_path, _FLAG)),
            auto_delete=False if auto_delete is None else bool(self._value(auto_delete, auto_delete_path, _FLAG)),
            arguments=Arguments({**arguments, **own}) if arguments and own else own or arguments,
            sources=self._sources(entry.get("from"), (*path, "from")),
            retry=retry,
            service=self._value(filed_under, service_path, Text(optional=True)) or service,
            path=path,
        )

    def _policies(self, data: Any, section: str) -> Iterable[Policy]:
        for name, value in self._mapping(data, (section,)).items():
            path: Path = (section, name)
            entry = self._mapping(value, path, POLICY_KEYS)
            for key in ("pattern", "definition"):
                if entry.get(key) is None:
                    self._report(path, "missing-key", f"has no {key}", "")
            priority = entry.get("priority", 0)
            if isinstance(priority, bool) or not isinstance(priority, int):
                self._report((*path, "priority"), "wrong-type", f"must be a whole number, not {describe(priority)}")
                priority = 0
            yield Policy(
                name=name,
                pattern=self._value(entry.get("pattern", ""), (*path, "pattern"), Text(optional=True)) or "",
                definition=self._arguments(entry.get("definition"), (*path, "definition"), policy=True),
                apply_to=self._value(entry.get("apply_to", "all"), (*path, "apply_to"), Choice(APPLY_TO)) or "all",
                priority=priority,
                operator=section == "operator_policies",
            )

    # Retry

    def _merged_retry(
        self, entry: Mapping[str, Any], defaults: Mapping[str, Any], path: Path, service: str | None
    ) -> Shape | None:
        """A queue's own options over the defaults, key by key; defaults of another shape do not apply."""
        base = _retry_mapping(defaults.get("retry"))
        written = entry.get("retry")
        if written is False or (written is None and base is None and service is None):
            return None
        if isinstance(written, Shape) or (written is None and isinstance(base, Shape)):
            return written if isinstance(written, Shape) else base if isinstance(base, Shape) else None
        if "retry" in entry and not self._is_retry(written, (*path, "retry")):
            return None
        own = _retry_mapping(written)
        own = own if isinstance(own, Mapping) else {}
        base = base if isinstance(base, Mapping) else {}
        shape = own.get("shape", Service.name if service is not None else base.get("shape", DEFAULT_SHAPE))
        if shape != base.get("shape", DEFAULT_SHAPE):
            base = {}
        origins = dict.fromkeys(base, ("defaults", "retry")) | dict.fromkeys(own, (*path, "retry"))
        merged = {**base, **own, "shape": shape}
        if service is not None:
            merged["service"] = service
        # A short form (`retry: [30s, 5m]`) has no key of its own to point at.
        if not isinstance(written, Mapping) and "delays" in own:
            return self._shape(merged, {**origins, "delays": (*path, "retry")}, short=True)
        return self._shape(merged, origins)

    def _retry(self, value: Any, path: Path, service: str | None) -> None:
        """Checks a default `retry` where it stands, whether or not a queue uses it."""
        if value is False or isinstance(value, Shape) or not self._is_retry(value, path):
            return
        mapping = _retry_mapping(value)
        assert isinstance(mapping, Mapping)
        self._shape(
            {"shape": DEFAULT_SHAPE, **mapping}, dict.fromkeys(mapping, path), short=not isinstance(value, Mapping)
        )

    def _is_retry(self, value: Any, path: Path) -> bool:
        if isinstance(value, Mapping):
            return all(isinstance(key, str) for key in value)
        if isinstance(value, list | tuple | str) or value is None:
            return True
        hint = "write false without quotes for none" if value is True else ""
        self._report(
            path,
            "wrong-type",
            f"must be a list of delays, a mapping with a shape, or false, not {describe(value)}",
            hint,
        )
        return False

    def _shape(self, options: Mapping[str, Any], origins: Mapping[str, Path], *, short: bool = False) -> Shape | None:
        remembered = _frozen(options)
        if remembered is not None and remembered in self._shapes:
            return self._shapes[remembered]
        name = options["shape"]
        where = (*origins["shape"], "shape") if "shape" in origins else ()
        if not isinstance(name, str) or name not in SHAPES:
            self._report(where, "unknown-shape", f"there is no shape {describe(name)}", nearest(name, SHAPES))
            return None
        shape = SHAPES[name]
        kinds: dict[str, Kind] = {one.name: one.metadata["kind"] for one in fields(shape)}
        given: dict[str, Any] = {}
        before = len(self._findings)
        for key, value in options.items():
            if key == "shape":
                continue
            path = origins.get(key, ()) if short and key == "delays" else (*origins.get(key, ()), key)
            if key not in kinds:
                self._report(path, "unknown-key", f"shape {name} has no option {describe(key)}", nearest(key, kinds))
            elif self._value(value, path, kinds[key]) is not None:
                given[key] = value
        if len(self._findings) > before:
            return None
        try:
            built = shape(**given)
        except Invalid as problem:
            first = problem.path[0] if problem.path else "shape"
            self._report((*origins.get(str(first), ()), *problem.path), "invalid-option", problem.summary, problem.hint)
            return None
        if remembered is not None:
            self._shapes[remembered] = built
        return built

    # Bindings and arguments

    def _sources(self, data: Any, path: Path) -> tuple[BindingSource, ...]:
        """`from`: an exchange, a list of exchanges, or a mapping of exchanges to their keys."""
        if data is None:
            return ()
        if isinstance(data, str):
            data = [data]
        if isinstance(data, list | tuple):
            return tuple(
                BindingSource(exchange=one)
                for index, one in enumerate(data)
                if self._value(one, (*path, index), _TEXT) is not None
            )
        sources: list[BindingSource] = []
        for exchange, keys in self._mapping(data, path).items():
            here = (*path, exchange)
            if isinstance(keys, list | tuple):
                for index, key in enumerate(keys):
                    sources.extend(self._source(exchange, key, (*here, index)))
                if not keys:
                    self._report(
                        here, "no-keys", "has no routing keys", "list at least one, or leave it empty for fanout"
                    )
            else:
                sources.extend(self._source(exchange, keys, here))
        return tuple(sources)

    def _source(self, exchange: str, key: Any, path: Path) -> Iterable[BindingSource]:
        arguments = NO_ARGUMENTS
        if isinstance(key, Mapping):
            entry = self._mapping(key, path, BINDING_KEYS)
            arguments = self._arguments(entry.get("arguments"), (*path, "arguments"), policy=True)
            key = entry.get("key")
        if key is None:
            key = ""
        if not isinstance(key, str):
            self._report(path, "wrong-type", f"a routing key must be text, not {describe(key)}", quote_hint(key))
        elif len(key.encode("utf-8", "replace")) > 255:
            self._report(path, "key-too-long", "a routing key can't be longer than 255 bytes", "shorten it")
        else:
            yield BindingSource(exchange=exchange, key=key, arguments=arguments)

    def _arguments(self, data: Any, path: Path, *, policy: bool = False) -> Arguments:
        if data is None:
            return NO_ARGUMENTS
        mapping = self._mapping(data, path)
        if "x-queue-type" in mapping and not policy:
            self._report(
                (*path, "x-queue-type"), "use-type", "the queue's type has a key of its own", "say type: quorum"
            )
        return Arguments(mapping)

    def _exchange_type(self, value: Any, path: Path) -> str:
        if isinstance(value, str) and value.startswith("x-"):
            return value  # a plugin's: the broker knows
        return str(self._value(value, path, Choice(tuple(ExchangeType))) or "topic")

    # Plain values

    def _mapping(self, data: Any, path: Path, known: tuple[str, ...] | None = None) -> dict[str, Any]:
        if data is None:
            return {}
        if not isinstance(data, Mapping):
            hint = f"known here: {', '.join(known)}" if known else "write name: value"
            self._report(path, "wrong-type", f"must be a mapping, not {describe(data)}", hint)
            return {}
        entries: dict[str, Any] = {}
        for key, value in data.items():
            if not isinstance(key, str):
                self._report(path, "wrong-type", f"has the key {describe(key)}, which is no text", quote_hint(key))
            elif known is not None and key not in known:
                self._report((*path, key), "unknown-key", f"{describe(key)} is not known here", nearest(key, known))
            else:
                entries[key] = value
        return entries

    def _name(self, value: Any, path: Path, kind: str) -> str | None:
        if self._value(value, path, _TEXT) is None:
            return None
        problem = name_problem(value, kind)
        if problem is not None:
            self._report(path, "bad-name", problem, "rename it")
        return str(value)

    def _flag(self, entry: Mapping[str, Any], key: str, path: Path, default: bool) -> bool:
        value = entry.get(key)
        return default if value is None else bool(self._value(value, (*path, key), _FLAG))

    def _value(self, value: Any, path: Path, kind: Kind) -> Any:
        try:
            return kind.parse(value)
        except Invalid as problem:
            self._report((*path, *problem.path), "invalid-value", problem.summary, problem.hint)
            return None

    def _report(self, path: Path, code: str, summary: str, hint: str = "") -> None:
        finding = finding_at(path, locate=self._locate, code=code, summary=summary, hint=hint)
        self._findings.setdefault((path, summary), finding)


def _retry_mapping(value: Any) -> Mapping[str, Any] | Shape | None:
    """The long form of what `retry` may be."""
    if value is None or value is False:
        return None
    if isinstance(value, Mapping | Shape):
        return value
    return {"delays": value}


def _frozen(options: Mapping[str, Any]) -> Any:
    """A key under which equal options are found again; None when they can't be one."""
    try:
        key = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in options.items())
        hash(key)
    except TypeError:
        return None
    return tuple((name, type(value), value) for name, value in key)


def _reading_order(finding: Finding) -> tuple[int, int]:
    return (finding.position.line, finding.position.column) if finding.position else (0, 0)
