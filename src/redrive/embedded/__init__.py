"""The embedded broker: RabbitMQ's behaviour in this process, in virtual time, over real AMQP.

`engine/` is the broker as a pure machine; `session` speaks wire's server role with it, `commands`, `credentials` and
`confirming` are its parts; `transport`, `pipe` and `server` are the I/O; `clock` and `timekeeper` are time; `faults`
with `mishaps` and `luck` is what goes wrong; `restart` and `removal` take away; `broker` is what callers use. For
development and tests: production is RabbitMQ.

The management API is imported when it is first asked for: few brokers serve it, and it is as large as all the rest.
"""

from typing import TYPE_CHECKING

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.clock import Flow
from redrive.embedded.engine import PROFILES, Channel, Deliver, Engine, Got, Hop, Place, Refusal, Refused, Return
from redrive.embedded.errors import EmbeddedError, NotRunning, PortTaken, UnknownProfile
from redrive.embedded.faults import Faults
from redrive.embedded.luck import FaultRates
from redrive.embedded.server import ServerLimits
from redrive.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from redrive.embedded.management import ManagementServer
else:
    __getattr__, __dir__ = lazy_exports(__name__, {"ManagementServer": "management"})

__all__ = [
    "PROFILES",
    "Channel",
    "Deliver",
    "EmbeddedBroker",
    "EmbeddedError",
    "Engine",
    "FaultRates",
    "Faults",
    "Flow",
    "Got",
    "Hop",
    "ManagementServer",
    "NotRunning",
    "Place",
    "PortTaken",
    "Refusal",
    "Refused",
    "Return",
    "ServerLimits",
    "UnknownProfile",
]
