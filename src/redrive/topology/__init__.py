"""The topology room: model, declaration, shapes, definitions.json, diagrams. Pure: no I/O, no clock.

The model is imported at once, the rest when it is first used: an embedded broker starts without compiler and diagrams.
"""

from typing import TYPE_CHECKING

from redrive.lazy_exports import lazy_exports
from redrive.topology.argument_table import NO_ARGUMENTS, Arguments
from redrive.topology.broker_versions import BrokerVersion
from redrive.topology.model import (
    DEFAULT_EXCHANGE,
    DEFAULT_VHOST,
    Binding,
    DestinationType,
    Exchange,
    ExchangeType,
    Policy,
    Queue,
    QueueType,
    Topology,
    Vhost,
)

if TYPE_CHECKING:
    from redrive.topology.compiler import Compiled, compile_declaration
    from redrive.topology.declaration.json_schema import declaration_schema
    from redrive.topology.declaration.model import BindingSource, Declaration, DeclaredExchange, DeclaredQueue
    from redrive.topology.declaration.reader import declare, read_declaration
    from redrive.topology.definitions import (
        Definitions,
        parse_definitions,
        read_definitions,
        rewrite_definitions,
        write_definitions,
    )
    from redrive.topology.deliveries.message_origin import HeaderTrust
    from redrive.topology.deliveries.queue_plan import QueuePlan
    from redrive.topology.diagrams import render_mermaid, render_svg, render_tree
    from redrive.topology.diagrams.graph import Graph, build_graph
    from redrive.topology.diagrams.queue_roles import QueueRole
    from redrive.topology.effective_settings import PolicyMatcher, Settings, queue_settings
    from redrive.topology.permissions import user_permissions
    from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
    from redrive.topology.shapes import (
        SHAPES,
        DocumentedShape,
        LadderShape,
        NativeShape,
        PerQueueShape,
        QuorumShape,
        RequeueShape,
        ServiceShape,
        Shape,
        TieredShape,
    )
    from redrive.topology.version_checks import check_for

_HOMES = {
    "SHAPES": "shapes",
    "RetryRoutes": "retry_routes",
    "HeaderTrust": "deliveries.message_origin",
    "BindingSource": "declaration.model",
    "Compiled": "compiler",
    "Declaration": "declaration.model",
    "DeclaredExchange": "declaration.model",
    "DeclaredQueue": "declaration.model",
    "Definitions": "definitions",
    "DocumentedShape": "shapes",
    "Graph": "diagrams.graph",
    "LadderShape": "shapes",
    "NativeShape": "shapes",
    "Parking": "retry_routes",
    "PerQueueShape": "shapes",
    "PolicyMatcher": "effective_settings",
    "QueuePlan": "deliveries.queue_plan",
    "QuorumShape": "shapes",
    "RequeueShape": "shapes",
    "QueueRole": "diagrams.queue_roles",
    "ServiceShape": "shapes",
    "Settings": "effective_settings",
    "Shape": "shapes",
    "TieredShape": "shapes",
    "Wait": "retry_routes",
    "MoveBy": "retry_routes",
    "build_graph": "diagrams.graph",
    "check_for": "version_checks",
    "compile_declaration": "compiler",
    "declaration_schema": "declaration.json_schema",
    "declare": "declaration.reader",
    "parse_definitions": "definitions",
    "user_permissions": "permissions",
    "queue_settings": "effective_settings",
    "read_declaration": "declaration.reader",
    "read_definitions": "definitions",
    "render_mermaid": "diagrams",
    "render_svg": "diagrams",
    "render_tree": "diagrams",
    "rewrite_definitions": "definitions",
    "write_definitions": "definitions",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "DEFAULT_EXCHANGE",
    "DEFAULT_VHOST",
    "NO_ARGUMENTS",
    "SHAPES",
    "Arguments",
    "Binding",
    "BindingSource",
    "BrokerVersion",
    "Compiled",
    "Declaration",
    "DeclaredExchange",
    "DeclaredQueue",
    "Definitions",
    "DestinationType",
    "DocumentedShape",
    "Exchange",
    "ExchangeType",
    "Graph",
    "HeaderTrust",
    "LadderShape",
    "MoveBy",
    "NativeShape",
    "Parking",
    "PerQueueShape",
    "Policy",
    "PolicyMatcher",
    "Queue",
    "QueuePlan",
    "QueueRole",
    "QueueType",
    "QuorumShape",
    "RequeueShape",
    "RetryRoutes",
    "ServiceShape",
    "Settings",
    "Shape",
    "TieredShape",
    "Topology",
    "Vhost",
    "Wait",
    "build_graph",
    "check_for",
    "compile_declaration",
    "declaration_schema",
    "declare",
    "parse_definitions",
    "queue_settings",
    "read_declaration",
    "read_definitions",
    "render_mermaid",
    "render_svg",
    "render_tree",
    "rewrite_definitions",
    "user_permissions",
    "write_definitions",
]
