"""The arguments of queues, exchanges and policies: what RabbitMQ knows (`known_arguments`) and what is wrong
(`checks`)."""

from redrive.topology.arguments.checks import check_exchange, check_policy, check_queue
from redrive.topology.arguments.known_arguments import (
    APPLY_TO_SINCE,
    EXCHANGE_TYPES_SINCE,
    MESSAGE_TTL_MAX_MS,
    POLICY_KEYS,
    QUEUE_ARGUMENTS,
    ArgumentRule,
    PolicyRule,
)

__all__ = [
    "APPLY_TO_SINCE",
    "EXCHANGE_TYPES_SINCE",
    "MESSAGE_TTL_MAX_MS",
    "POLICY_KEYS",
    "QUEUE_ARGUMENTS",
    "ArgumentRule",
    "PolicyRule",
    "check_exchange",
    "check_policy",
    "check_queue",
]
