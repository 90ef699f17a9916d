"""RabbitMQ's management HTTP API, as far as we ask it: reading only, JSON in, values out.

`endpoints` says where it is, `asking` is one bounded HTTP conversation, `queues`, `bindings` and `policies` read the
answers, `api` puts them together.
"""

from redrive.management.api import Management
from redrive.management.asking import TIMEOUT_S
from redrive.management.endpoints import ManagementEndpoint, guess_endpoint, parse_management_url
from redrive.management.errors import (
    InvalidManagementUrl,
    ManagementDenied,
    ManagementError,
    ManagementFailed,
    ManagementUnreachable,
)
from redrive.management.queues import MANY_DELIVERIES, QueueInfo

__all__ = [
    "MANY_DELIVERIES",
    "TIMEOUT_S",
    "InvalidManagementUrl",
    "Management",
    "ManagementDenied",
    "ManagementEndpoint",
    "ManagementError",
    "ManagementFailed",
    "ManagementUnreachable",
    "QueueInfo",
    "guess_endpoint",
    "parse_management_url",
]
