"""How a push can fail, and what can't be pushed with.

    RedriveError
    └── InvalidPush        the operator's: a URL, a secret or a header that can't be used, or aiohttp is not installed

What a handler raises (by their bases the pause, if asked for, and the decision table know them):

    BadAnswer(Exception)            a status outside 2xx; the table of statuses decides
    Unreachable(ConnectionError)    no connection could be made: refused, no such host, TLS
    Dropped(ConnectionError)        the connection went before the whole answer was here
    TooSlow(TimeoutError)           no connection, or no answer, in time

The failed ones may have reached the service all the same: it sees the message again, with the same idempotency key.
"""

from collections.abc import Mapping

from redrive.core import RedriveError, shorten

DETAIL_BYTES_MAX = 500


class InvalidPush(RedriveError):
    """Pushing can't begin as it was asked for."""


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
    """The service went away in the middle of it."""


class TooSlow(TimeoutError):
    """The service did not answer in time."""
