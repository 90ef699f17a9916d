"""Bringing a topology to a broker: what is missing, what differs, and declaring it in a safe order."""

from redrive.deploy.apply import ApplyFailed, Difference, Inspection, apply, inspect, read_difference
from redrive.deploy.existing_queues import as_documented, usable_queues
from redrive.deploy.order import bindings_in_order, exchanges_in_order, queues_in_order

__all__ = [
    "ApplyFailed",
    "Difference",
    "Inspection",
    "apply",
    "as_documented",
    "bindings_in_order",
    "exchanges_in_order",
    "inspect",
    "queues_in_order",
    "read_difference",
    "usable_queues",
]
