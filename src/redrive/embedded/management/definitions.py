"""Definitions: export and import of everything that was declared, as one JSON document.

An import never deletes, leaves existing objects unchanged, overwrites policies, and stops at the first error with what
came before in place: as RabbitMQ does. Users and permissions are not imported: the embedded broker's users are given
when it is created.
"""

from collections.abc import Iterable
from typing import Any

from redrive.core import InvalidDefinitions
from redrive.embedded.engine import AmqpError
from redrive.embedded.engine.amqp_errors import NAMES
from redrive.embedded.engine.vhosts import Vhost as EngineVhost
from redrive.embedded.management.bindings import all_bindings, destination_type
from redrive.embedded.management.broker_view import NODE, BrokerView, VhostNote
from redrive.embedded.management.json_values import from_json, to_json
from redrive.embedded.management.policy_validation import check_policy
from redrive.embedded.management.queues import shown_arguments
from redrive.embedded.management.replies import JSON, ApiError, Reply, bad_request, done, found, not_found
from redrive.embedded.management.routes import Request, Routes, read_json
from redrive.embedded.management.users import show_permissions, show_users
from redrive.embedded.management.vhosts import describe_vhost, make_vhost
from redrive.topology import (
    Arguments,
    Binding,
    DestinationType,
    Exchange,
    Policy,
    Queue,
    Topology,
    Vhost,
    parse_definitions,
    write_definitions,
)


def add_routes(routes: Routes) -> None:
    """The routes of definitions."""
    routes.add("definitions", get=_export, post=_import)
    routes.add("definitions/{vhost}", get=_export_vhost, post=_import_vhost)


def _export(request: Request) -> Reply:
    view = request.view
    described = view.api_profile.described_definitions
    extra = _versions(view) | (
        {
            "rabbitmq_definition_format": "cluster",
            "original_cluster_name": NODE,
            "explanation": f"Definitions of cluster '{NODE}'",
        }
        if described
        else {}
    )
    extra |= {
        "users": show_users(view),
        "permissions": show_permissions(view),
        "topic_permissions": [],
        "global_parameters": [],
        "parameters": [],
    }
    vhosts = list(view.engine.vhosts.values())
    named = [
        Vhost(
            name=vhost.name,
            extra=Arguments(
                {"metadata": describe_vhost(view, vhost.name), "limits": _no_limits(view)} if described else {}
            ),
        )
        for vhost in vhosts
    ]
    return found(read_json(write_definitions(_topology(view, vhosts, named, extra)).encode(), "not_json"))


def _export_vhost(request: Request, vhost: str) -> Reply:
    view = request.view
    if vhost not in view.engine.vhosts:
        raise bad_request("vhost_not_found")
    extra: dict[str, JSON] = {"rabbit_version": view.engine.profile.server_version}
    if view.api_profile.described_definitions:
        metadata = describe_vhost(view, vhost)
        extra = _versions(view) | {
            "rabbitmq_definition_format": "single_virtual_host",
            "original_vhost_name": vhost,
            "explanation": f"Definitions of virtual host '{vhost}'",
            "metadata": metadata,
            "description": metadata["description"],
            "limits": _no_limits(view),
        }
    extra["parameters"] = []
    topology = _topology(view, [view.engine.vhosts[vhost]], [Vhost(name=vhost)], extra)
    return found(read_json(write_definitions(topology, per_vhost=True, vhost=vhost).encode(), "not_json"))


def _no_limits(view: BrokerView) -> JSON:
    return {} if view.api_profile.limits_are_a_map else []


def _versions(view: BrokerView) -> dict[str, JSON]:
    version = view.engine.profile.server_version
    return {
        "rabbit_version": version,
        "rabbitmq_version": version,
        "product_name": "RabbitMQ",
        "product_version": version,
    }


def _topology(view: BrokerView, vhosts: Iterable[EngineVhost], named: list[Vhost], extra: dict[str, JSON]) -> Topology:
    """The broker's objects as a topology. Exclusive queues belong to their connections and are left out."""
    api_profile = view.api_profile
    exchanges, queues, bindings, policies = [], [], [], []
    for vhost in vhosts:
        hidden = {id(queue) for queue in vhost.queues.values() if queue.owner is not None}
        exchanges += [
            Exchange(
                name=one.name,
                vhost=vhost.name,
                type=one.kind,
                durable=one.durable,
                auto_delete=one.auto_delete,
                internal=one.internal,
                arguments=Arguments(to_json(one.arguments)),
            )
            for one in vhost.exchanges.values()
            if not one.internal or api_profile.exports_internal_exchanges
        ]
        queues += [
            Queue(
                name=one.name,
                vhost=vhost.name,
                durable=one.durable,
                auto_delete=one.auto_delete,
                arguments=Arguments(shown_arguments(one)),
                extra=Arguments({"type": one.kind} if api_profile.definitions_have_queue_type else {}),
            )
            for one in vhost.queues.values()
            if id(one) not in hidden
        ]
        bindings += [
            Binding(
                source=one.source.name,
                vhost=vhost.name,
                destination=one.destination.name,
                destination_type=DestinationType(destination_type(one)),
                routing_key=one.routing_key,
                arguments=Arguments(to_json(one.arguments)),
            )
            for one in all_bindings(vhost)
            if id(one.destination) not in hidden
        ]
        policies += vhost.policies.all()
    return Topology(
        vhosts=tuple(named),
        exchanges=tuple(exchanges),
        queues=tuple(queues),
        bindings=tuple(bindings),
        policies=tuple(policies),
        extra=Arguments(extra),
    )


