"""Asks a broker over AMQP about its queues and exchanges, and changes nothing there.

`existence`: whether they exist, and what a queue holds (passive declares). `queue_arguments`: what a queue's arguments
are, which AMQP shows only by refusing a declare that differs.
"""

from redrive.inspection.existence import Inspector, exchange_exists, is_queue_deleted, queue_state
from redrive.inspection.queue_arguments import ArgumentsUnreadable, find_dead_letter_exchange, find_mismatch

__all__ = [
    "ArgumentsUnreadable",
    "Inspector",
    "exchange_exists",
    "find_dead_letter_exchange",
    "find_mismatch",
    "is_queue_deleted",
    "queue_state",
]
