"""The engine: RabbitMQ's rules as a pure, deterministic machine. Commands in, effects out, the clock passed in.

From the bottom up: `profiles` is where versions differ; `messages`, `deaths` and `ready` are messages, their deaths and
their order; `settings`, `arguments`, `equivalence` and `policies` say what a queue is; `queues`, `limits`, `consumers`,
`deadletters` and `overdue` are how it behaves; `exchanges`, `topics`, `matching` and `routing` lead there; `vhosts`,
`connections` and the four halves of a channel are what a client can ask for; `engine` holds them all.
"""

from redrive.embedded.engine.channels import Channel
from redrive.embedded.engine.connections import Connection
from redrive.embedded.engine.effects import Cancelled, Confirm, Deliver, Effect, Got, Refused, Return, TimedOut
from redrive.embedded.engine.engine import Engine
from redrive.embedded.engine.journal import Hop, Place
from redrive.embedded.engine.profiles import PROFILES, Profile
from redrive.embedded.engine.refusals import Refusal

__all__ = [
    "PROFILES",
    "Cancelled",
    "Channel",
    "Confirm",
    "Connection",
    "Deliver",
    "Effect",
    "Engine",
    "Got",
    "Hop",
    "Place",
    "Profile",
    "Refusal",
    "Refused",
    "Return",
    "TimedOut",
]
