"""Our own failures over a message, counted: a message that we fail over again and again must not come again for ever.

A bug of ours is nearly always about one message: it has something that nobody thought of, and that we can't read. It is
requeued, in case the failure was temporary, and after `TRIES_MAX` tries in this process it is parked unread. Between
two tries a copy may replace it, and a quorum queue writes its count into the headers, so the message is recognised by
its id and its body.
"""

import time
from collections.abc import Callable

from redrive.client import ClientError, Delivery
from redrive.wire import ProtocolError

TRIES_MAX = 3
_FORGOTTEN_S = 600.0
_KEPT_MAX = 10_000


class InternalFailures:
    """Our failures over the deliveries of one queue."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._tries: dict[int, tuple[int, float]] = {}

    def is_last(self, delivery: Delivery, error: Exception) -> bool:
        """Whether this failure is one too many. The broker's refusals and lost connections are no failures of ours."""
        if isinstance(error, ClientError):
            return False
        key, now_s = hash((_id_of(delivery), delivery.body)), self._now_s()
        tries, since_s = self._tries.pop(key, (0, now_s))
        tries = tries + 1 if now_s - since_s < _FORGOTTEN_S else 1
        if tries >= TRIES_MAX:
            return True
        if len(self._tries) >= _KEPT_MAX:
            self._tries.clear()
        self._tries[key] = (tries, now_s)
        return False


def _id_of(delivery: Delivery) -> str | None:
    try:
        return delivery.properties.message_id
    except ProtocolError:
        return None