def _import(request: Request) -> Reply:
    view = request.view
    content = _document(request.body)
    listed = content.get("vhosts", [])
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            _import_vhost_itself(view, one)
    topology = _parsed(request.body, vhost=None)
    for name in topology.used_vhosts():
        if name not in view.engine.vhosts:
            explained = f'Please create virtual host "{name}" prior to importing definitions.'
            raise bad_request(explained if view.api_profile.missing_vhost_is_explained else ["no_such_vhost", name])
    _declare(view, topology)
    return done()


def _import_vhost(request: Request, vhost: str) -> Reply:
    """The address decides on the vhost, whatever the objects say."""
    if vhost not in request.view.engine.vhosts:
        raise not_found("vhost_not_found")
    _document(request.body)
    _declare(request.view, _parsed(request.body, vhost=vhost).moved(vhost))
    return done()


def _document(body: bytes) -> dict[str, Any]:
    content = read_json(body, "failed_to_parse_json") if body.strip() else {}
    if not isinstance(content, dict):
        raise bad_request("failed_to_parse_json")
    return content


def _parsed(body: bytes, *, vhost: str | None) -> Topology:
    if not body.strip():
        return Topology()
    try:
        definitions = parse_definitions(body, vhost="/" if vhost is None else vhost)
    except InvalidDefinitions as invalid:
        raise bad_request(str(invalid)) from None
    if definitions.per_vhost and vhost is None:
        raise bad_request("its objects name no vhost; post the definitions of a single vhost to definitions/VHOST")
    return definitions.topology


def _import_vhost_itself(view: BrokerView, item: dict[str, Any]) -> None:
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    wanted = metadata.get("default_queue_type")
    if make_vhost(view, item["name"], default_queue_type=None if wanted is None else str(wanted)):
        description, tags = metadata.get("description"), metadata.get("tags")
        view.notes[item["name"]] = VhostNote(
            description if isinstance(description, str) else "",
            [str(tag) for tag in tags] if isinstance(tags, list) else [],
        )


def _declare(view: BrokerView, topology: Topology) -> None:
    vhosts = view.engine.vhosts
    try:
        for exchange in topology.exchanges:
            if exchange.name not in vhosts[exchange.vhost].exchanges:
                vhosts[exchange.vhost].declare_exchange(
                    exchange.name,
                    exchange.type,
                    durable=exchange.durable,
                    auto_delete=exchange.auto_delete,
                    internal=exchange.internal,
                    arguments=from_json(exchange.arguments.thaw()),
                )
        for policy in topology.policies:
            _set_policy(view, policy)
        for queue in topology.queues:
            if queue.name not in vhosts[queue.vhost].queues:
                vhosts[queue.vhost].declare_queue(
                    queue.name,
                    durable=queue.durable,
                    auto_delete=queue.auto_delete,
                    owner=None,
                    arguments=from_json(queue.arguments.thaw()),
                )
        for binding in topology.bindings:
            _bind(view, binding)
    except AmqpError as error:
        raise bad_request(f"{NAMES[error.code].lower()}: {error.reason}") from None


def _set_policy(view: BrokerView, policy: Policy) -> None:
    problem = check_policy(
        view.engine.profile.version,
        view.api_profile,
        pattern=policy.pattern,
        apply_to=policy.apply_to,
        priority=policy.priority,
        definition=policy.definition.thaw(),
        operator=policy.operator,
    )
    if problem is not None:
        place = view.api_profile.policy_place.format(vhost=policy.vhost, name=policy.name)
        raise bad_request(f"Validation failed\n\n{problem}\n {place}")
    view.engine.vhosts[policy.vhost].set_policy(policy)


def _bind(view: BrokerView, binding: Binding) -> None:
    vhost = view.engine.vhosts[binding.vhost]
    to_queue = binding.destination_type is DestinationType.QUEUE
    destination = (vhost.queues if to_queue else vhost.exchanges).get(binding.destination)
    if binding.source == "":
        return  # every queue is bound to the default exchange
    if destination is None or binding.source not in vhost.exchanges:
        if view.api_profile.missing_binding_ends_aborts_import:
            raise _missing(binding, source=binding.source not in vhost.exchanges, destination=destination is None)
        return
    vhost.bind(binding.source, destination, binding.routing_key, from_json(binding.arguments.thaw()))


def _missing(binding: Binding, *, source: bool, destination: bool) -> ApiError:
    ends = [("exchange", binding.source)] * source + [
        (binding.destination_type.value, binding.destination)
    ] * destination
    resources = ",".join(f'{{not_found,{{resource,<<"{binding.vhost}">>,{kind},<<"{name}">>}}}}' for kind, name in ends)
    return bad_request(f"{{resources_missing,[{resources}]}}")
