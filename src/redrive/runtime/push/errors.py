"""How a push can fail, and how a push can be misconfigured.

    RedriveError
    └── InvalidPush        the operator: a URL, a secret or a header that can't be used, or aiohttp is not installed

What the handler raises (the queue's pause and the decision table know them by their base classes):

    BadAnswer(Exception)            a status outside 2xx; the decision table decides
    Unreachable(ConnectionError)    no connection could be made: refused, no such host, TLS
    Dropped(ConnectionError)        the connection was lost before the whole answer had arrived
    TooSlow(TimeoutError)           no connection, or no answer, in time

A failed request may have reached the service all the same: it sees the message again, with the same idempotency key.
"""

from collections.abc import Mapping

from redrive.core import RedriveError, shorten

DETAIL_BYTES_MAX = 500


class InvalidPush(RedriveError):
    """Push is misconfigured and can't begin."""


class BadAnswer(Exception):
    """The service answered with a status that is no success; `headers` may have a Retry-After."""

    def __init__(self, status_code: int, reason: str, detail: str, headers: Mapping[str, str]) -> None:
        self.status_code = status_code
        self.headers = headers
        text = f"{status_code} {reason}".strip()
        super().__init__(f"{text}: {shorten(detail, DETAIL_BYTES_MAX)}" if detail else text)


class Unreachable(ConnectionError):
    """No connection to the service."""


class Dropped(ConnectionError):
    """The service closed the connection in the middle of the exchange."""


class TooSlow(TimeoutError):
    """The service did not answer in time."""
