"""The embedded broker: RabbitMQ's behaviour in this process, in virtual time, over real AMQP.

`engine/` is the broker as a pure machine; `session` speaks wire's server role with it, `commands`, `credentials` and
`faults` are its parts; `transport` and `server` are the I/O; `clock` and `timekeeper` are time; `broker` is what
callers use. For development and tests: production is RabbitMQ.
"""

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.clock import Flow
from redrive.embedded.engine import PROFILES, Hop, Place
from redrive.embedded.errors import EmbeddedError, NotRunning, PortTaken, UnknownProfile
from redrive.embedded.faults import Faults
from redrive.embedded.management import ManagementServer
from redrive.embedded.server import ServerLimits

__all__ = [
    "PROFILES",
    "EmbeddedBroker",
    "EmbeddedError",
    "Faults",
    "Flow",
    "Hop",
    "ManagementServer",
    "NotRunning",
    "Place",
    "PortTaken",
    "ServerLimits",
    "UnknownProfile",
]
