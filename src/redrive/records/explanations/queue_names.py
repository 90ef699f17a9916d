"""What the name of a queue says: whose dead letters it holds, and whether messages only wait in it."""

import re

_SUFFIX = re.compile(
    r"[._-](?:dlq|dead[._-]?letters?(?:[._-]queue)?|dead|parked|parking|errors?|failed|skipped|poison)\Z", re.IGNORECASE
)
_PREFIX = re.compile(r"(?:dlq|dead[._-]?letters?|dead)[._-](?=.)", re.IGNORECASE)
_WAITING = re.compile(r"(?:\A|[._-])(?:wait|waiting|retry|retries|delay|delayed)(?:\Z|[._-])", re.IGNORECASE)


def guess_failed_queue(dlq: str) -> str:
    """The queue whose dead letters a DLQ holds, as its name has it: `orders` of `orders.dlq`, `orders_error`,
    `dlq.orders`; event-bus's `p.queue.s` of `p.dlq.s`. A name that says nothing is the answer itself."""
    without = _SUFFIX.sub("", dlq)
    if without and without != dlq:
        return without
    if ".dlq." in dlq.strip("."):
        return dlq.replace(".dlq.", ".queue.", 1)
    return _PREFIX.sub("", dlq, count=1) if _PREFIX.match(dlq) else dlq


def owner_of(dlq: str, *, queue: str, known_queue: str | None = None) -> str:
    """The queue whose operators a dead letter belongs to: its failed queue where the DLQ is known to be that queue's,
    by what was declared or by its name; else the DLQ itself. Never by what the message says alone."""
    home = guess_failed_queue(dlq) if known_queue is None else known_queue
    return queue if queue == home else dlq


def is_waiting_place(queue: str) -> bool:
    """Whether messages only wait in a queue of this name before they are tried again."""
    return _WAITING.search(queue) is not None
