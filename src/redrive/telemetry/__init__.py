"""What operators see: a line for everything that is not a plain ack, metrics, health.

`Telemetry` is the `Observer` that wiring gives to the rooms below; `Log` writes in a thread of its own, `Accounts`
count, `Endpoint` serves `/metrics`, `/healthz` and `/readyz`. `catalogue` names every event, field and metric. No
payload and no password goes through here.
"""

from redrive.telemetry.accounts import Accounts
from redrive.telemetry.catalogue import DECISIONS, EVENTS, FIELDS, METRICS, Kind, Level, Metric
from redrive.telemetry.endpoint import Endpoint, EndpointFailed
from redrive.telemetry.log import Log
from redrive.telemetry.rendering import LogFormat
from redrive.telemetry.telemetry import Telemetry

__all__ = [
    "DECISIONS",
    "EVENTS",
    "FIELDS",
    "METRICS",
    "Accounts",
    "Endpoint",
    "EndpointFailed",
    "Kind",
    "Level",
    "Log",
    "LogFormat",
    "Metric",
    "Telemetry",
]
