"""The engine: RabbitMQ's rules as a pure, deterministic machine. Commands in, effects out, the clock passed in.

From the bottom up: `profiles` is where versions differ; `messages`, `x_death` and `ready_messages` are messages, their
deaths and their order; `arguments`, `policies`, `queue_settings` and `equivalence` say what a queue is; `queues` with
`length_limits`, `delayed_messages`, `consumers`, `dead_letter_exchange` and `consumer_timeouts` is how it behaves,
`streams` are the queues that are logs; `exchanges`, `topic_trie`, `headers_match` and `routing` lead there; `vhosts`,
`connections` and `channels` (`channel_base`, `channel_publisher`, `channel_consumer`) are what a client can call;
`engine` holds them all. `effects` is what comes out, `journal` what happened to each message.
"""

from redrive.embedded.engine.amqp_errors import AmqpError
from redrive.embedded.engine.channels import Channel
from redrive.embedded.engine.connections import Connection
from redrive.embedded.engine.effects import (
    BasicReturn,
    Confirm,
    ConfirmNack,
    ConsumerCancelled,
    ConsumerTimedOut,
    Deliver,
    Effect,
    GetOk,
)
from redrive.embedded.engine.engine import Engine
from redrive.embedded.engine.journal import Hop, MessageLocation
from redrive.embedded.engine.profiles import PROFILES, Profile

__all__ = [
    "PROFILES",
    "AmqpError",
    "BasicReturn",
    "Channel",
    "Confirm",
    "ConfirmNack",
    "Connection",
    "ConsumerCancelled",
    "ConsumerTimedOut",
    "Deliver",
    "Effect",
    "Engine",
    "GetOk",
    "Hop",
    "MessageLocation",
    "Profile",
]
