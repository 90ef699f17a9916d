"""The handler that posts a message to a service and ends as the service answers.

It is a consumer's handler like any other: it returns for a 2xx and raises otherwise, and the runtime decides. Redirects
are not followed, because a message is meant for the service that was named. The body is sent as it came.

One attempt is one request. A service that closes a kept connection just when a request arrives may have read it and
done the work: the pusher can't know. So that is a failed attempt like any other, counted and delayed, and the next one
carries the same `Idempotency-Key`.
"""

import os
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from redrive.runtime.message import Message
from redrive.runtime.push.errors import BadAnswer, Dropped, InvalidPush, TooSlow, Unreachable
from redrive.runtime.push.kept_connections import make_connector
from redrive.runtime.push.request_headers import IDEMPOTENCY_KEY, idempotency_key, request_headers
from redrive.runtime.push.signing import SIGNATURE, sign
from redrive.runtime.push.target import PushTarget

if TYPE_CHECKING:
    import aiohttp
    import yarl

ANSWER_BYTES_MAX = 64 * 1024
"""The rest of a longer answer is not read: nobody uses it."""
KEEP_ALIVE_S = 4.0
"""Below node's 5 s, so that nearly always we close an idle connection, not the service."""
_TEXT_TYPES = ("text/", "application/json", "application/problem+json")


class Pusher:
    """Posts messages to one service while it is entered: `async with Pusher(target) as push: …`.

    Entering raises `InvalidPush` if aiohttp is not installed.
    """

    def __init__(self, target: PushTarget, *, now_s: Callable[[], float] = time.time) -> None:
        self.target = target
        self._now_s = now_s
        self._session: aiohttp.ClientSession
        self._aiohttp: Any
        self._url: yarl.URL

    async def __aenter__(self) -> "Pusher":
        aiohttp, yarl = _import_aiohttp()
        target = self.target
        self._aiohttp = aiohttp
        self._url = yarl.URL(target.url)  # or it would be parsed for every message
        self._session = aiohttp.ClientSession(
            connector=make_connector(limit=target.concurrency, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=10),
            timeout=aiohttp.ClientTimeout(total=target.total_s_max, sock_connect=target.connect_s_max),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("user-agent", "accept-encoding"),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def __call__(self, body: bytes, message: Message) -> None:
        """Delivers one message. Raises `BadAnswer`, `Unreachable`, `Dropped` or `TooSlow`."""
        head = {"user-agent": "redrive", **request_headers(message), **dict(self.target.headers)}
        key = idempotency_key(message.queue, message.id, body)
        if key is not None:
            head[IDEMPOTENCY_KEY] = key
        if self.target.secrets:
            head[SIGNATURE] = sign(body, self.target.secrets, now_s=int(self._now_s()))
        aiohttp = self._aiohttp
        target = self.target
        try:
            async with self._session.post(self._url, data=body, headers=head, allow_redirects=False) as response:
                succeeded = 200 <= response.status < 300
                answer = await _read_answer(response, succeeded=succeeded)
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(f"can't connect to {target.shown}: {_reason(error)}") from None
        except TimeoutError as error:
            # sock_connect and total; aiohttp's own say which.
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            limit_s = target.connect_s_max if connecting else target.total_s_max
            what = "no connection to" if connecting else "no answer from"
            raise TooSlow(f"{what} {target.shown} within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Dropped(f"{target.shown} went away before its answer was complete: {_reason(error)}") from None
        if not succeeded:
            raise BadAnswer(response.status, response.reason or "", answer, response.headers)


async def _read_answer(response: "aiohttp.ClientResponse", *, succeeded: bool) -> str:
    """The beginning of an answer, if it is text. A success counts only if its answer is complete: if it breaks off the
    service may have crashed. A failure counts at once."""
    import aiohttp  # installed, or there would be no answer

    raw = bytearray()
    try:
        while len(raw) < ANSWER_BYTES_MAX:
            chunk = await response.content.read(ANSWER_BYTES_MAX - len(raw))
            if not chunk:
                break
            raw += chunk
    except (aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        if succeeded:
            raise
    if succeeded or not response.headers.get("content-type", "").lower().startswith(_TEXT_TYPES):
        return ""
    return bytes(raw[:2000]).decode("utf-8", "replace").strip()


def _reason(error: BaseException) -> str:
    """The reason without the address, which may contain a password and is in the text already."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason}"
    code = getattr(cause, "errno", None)
    if isinstance(code, int) and code > 0:
        return os.strerror(code)  # asyncio's own text has the address
    return str(getattr(cause, "strerror", None) or type(cause).__name__)


def _import_aiohttp() -> tuple[Any, Any]:
    try:
        import aiohttp
        import yarl
    except ImportError:
        raise InvalidPush("pushing needs aiohttp; install it with: pip install 'redrive[push]'") from None
    return aiohttp, yarl
