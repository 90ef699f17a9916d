"""The topology room: model, declaration, shapes, definitions.json, diagrams. Pure: no I/O, no clock."""

from redrive.topology.arrangement import Arrangement, Parking, Wait, Way
from redrive.topology.brokers import BrokerVersion
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
from redrive.topology.permissions import permissions
from redrive.topology.queue_plans import QueuePlan
from redrive.topology.shapes import (
    SHAPES,
    Ladder,
    Native,
    PerQueue,
    Quorum,
    Requeue,
    Service,
    Shape,
    Tiered,
)
from redrive.topology.values import NO_ARGUMENTS, Arguments
from redrive.topology.versions import check_for

__all__ = [
    "DEFAULT_EXCHANGE",
    "DEFAULT_VHOST",
    "NO_ARGUMENTS",
    "SHAPES",
    "Arguments",
    "Arrangement",
    "Binding",
    "BindingSource",
    "BrokerVersion",
    "Compiled",
    "Declaration",
    "DeclaredExchange",
    "DeclaredQueue",
    "Definitions",
    "DestinationType",
    "Exchange",
    "ExchangeType",
    "Ladder",
    "Native",
    "Parking",
    "PerQueue",
    "Policy",
    "Queue",
    "QueuePlan",
    "QueueType",
    "Quorum",
    "Requeue",
    "Service",
    "Shape",
    "Tiered",
    "Topology",
    "Vhost",
    "Wait",
    "Way",
    "check_for",
    "compile_declaration",
    "declaration_schema",
    "declare",
    "parse_definitions",
    "permissions",
    "read_declaration",
    "read_definitions",
    "render_mermaid",
    "render_svg",
    "render_tree",
    "rewrite_definitions",
    "write_definitions",
]
