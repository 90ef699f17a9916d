"""Writes the model as definitions.json.

Every field is written out, because an import of 3.10 refuses a queue without `durable` or `auto_delete` and 4.0 still
keeps an exchange without them half-defined; so are the vhosts, because 4.3 does not boot with a file that has none. The
default exchange and `amq.*` exchanges are left out: every vhost has them from the start, and every import skips them.

Objects come in the order the topology has them, keys in a fixed one: the same topology is always the same text.
"""

import json
from json.encoder import encode_basestring
from typing import Any

from redrive.topology.argument_table import Arguments
from redrive.topology.definitions.reader import OPERATOR_POLICY, Definitions, is_predeclared
from redrive.topology.model import Binding, Exchange, Policy, Queue, Topology, Vhost

_SCALARS = {True: "true", False: "false"}


def write_definitions(topology: Topology, *, per_vhost: bool = False, vhost: str | None = None) -> str:
    """The topology as JSON: the whole-cluster form, or with `per_vhost` the one for a single vhost's own import path.

    `vhost` chooses the objects for the latter; None means the topology's only one, and several are a `ValueError`.
    """
    if per_vhost:
        document = _vhost_document(_only(topology, _only_vhost(topology) if vhost is None else vhost))
    else:
        document = _cluster_document(topology)
    return _text(document) + "\n"


def rewrite_definitions(definitions: Definitions) -> str:
    """A file as it was read: in its own form, with everything that was in it."""
    topology = definitions.topology
    return _text(_vhost_document(topology) if definitions.per_vhost else _cluster_document(topology)) + "\n"


def _cluster_document(topology: Topology) -> dict[str, Any]:
    return {
        **_extra(topology),
        "vhosts": [_vhost(one) for one in _all_vhosts(topology)],
        **_parameters(topology),
        "policies": [_policy(one) for one in topology.policies if not one.operator],
        "exchanges": [_exchange(one) for one in topology.exchanges if not is_predeclared(one.name)]
        + _kept(topology, "exchanges"),  # predeclared ones that a file listed
        "queues": [_queue(one) for one in topology.queues],
        "bindings": [_binding(one) for one in topology.bindings],
    }


def _vhost_document(topology: Topology) -> dict[str, Any]:
    document = _cluster_document(topology)
    del document["vhosts"]
    for name in ("exchanges", "queues", "bindings"):
        for written in document[name]:
            written.pop("vhost", None)
    policies = [_policy(one, named=False) for one in topology.policies if not one.operator]
    return {**document, **_parameters(topology, named=False), "policies": policies}


def _only(topology: Topology, vhost: str) -> Topology:
    """The part in one vhost, without the parameters and exchanges of other vhosts that were kept unchanged."""
    extra = topology.extra.thaw()
    for name in ("parameters", "exchanges"):
        if name in extra:
            extra[name] = [one for one in extra[name] if not isinstance(one, dict) or one.get("vhost", vhost) == vhost]
    return Topology(
        exchanges=tuple(one for one in topology.exchanges if one.vhost == vhost),
        queues=tuple(one for one in topology.queues if one.vhost == vhost),
        bindings=tuple(one for one in topology.bindings if one.vhost == vhost),
        policies=tuple(one for one in topology.policies if one.vhost == vhost),
        extra=Arguments(extra),
    )


def _all_vhosts(topology: Topology) -> list[Vhost]:
    """The vhosts that the topology names, and those that its objects are in: an import needs them all."""
    found = {one.name: one for one in topology.vhosts}
    for objects in (topology.exchanges, topology.queues, topology.bindings, topology.policies):
        for one in objects:
            if one.vhost not in found:
                found[one.vhost] = Vhost(name=one.vhost)
    return list(found.values())


def _only_vhost(topology: Topology) -> str:
    names = [one.name for one in _all_vhosts(topology)]
    if len(names) != 1:
        raise ValueError(f"a topology of {len(names)} vhosts has no per-vhost form without naming one")
    return names[0]


def _extra(topology: Topology) -> dict[str, Any]:
    return topology.extra.without("parameters", "exchanges").thaw() if topology.extra else {}


def _parameters(topology: Topology, *, named: bool = True) -> dict[str, Any]:
    """The operator policies, which are parameters to RabbitMQ, beside the parameters that were kept unchanged."""
    operators = [_operator_policy(one, named=named) for one in topology.policies if one.operator]
    written = [*_kept(topology, "parameters"), *operators]
    return {"parameters": written} if written or "parameters" in topology.extra else {}


def _kept(topology: Topology, name: str) -> list[Any]:
    kept = topology.extra.get(name)
    return Arguments({name: kept}).thaw()[name] if isinstance(kept, tuple) else []


def _vhost(vhost: Vhost) -> dict[str, Any]:
    written = _with_extra({"name": vhost.name}, vhost.extra)
    if vhost.default_queue_type is not None:
        # An import looks for it in the metadata only.
        metadata = written.get("metadata")
        written["metadata"] = {
            **(metadata if isinstance(metadata, dict) else {}),
            "default_queue_type": vhost.default_queue_type,
        }
    return written


def _exchange(exchange: Exchange) -> dict[str, Any]:
    written = {
        "name": exchange.name,
        "vhost": exchange.vhost,
        "type": str(exchange.type),
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments.thaw(),
    }
    return _with_extra(written, exchange.extra) if exchange.extra else written


def _queue(queue: Queue) -> dict[str, Any]:
    written = {
        "name": queue.name,
        "vhost": queue.vhost,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments.thaw(),
    }
    return _with_extra(written, queue.extra) if queue.extra else written


def _binding(binding: Binding) -> dict[str, Any]:
    written = {
        "source": binding.source,
        "vhost": binding.vhost,
        "destination": binding.destination,
        "destination_type": binding.destination_type.value,
        "routing_key": binding.routing_key,
        "arguments": binding.arguments.thaw(),
    }
    return _with_extra(written, binding.extra) if binding.extra else written


def _policy(policy: Policy, *, named: bool = True) -> dict[str, Any]:
    written = {"vhost": policy.vhost, "name": policy.name} if named else {"name": policy.name}
    return _with_extra(written | _settings(policy), policy.extra)


def _settings(policy: Policy) -> dict[str, Any]:
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition.thaw(),
        "priority": policy.priority,
    }


def _operator_policy(policy: Policy, *, named: bool) -> dict[str, Any]:
    value = _settings(policy)
    beside = policy.extra.get("value")  # unknown keys next to pattern and definition
    if isinstance(beside, Arguments):
        value = _with_extra(value, beside)
    written = {"component": OPERATOR_POLICY, "name": policy.name, "value": value}
    return _with_extra({"vhost": policy.vhost, **written} if named else written, policy.extra)


def _with_extra(written: dict[str, Any], extra: Arguments) -> dict[str, Any]:
    return {**written, **{key: value for key, value in extra.thaw().items() if key not in written}}


def _text(value: Any, line: str = "\n") -> str:
    """The value as JSON, two spaces a level. `json` itself would do it, at four times the cost: it indents in Python
    generators, a few million of them for a hundred thousand queues."""
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, dict) and value:
        deeper = line + "  "
        return (
            "{"
            + ",".join([f"{deeper}{encode_basestring(key)}: {_text(one, deeper)}" for key, one in value.items()])
            + line
            + "}"
        )
    if isinstance(value, list) and value:
        deeper = line + "  "
        return "[" + ",".join([deeper + _text(one, deeper) for one in value]) + line + "]"
    return _SCALARS[value] if value is True or value is False else json.dumps(value)
