"""Reads definitions.json into the model.

It reads what RabbitMQ 3.10–4.3 exports and what people write by hand: the whole-cluster form, where every object names
its vhost, and the per-vhost form, where none does. What the model does not know (users, permissions, parameters,
unknown keys of any object) is kept unchanged. An absent field gets the value that an import of 4.3 gives it.

Every fault is reported at once, with its place. A type that RabbitMQ does not expect is a fault even where an import
lets it pass: 3.10 and 4.0 take a queue named 5, and from then on no policy can be set in that vhost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redrive.core import Finding, Severity
from redrive.topology.argument_table import Arguments
from redrive.topology.definitions.json_fields import ABSENT, JsonFields, kind_of
from redrive.topology.definitions.json_source import Document, Path, parse_json
from redrive.topology.model import (
    DEFAULT_EXCHANGE,
    DEFAULT_VHOST,
    Binding,
    DestinationType,
    Exchange,
    Policy,
    Queue,
    Topology,
    Vhost,
)
from redrive.topology.names import RESERVED_PREFIX, name_problem

_SECTIONS = frozenset({"vhosts", "exchanges", "queues", "bindings", "policies", "parameters"})
OPERATOR_POLICY = "operator_policy"
"""The component under which a parameter is an operator policy."""
_VHOST_KEYS = frozenset({"name"})
_EXCHANGE_KEYS = frozenset({"name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"})
_QUEUE_KEYS = frozenset({"name", "vhost", "durable", "auto_delete", "arguments"})
_BINDING_KEYS = frozenset({"source", "vhost", "destination", "destination_type", "routing_key", "arguments"})
_POLICY_KEYS = frozenset({"vhost", "name", "pattern", "apply-to", "definition", "priority"})
_PARAMETER_KEYS = frozenset({"component", "name", "value"})
_VALUE_KEYS = _POLICY_KEYS - {"vhost", "name"}
_SINGULAR: dict[str | int, str] = {
    "vhosts": "vhost",
    "exchanges": "exchange",
    "queues": "queue",
    "bindings": "binding",
    "policies": "policy",
    "parameters": "policy",
}

_Object = TypeVar("_Object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """A definitions file: its topology, and its form, so that it can be written back in the same form.

    `vhost` is the one that objects without a vhost were put in (per-vhost form). `warnings` are what an import would
    skip or change in silence.
    """

    topology: Topology
    per_vhost: bool = False
    vhost: str = DEFAULT_VHOST
    warnings: tuple[Finding, ...] = ()


def read_definitions(text: str | bytes, *, file: str = "definitions.json", vhost: str = DEFAULT_VHOST) -> Topology:
    """The topology of a definitions file; `vhost` is where the objects of a per-vhost file belong.

    Raises `InvalidDefinitions` with every fault and its place, and nothing else.
    """
    return parse_definitions(text, file=file, vhost=vhost).topology


def parse_definitions(text: str | bytes, *, file: str = "definitions.json", vhost: str = DEFAULT_VHOST) -> Definitions:
    """As `read_definitions`, with the form of the file and warnings."""
    return _DefinitionsReader(parse_json(text, file=file), vhost).definitions()


def is_predeclared(name: str) -> bool:
    """Whether every vhost has this exchange from the start. Measured on 3.10.8, 4.0.5, 4.3.6: an import skips these
    exchanges, and every other `amq.*` exchange too."""
    return name == DEFAULT_EXCHANGE or name.startswith(RESERVED_PREFIX)


class _Once(Generic[_Object]):
    """Objects by identity, each once."""

    def __init__(self) -> None:
        self.known: dict[Any, _Object] = {}

    def add(self, identity: Any, one: _Object) -> _Object | None:
        """Keeps it, or returns the one already there."""
        known = self.known.setdefault(identity, one)
        return None if known is one else known

    def all(self) -> tuple[_Object, ...]:
        return tuple(self.known.values())


class _DefinitionsReader:
    def __init__(self, document: Document, vhost: str) -> None:
        self._document = document
        self._vhost = vhost
        self._fields = JsonFields(document)
        self._content: dict[str, Any] = {}
        self._per_vhost = False
        self._vhosts: _Once[Vhost] = _Once()
        self._exchanges: _Once[Exchange] = _Once()
        self._queues: _Once[Queue] = _Once()
        self._bindings: _Once[Binding] = _Once()
        self._policies: _Once[Policy] = _Once()
        self._kept: dict[str, Any] = {}

    def definitions(self) -> Definitions:
        content = self._document.content
        if not isinstance(content, dict):
            self._fields.fault(
                (), "wrong-shape", f"is {kind_of(content)}, not an object", "definitions are {…} with queues and so on"
            )
            self._fields.finish()
        self._content = content
        self._per_vhost = self._is_per_vhost()
        self._kept = {key: self._fields.plain(value, (key,)) for key, value in content.items() if key not in _SECTIONS}
        self._each("vhosts", self._read_vhost)
        self._each("exchanges", self._read_exchange)
        self._each("queues", self._read_queue)
        self._each("bindings", self._read_binding)
        self._each("policies", self._read_policy)
        self._each("parameters", self._read_parameter)
        if "parameters" in content:
            self._kept.setdefault("parameters", [])
        warnings = self._fields.finish()
        return Definitions(
            topology=self._topology(), per_vhost=self._per_vhost, vhost=self._vhost, warnings=tuple(warnings)
        )

    def _topology(self) -> Topology:
        return Topology(
            vhosts=self._vhosts_used(),
            exchanges=self._exchanges.all(),
            queues=self._queues.all(),
            bindings=self._bindings.all(),
            policies=self._policies.all(),
            extra=Arguments(self._kept),
        )

    def _vhosts_used(self) -> tuple[Vhost, ...]:
        """The vhosts that the file lists, and those that its objects are in: an import needs them."""
        if self._per_vhost:
            return (Vhost(name=self._vhost, default_queue_type=_default_queue_type(self._content)),)
        for objects in (self._exchanges, self._queues, self._bindings, self._policies):
            for one in objects.known.values():
                if one.vhost not in self._vhosts.known:
                    self._vhosts.add(one.vhost, Vhost(name=one.vhost))
        return self._vhosts.all()

    def _is_per_vhost(self) -> bool:
        """No object names its vhost. Policies come last: a per-vhost export of 3.10 leaves it in them."""
        if "vhosts" in self._content:
            return False
        if "original_vhost_name" in self._content:
            return True
        for sections in (("exchanges", "queues", "bindings"), ("policies",)):
            lists = [self._content[name] for name in sections if isinstance(self._content.get(name), list)]
            items = [item for items in lists for item in items if isinstance(item, dict)]
            if items:
                return not any("vhost" in item for item in items)
        return False

    def _each(self, section: str, read: Callable[[dict[str, Any], Path], None]) -> None:
        items = self._content.get(section, [])
        if not isinstance(items, list):
            self._fields.fault((section,), "wrong-shape", f"is {kind_of(items)}, not a list", "list the objects")
            return
        for index, item in enumerate(items):
            path = (section, index)
            if isinstance(item, dict):
                read(item, path)
            else:
                self._fields.fault(
                    path, "wrong-shape", f"is {kind_of(item)}, not an object", "RabbitMQ skips it in silence"
                )

    def _read_vhost(self, item: dict[str, Any], path: Path) -> None:
        name = self._fields.name(item, path, "vhost")
        if name is not None:
            vhost = Vhost(
                name=name,
                default_queue_type=_default_queue_type(item),
                extra=self._fields.extra(item, _VHOST_KEYS, path),
            )
            self._keep(self._vhosts, name, vhost, path)

    def _read_exchange(self, item: dict[str, Any], path: Path) -> None:
        faults = self._fields.count
        name = self._fields.text(item, "name", path)
        exchange = Exchange(
            name=name,
            vhost=self._vhost_of(item, path),
            type=self._fields.text(item, "type", path),
            durable=self._fields.flag(item, "durable", path, default=True),
            auto_delete=self._fields.flag(item, "auto_delete", path, default=False),
            internal=self._fields.flag(item, "internal", path, default=False),
            arguments=self._fields.table(item, "arguments", path),
            extra=self._fields.extra(item, _EXCHANGE_KEYS, path),
        )
        if self._fields.count > faults:
            return
        if is_predeclared(name):
            self._kept.setdefault("exchanges", []).append(item)
            return
        self._doubt(name, "exchange", path)
        self._keep(self._exchanges, (exchange.vhost, name), exchange, path)

    def _read_queue(self, item: dict[str, Any], path: Path) -> None:
        faults = self._fields.count
        name = self._fields.name(item, path, "queue")
        queue = Queue(
            name=name or "",
            vhost=self._vhost_of(item, path),
            durable=self._fields.flag(item, "durable", path, default=True),
            auto_delete=self._fields.flag(item, "auto_delete", path, default=False),
            arguments=self._fields.table(item, "arguments", path),
            extra=self._fields.extra(item, _QUEUE_KEYS, path),
        )
        if self._fields.count == faults:
            self._doubt(queue.name, "queue", path)
            self._keep(self._queues, (queue.vhost, queue.name), queue, path)

    def _read_binding(self, item: dict[str, Any], path: Path) -> None:
        faults = self._fields.count
        kind = self._fields.text(item, "destination_type", path)
        if self._fields.count == faults and kind not in ("queue", "exchange"):
            self._fields.fault((*path, "destination_type"), "bad-value", f'is "{kind}", not queue or exchange')
        binding = Binding(
            source=self._fields.text(item, "source", path),
            vhost=self._vhost_of(item, path),
            destination=self._fields.text(item, "destination", path),
            destination_type=DestinationType.EXCHANGE if kind == "exchange" else DestinationType.QUEUE,
            # An export of 4.0 leaves it out where an import had left it out.
            routing_key=self._fields.text(item, "routing_key", path, default=""),
            arguments=self._fields.table(item, "arguments", path),
            extra=self._fields.extra(item, _BINDING_KEYS, path),
        )
        if self._fields.count == faults:
            self._keep(self._bindings, binding, binding, path)

    def _read_policy(self, item: dict[str, Any], path: Path) -> None:
        name = self._fields.name(item, path, "policy")
        known = _POLICY_KEYS - {"vhost"} if self._per_vhost else _POLICY_KEYS
        extra = self._fields.extra(item, known, path)
        self._keep_policy(item, path, name or "", self._vhost_of(item, path), extra=extra)

    def _read_parameter(self, item: dict[str, Any], path: Path) -> None:
        """An operator policy, or a parameter that only some plugin understands and that is kept as it is."""
        if item.get("component") != OPERATOR_POLICY:
            self._kept.setdefault("parameters", []).append(self._fields.plain(item, path))
            return
        name = self._fields.name(item, path, "operator policy")
        # In the per-vhost form the path of the import decides, whatever the parameter says.
        vhost = self._vhost if self._per_vhost else self._vhost_of(item, path)
        value = item.get("value", ABSENT)
        if not isinstance(value, dict):
            self._fields.wrong((*path, "value"), value, "an object")
            return
        kept = {key: one for key, one in item.items() if key not in _PARAMETER_KEYS}
        if not self._per_vhost:
            kept.pop("vhost", None)
        beside = {key: one for key, one in value.items() if key not in _VALUE_KEYS}
        extra = Arguments(self._fields.plain({**kept, "value": beside} if beside else kept, path))
        self._keep_policy(value, (*path, "value"), name or "", vhost, extra=extra, operator=True)

    def _keep_policy(
        self, item: dict[str, Any], path: Path, name: str, vhost: str, *, extra: Arguments, operator: bool = False
    ) -> None:
        faults = self._fields.count
        policy = Policy(
            name=name,
            vhost=vhost,
            pattern=self._fields.text(item, "pattern", path),
            definition=self._fields.table(item, "definition", path, needed=True),
            apply_to=self._fields.text(item, "apply-to", path, default="all"),
            priority=self._fields.number(item, "priority", path, default=0),
            operator=operator,
            extra=extra,
        )
        if name and self._fields.count == faults:
            self._keep(self._policies, (vhost, name, operator), policy, path)

    def _keep(self, objects: _Once[Any], identity: Any, one: Any, path: Path) -> None:
        """Keeps each object once. A second one with other settings is a fault: which one wins is undefined."""
        known = objects.add(identity, one)
        if known is None:
            return
        if known == one:
            self._fields.fault(path, "repeated-object", f"{one.address} is listed twice", "drop one", Severity.WARNING)
        else:
            summary = (
                f"{one.address} is listed twice with different settings, and an import keeps whichever comes first"
            )
            self._fields.fault(path, f"duplicate-{_SINGULAR[path[0]]}", summary, "keep one")

    def _doubt(self, name: str, kind: str, path: Path) -> None:
        problem = name_problem(name, kind)
        if problem is not None:
            self._fields.fault((*path, "name"), "doubtful-name", problem, "rename it", Severity.WARNING)

    def _vhost_of(self, item: dict[str, Any], path: Path) -> str:
        if self._per_vhost:
            return self._vhost
        value = item.get("vhost", ABSENT)
        if isinstance(value, str):
            return value
        self._fields.wrong((*path, "vhost"), value, "a text", 'name the vhost of each object, "/" for the default one')
        return ""


def _default_queue_type(item: Mapping[str, Any]) -> str | None:
    """From the metadata, which is all that an import reads; else from beside it, where authors put it too."""
    metadata = item.get("metadata")
    inner = metadata.get("default_queue_type") if isinstance(metadata, dict) else None
    value = item.get("default_queue_type") if inner is None else inner
    return value if isinstance(value, str) else None
