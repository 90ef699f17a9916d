"""A client of RabbitMQ's management HTTP API: read-only, JSON in, values out.

`endpoints` says where it is, `http_requests` sends bounded requests, `queues` reads queues from JSON, `api` is the
client.
"""

from redrive.management.api import Management
from redrive.management.endpoints import ManagementEndpoint, guess_endpoint, parse_management_url
from redrive.management.errors import (
    InvalidManagementUrl,
    ManagementDenied,
    ManagementError,
    ManagementFailed,
    ManagementUnreachable,
)
from redrive.management.http_requests import TIMEOUT_S
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
