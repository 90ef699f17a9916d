"""What queues may hold, asked of the management API, for the preflight."""

from redrive.deadletters.redrive.preflight import LimitsOf, QueueLimits
from redrive.management import Management, ManagementError
from redrive.topology import queue_settings


def limits_from_management(management: Management) -> LimitsOf:
    """Asks the management API for the limits of a queue. Where it does not answer, they can't be known."""

    async def limits_of(vhost: str, queue: str, /) -> QueueLimits | None:
        try:
            info = await management.queue(vhost, queue)
            book = await management.policy_book(vhost)
        except ManagementError:
            return None
        if info is None:
            return None
        settings = queue_settings(info.queue, book)
        return QueueLimits(
            length_max=info.max_length(book),
            overflow="drop-head" if settings.drops_head else "reject-publish",
            is_dead_lettered=settings.dead_letter_exchange is not None,
            ttl_ms=settings.ttl_ms,
        )

    return limits_of
