"""The topology room: model, declaration, shapes, definitions.json, diagrams. Pure: no I/O, no clock.

The model is imported at once, the rest when it is first used: an embedded broker starts without compiler and diagrams.
"""

from typing import TYPE_CHECKING

from redrive.lazy_exports import lazy_exports
from redrive.topology.brokers import BrokerVersion
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
from redrive.topology.values import NO_ARGUMENTS, Arguments

if TYPE_CHECKING:
    from redrive.topology.arrangement import Arrangement, Parking, Wait, Way
    from redrive.topology.compiler import Compiled, compile_declaration
    from redrive.topology.declaration.reader import declare, read_declaration
    from redrive.topology.declaration.schema import declaration_schema
    from redrive.topology.declared import BindingSource, Declaration, DeclaredExchange, DeclaredQueue
    from redrive.topology.definitions import (
        Definitions,
        parse_definitions,
        read_definitions,
        rewrite_definitions,
        write_definitions,
    )
    from redrive.topology.diagrams import render_mermaid, render_svg, render_tree
    from redrive.topology.diagrams.graph import Graph, build_graph
    from redrive.topology.diagrams.roles import Role
    from redrive.topology.permissions import permissions
    from redrive.topology.queue_plans import QueuePlan
    from redrive.topology.settings import PolicyBook, Settings, queue_settings
    from redrive.topology.shapes import (
        SHAPES,
        DocumentedShape,
        Ladder,
        Native,
        PerQueue,
        Quorum,
        Requeue,
        Service,
        Shape,
        Tiered,
    )
    from redrive.topology.shapes.origins import Belief
    from redrive.topology.versions import check_for

_HOMES = {
    "SHAPES": "shapes",
    "Arrangement": "arrangement",
    "Belief": "shapes.origins",
    "BindingSource": "declared",
    "Compiled": "compiler",
    "Declaration": "declared",
    "DeclaredExchange": "declared",
    "DeclaredQueue": "declared",
    "Definitions": "definitions",
    "DocumentedShape": "shapes",
    "Graph": "diagrams.graph",
    "Ladder": "shapes",
    "Native": "shapes",
    "Parking": "arrangement",
    "PerQueue": "shapes",
    "PolicyBook": "settings",
    "QueuePlan": "queue_plans",
    "Quorum": "shapes",
    "Requeue": "shapes",
    "Role": "diagrams.roles",
    "Service": "shapes",
    "Settings": "settings",
    "Shape": "shapes",
    "Tiered": "shapes",
    "Wait": "arrangement",
    "Way": "arrangement",
    "build_graph": "diagrams.graph",
    "check_for": "versions",
    "compile_declaration": "compiler",
    "declaration_schema": "declaration.schema",
    "declare": "declaration.reader",
    "parse_definitions": "definitions",
    "permissions": "permissions",
    "queue_settings": "settings",
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
    "Arrangement",
    "Belief",
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
    "Ladder",
    "Native",
    "Parking",
    "PerQueue",
    "Policy",
    "PolicyBook",
    "Queue",
    "QueuePlan",
    "QueueType",
    "Quorum",
    "Requeue",
    "Role",
    "Service",
    "Settings",
    "Shape",
    "Tiered",
    "Topology",
    "Vhost",
    "Wait",
    "Way",
    "build_graph",
    "check_for",
    "compile_declaration",
    "declaration_schema",
    "declare",
    "parse_definitions",
    "permissions",
    "queue_settings",
    "read_declaration",
    "read_definitions",
    "render_mermaid",
    "render_svg",
    "render_tree",
    "rewrite_definitions",
    "write_definitions",
]
