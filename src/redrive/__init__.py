"""Redrive: retries and dead letters for RabbitMQ.

    from redrive import App, Message, Park, RetryAfter

Names are imported when they are first used, so that `import redrive` costs nothing.
"""

from typing import TYPE_CHECKING

from redrive.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from redrive.core import (
        Exponential,
        Fixed,
        Immediate,
        Linear,
        Listed,
        Park,
        Requeue,
        RetryAfter,
        Rule,
    )
    from redrive.runtime import App, Json, Message, PublishFailed
    from redrive.wiring import run, running

_HOMES = {
    "App": "runtime",
    "Exponential": "core",
    "Fixed": "core",
    "Immediate": "core",
    "Json": "runtime",
    "Linear": "core",
    "Listed": "core",
    "Message": "runtime",
    "Park": "core",
    "PublishFailed": "runtime",
    "Requeue": "core",
    "RetryAfter": "core",
    "Rule": "core",
    "run": "wiring",
    "running": "wiring",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

__all__ = [
    "App",
    "Exponential",
    "Fixed",
    "Immediate",
    "Json",
    "Linear",
    "Listed",
    "Message",
    "Park",
    "PublishFailed",
    "Requeue",
    "RetryAfter",
    "Rule",
    "run",
    "running",
]
