"""The embedded broker: RabbitMQ's behaviour in this process, in virtual time, over real AMQP.

`engine/` is the broker as a pure machine. `client_session` is one client's AMQP session with it, on wire's server role;
`method_handlers`, `credentials` and `confirms` are its parts. `server`, `transport` and `pipe` (connections in memory)
are the I/O, `virtual_time` moves the engine's clock, `faults` makes things fail, `broker` is what callers use. For
development and tests: production is RabbitMQ.

The management API is imported on first use: few brokers serve it, and it is as large as all the rest.
"""

from typing import TYPE_CHECKING

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.engine import (
    PROFILES,
    AmqpError,
    BasicReturn,
    Channel,
    ConfirmNack,
    Deliver,
    Engine,
    GetOk,
    Hop,
    MessageLocation,
)
from redrive.embedded.errors import EmbeddedError, NotRunning, PortTaken, UnknownProfile
from redrive.embedded.faults import FaultRates, Faults
from redrive.embedded.server import ServerLimits
from redrive.embedded.virtual_time import TimeMode
from redrive.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from redrive.embedded.management import ManagementServer
else:
    __getattr__, __dir__ = lazy_exports(__name__, {"ManagementServer": "management"})

__all__ = [
    "PROFILES",
    "AmqpError",
    "BasicReturn",
    "Channel",
    "ConfirmNack",
    "Deliver",
    "EmbeddedBroker",
    "EmbeddedError",
    "Engine",
    "FaultRates",
    "Faults",
    "GetOk",
    "Hop",
    "ManagementServer",
    "MessageLocation",
    "NotRunning",
    "PortTaken",
    "ServerLimits",
    "TimeMode",
    "UnknownProfile",
]
