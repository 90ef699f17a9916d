"""Requests come first: while some are open, the thread that collects and redrives yields to them.

Both threads share an interpreter, and with the database a machine. A caller waits for an answer; a dead letter that is
collected a moment later loses nothing, and the batches taken then are larger, which costs less altogether. So the
worker's event loop sleeps after each iteration, the longer the more it worked and the more requests are open: it never
stops, and it runs at full speed when there are no requests. After an iteration that did little it hardly sleeps: it may
have locked rows that a request waits for. This module must not know what either thread does.
"""

import asyncio
import selectors
from collections.abc import Callable
from time import sleep, thread_time
from typing import Any

SHARE = 2.0
"""The worker sleeps so many times as long as it worked, for each open request: its work costs the database as much
again."""
SHARE_MAX = 20.0
REST_S_MIN = 0.001
"""A shorter sleep is saved up until it is worth one."""
REST_S_MAX = 0.02


class OpenRequests:
    """How many requests are being answered. The API's thread changes it, the worker's thread reads it."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def share(self) -> float:
        """How many times as long as it worked the worker sleeps now."""
        return min(self.count * SHARE, SHARE_MAX)


def throttled_loop(
    open_requests: OpenRequests, *, worked_s: Callable[[], float] = thread_time
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes an event loop that sleeps while requests are open. `worked_s`: the CPU time of its thread so far."""
    return lambda: asyncio.SelectorEventLoop(_ThrottledSelector(open_requests, worked_s))


class _ThrottledSelector(selectors.DefaultSelector):
    """Sleeps before it looks for events: what arrives meanwhile is handled in the same iteration."""

    def __init__(self, open_requests: OpenRequests, worked_s: Callable[[], float]) -> None:
        super().__init__()
        self._open_requests = open_requests
        self._worked_s = worked_s
        self._seen_s = 0.0
        self._owed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        worked_s = self._worked_s()
        share = self._open_requests.share
        self._owed_s = self._owed_s + (worked_s - self._seen_s) * share if share else 0.0
        self._seen_s = worked_s
        if self._owed_s >= REST_S_MIN:
            rest_s = min(self._owed_s, REST_S_MAX)
            self._owed_s = 0.0
            sleep(rest_s)
            timeout = None if timeout is None else max(0.0, timeout - rest_s)
        return super().select(timeout)
