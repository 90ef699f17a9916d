"""Reads plain data, from YAML or from Python, into a `Declaration`, and reports every problem at once.

The reader owns the grammar of `redrive.yaml`: its keys, its short forms, how defaults merge. The option types decide
what a value may be (`option_types`), and the shape what to build from it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from redrive.core import Finding, InvalidDeclaration
from redrive.topology.argument_table import NO_ARGUMENTS, Arguments, argument_problem
from redrive.topology.declaration.auto_retry_reader import read_auto_retry
from redrive.topology.declaration.data_reader import FLAG, PAUSE_AFTER, TEXT, DataReader
from redrive.topology.declaration.keys import (
    APPLY_TO,
    BINDING_KEYS,
    DEFAULT_KEYS,
    EXCHANGE_KEYS,
    POLICY_KEYS,
    QUEUE_KEYS,
    TOP_KEYS,
)
from redrive.topology.declaration.model import (
    BindingSource,
    Declaration,
    DeclaredExchange,
    DeclaredQueue,
    Locate,
)
from redrive.topology.declaration.retry_reader import RetryReader
from redrive.topology.declaration.yaml_source import YamlSource
from redrive.topology.model import DEFAULT_VHOST, ExchangeType, Policy, QueueType
from redrive.topology.option_types import Choice, Path, Text, describe, quote_hint
from redrive.topology.shapes import ServiceShape, Shape

_QUEUE_TYPE = Choice(tuple(QueueType))


def read_declaration(text: str, *, file: str = "redrive.yaml") -> Declaration:
    """A declaration from YAML text. Raises `InvalidDeclaration` with every finding, each with its line and column."""
    source = YamlSource(text, file)
    return _DeclarationReader(source.locate).declaration(source.data)


def declare(**sections: Any) -> Declaration:
    """A declaration in Python: the sections of `redrive.yaml` as keyword arguments, in the same forms.

    `declare(exchanges={"domain.events": "topic"}, queues={"orders": {"from": {"domain.events": ["orders.#"]},
    "retry": ["30s", "5m"]}})`. A `retry` may also be a shape object (`LadderShape(delays=["30s", "5m"])`), and a
    duration a timedelta. Raises `InvalidDeclaration`.
    """
    return _DeclarationReader(lambda _path: None).declaration(sections)


class _DeclarationReader(DataReader):
    """Reads section by section and raises all findings together at the end."""

    def __init__(self, locate: Locate) -> None:
        super().__init__(locate)
        self._retry = RetryReader(self)

    def declaration(self, data: Any) -> Declaration:
        top = self.mapping(data, (), TOP_KEYS)
        if data is None:
            self.report((), "empty", "is empty", "start with: redrive init")
        defaults = self.mapping(top.get("defaults"), ("defaults",), DEFAULT_KEYS)
        if "retry" in defaults:
            self._retry.check_default(defaults["retry"], ("defaults", "retry"))
        declaration = Declaration(
            vhost=self.name(top.get("vhost", DEFAULT_VHOST), ("vhost",), "vhost") or DEFAULT_VHOST,
            broker=self.value(top.get("broker"), ("broker",), Text(optional=True)),
            database=self.value(top.get("database"), ("database",), Text(optional=True)),
            exchanges=tuple(self._exchanges(top.get("exchanges"))),
            queues=(*self._queues(top.get("queues"), defaults), *self._services(top.get("services"), defaults)),
            policies=(
                *self._policies(top.get("policies"), "policies"),
                *self._policies(top.get("operator_policies"), "operator_policies"),
            ),
            locate=self.locate,
        )
        if self.findings:
            raise InvalidDeclaration(sorted(self.findings.values(), key=_reading_order))
        return declaration

    # Sections

    def _exchanges(self, data: Any) -> Iterable[DeclaredExchange]:
        for name, value in self.mapping(data, ("exchanges",)).items():
            path = ("exchanges", name)
            self.name(name, path, "exchange")
            entry = {"type": value} if isinstance(value, str) else self.mapping(value, path, EXCHANGE_KEYS)
            if value is not None and "type" not in entry and isinstance(value, Mapping):
                self.report(path, "missing-type", "has no type", f"say one of {', '.join(ExchangeType)}")
            elif value is None:
                self.report(path, "missing-type", "has no type", f"write {name}: topic")
            yield DeclaredExchange(
                name=name,
                type=self._exchange_type(entry.get("type", "topic"), (*path, "type") if entry is value else path),
                durable=self.flag(entry, "durable", path, True),
                auto_delete=self.flag(entry, "auto_delete", path, False),
                internal=self.flag(entry, "internal", path, False),
                alternate=self.value(entry.get("alternate"), (*path, "alternate"), Text(optional=True)),
                arguments=self._arguments(entry.get("arguments"), (*path, "arguments")),
                sources=self._sources(entry.get("from"), (*path, "from")),
            )

    def _queues(self, data: Any, defaults: Mapping[str, Any]) -> Iterable[DeclaredQueue]:
        for name, value in self.mapping(data, ("queues",)).items():
            path: Path = ("queues", name)
            self.name(name, path, "queue")
            entry = self.mapping(value, path, QUEUE_KEYS)
            yield self._queue(name, entry, defaults, path, self._retry.of_queue(entry, defaults, path, None))

    def _services(self, data: Any, defaults: Mapping[str, Any]) -> Iterable[DeclaredQueue]:
        if isinstance(data, list | tuple):
            data = self._service_list(data)
        for service, value in self.mapping(data, ("services",)).items():
            path: Path = ("services", service)
            if self.name(service, path, "service") is None:
                continue
            entry = self.mapping(value, path, QUEUE_KEYS)
            retry = self._retry.of_queue(entry, defaults, path, service)
            shape = retry if isinstance(retry, ServiceShape) else ServiceShape(service=service)
            if retry is not None and not isinstance(retry, ServiceShape):
                self.report((*path, "retry"), "not-service", "a service has shape service", "list it under queues:")
            name = shape.queue_name(service)
            self.name(name, path, "queue")
            yield self._queue(name, entry, defaults, path, shape, service)

    def _service_list(self, data: list[Any] | tuple[Any, ...]) -> dict[str, Any]:
        services: dict[str, Any] = {}
        for index, service in enumerate(data):
            if self.value(service, ("services", index), TEXT) is None:
                continue
            if service in services:
                self.report(("services", index), "duplicate-service", f"{service} is listed twice", "keep one")
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
        pause_after, pause_path = setting("pause_after")
        arguments = self._arguments(defaults.get("arguments"), ("defaults", "arguments"))
        own = self._arguments(entry.get("arguments"), (*path, "arguments"))
        return DeclaredQueue(
            name=name,
            type=None if kind is None else self.value(kind, kind_path, _QUEUE_TYPE),
            durable=True if durable is None else bool(self.value(durable, durable_path, FLAG)),
            auto_delete=False if auto_delete is None else bool(self.value(auto_delete, auto_delete_path, FLAG)),
            arguments=Arguments({**arguments, **own}) if arguments and own else own or arguments,
            sources=self._sources(entry.get("from"), (*path, "from")),
            retry=retry,
            service=self.value(filed_under, service_path, Text(optional=True)) or service,
            pause_after=self.value(pause_after, pause_path, PAUSE_AFTER),
            auto_retry=read_auto_retry(self, entry, defaults, path),
            path=path,
        )

    def _policies(self, data: Any, section: str) -> Iterable[Policy]:
        for name, value in self.mapping(data, (section,)).items():
            path: Path = (section, name)
            self.name(name, path, "policy")
            entry = self.mapping(value, path, POLICY_KEYS)
            for key in ("pattern", "definition"):
                if entry.get(key) is None:
                    self.report(path, "missing-key", f"has no {key}", "")
            priority = entry.get("priority", 0)
            if isinstance(priority, bool) or not isinstance(priority, int):
                self.report((*path, "priority"), "wrong-type", f"must be a whole number, not {describe(priority)}")
                priority = 0
            yield Policy(
                name=name,
                pattern=self.value(entry.get("pattern", ""), (*path, "pattern"), Text(optional=True)) or "",
                definition=self._arguments(entry.get("definition"), (*path, "definition"), policy=True),
                apply_to=self.value(entry.get("apply_to", "all"), (*path, "apply_to"), Choice(APPLY_TO)) or "all",
                priority=priority,
                operator=section == "operator_policies",
            )

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
                if self.value(one, (*path, index), TEXT) is not None
            )
        sources: list[BindingSource] = []
        for exchange, keys in self.mapping(data, path).items():
            here = (*path, exchange)
            if isinstance(keys, list | tuple):
                for index, key in enumerate(keys):
                    sources.extend(self._source(exchange, key, (*here, index)))
                if not keys:
                    self.report(
                        here, "no-keys", "has no routing keys", "list at least one, or leave it empty for fanout"
                    )
            else:
                sources.extend(self._source(exchange, keys, here))
        return tuple(sources)

    def _source(self, exchange: str, key: Any, path: Path) -> Iterable[BindingSource]:
        arguments = NO_ARGUMENTS
        if isinstance(key, Mapping):
            entry = self.mapping(key, path, BINDING_KEYS)
            arguments = self._arguments(entry.get("arguments"), (*path, "arguments"), policy=True)
            key = entry.get("key")
        if key is None:
            key = ""
        if not isinstance(key, str):
            self.report(path, "wrong-type", f"a routing key must be text, not {describe(key)}", quote_hint(key))
        elif len(key.encode("utf-8", "replace")) > 255:
            self.report(path, "key-too-long", "a routing key can't be longer than 255 bytes", "shorten it")
        else:
            yield BindingSource(exchange=exchange, key=key, arguments=arguments)

    def _arguments(self, data: Any, path: Path, *, policy: bool = False) -> Arguments:
        if data is None:
            return NO_ARGUMENTS
        mapping = self.mapping(data, path)
        for key, value in mapping.items():
            problem = argument_problem(value)
            if problem is not None:
                self.report((*path, key), "wrong-type", problem)
        if "x-queue-type" in mapping and not policy:
            self.report(
                (*path, "x-queue-type"), "use-type", "the queue's type has a key of its own", "say type: quorum"
            )
        return Arguments(mapping)

    def _exchange_type(self, value: Any, path: Path) -> str:
        if isinstance(value, str) and value.startswith("x-"):
            return value  # a plugin's: the broker knows
        return str(self.value(value, path, Choice(tuple(ExchangeType))) or "topic")


def _reading_order(finding: Finding) -> tuple[int, int]:
    return (finding.position.line, finding.position.column) if finding.position else (0, 0)
