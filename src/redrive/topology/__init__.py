"""The topology room: model, declaration, shapes, definitions.json, diagrams. Pure: no I/O, no clock."""

from redrive.topology.arrangement import Arrangement, Parking, Wait, Way
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

__all__ = [
    "DEFAULT_EXCHANGE",
    "DEFAULT_VHOST",
    "NO_ARGUMENTS",
    "Arguments",
    "Arrangement",
    "Binding",
    "DestinationType",
    "Exchange",
    "ExchangeType",
    "Parking",
    "Policy",
    "Queue",
    "QueueType",
    "Topology",
    "Vhost",
    "Wait",
    "Way",
]
