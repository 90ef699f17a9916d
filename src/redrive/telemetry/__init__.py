"""What operators see: a log line for everything that is not a plain ack, metrics, health.

`Telemetry` is the `Observer` that wiring passes to the other rooms. `Log` writes lines in a thread of its own,
`MetricsRegistry` counts, `MetricsEndpoint` serves `/metrics`, `/healthz` and `/readyz`. `catalogue` names every event,
field and metric. No payload and no password goes through here.
"""

from redrive.telemetry.catalogue import DECISIONS, EVENTS, FIELDS, METRICS, Level, Metric, MetricType
from redrive.telemetry.log import Log
from redrive.telemetry.log_records import LogFormat
from redrive.telemetry.metrics_endpoint import EndpointFailed, MetricsEndpoint
from redrive.telemetry.registry import MetricsRegistry
from redrive.telemetry.telemetry import Telemetry

__all__ = [
    "DECISIONS",
    "EVENTS",
    "FIELDS",
    "METRICS",
    "EndpointFailed",
    "Level",
    "Log",
    "LogFormat",
    "Metric",
    "MetricType",
    "MetricsEndpoint",
    "MetricsRegistry",
    "Telemetry",
]
