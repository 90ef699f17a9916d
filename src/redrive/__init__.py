"""Redrive: retries and dead letters for RabbitMQ.

    from redrive import App, Message, Park, RetryAfter

Names are imported when they are first used, so that `import redrive` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from redrive.running import run
    from redrive.runtime import App, Json, Message, PublishFailed

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
    "run": "running",
}

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
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redrive' has no attribute {name!r}")
    return getattr(import_module(f"redrive.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
