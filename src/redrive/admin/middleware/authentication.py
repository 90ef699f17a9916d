"""Authentication: finds the caller of a request before anything else of it is read.

It is an ASGI middleware rather than a dependency, so that a kept response is never repeated to an invalid token, and
nobody without a token can make the server read a body. It looks up the token of every request: every instance refuses a
revoked one at once.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from redrive.admin.access.authorization import CALLER, REDACTIONS
from redrive.admin.access.brute_force import BruteForceThrottle
from redrive.admin.access.caller import LOCAL, Caller, caller_with
from redrive.admin.access.dlq_owners import DlqOwners
from redrive.admin.access.request_origin import bearer_token, client_address
from redrive.admin.middleware.quotas import QUOTA, RequestQuota
from redrive.admin.problems import HttpProblem, forbidden, unauthenticated
from redrive.admin.services import Services
from redrive.admin.settings import OPEN_PATHS, is_loopback
from redrive.records import is_same_secret, read_token_text
from redrive.stores import acting_as

METRICS_PATH = "/metrics"
_NOBODY = bytes(32)
_PROXIES_SAY = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})


class Authentication:
    """Puts the caller into the scope. Raises `HttpProblem` 401, 403 or 429."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._services = services
        self._throttle = BruteForceThrottle()
        self._dlq_owners = DlqOwners(services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request; anything but HTTP is passed on."""
        if scope["type"] == "http" and not self._is_open(scope):
            caller = scope[CALLER] = await self._caller(scope)
            quota = scope.get(QUOTA)
            if isinstance(quota, RequestQuota):
                # From here on it uses the token's quota, however the token was written.
                await quota.belong_to(caller.token_id)
            with acting_as(caller.token_id):
                await self._app(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        if path in OPEN_PATHS:
            return True
        # Another name for 127.0.0.1 is not enough: a web page in this machine's browser may use one.
        headers = Headers(scope=scope)
        is_local = _names_loopback(headers) and not came_through_proxy(headers)
        return path == METRICS_PATH and self._services.settings.is_private and is_local

    async def _caller(self, scope: Scope) -> Caller:
        """The sender of a request. Raises `HttpProblem`, `StoreUnavailable`."""
        headers = Headers(scope=scope)
        if not self._services.settings.require_auth:
            _check_local(headers)
            return LOCAL
        address = client_address(scope)
        text = bearer_token(scope)
        if text is None:
            reason = "no bearer token" if len(headers.getlist("authorization")) == 1 else "no token"
            raise await self._refused(address, "send a token: Authorization: Bearer rd_…", reason)
        return await self._caller_with(text, address, scope)

    async def _caller_with(self, text: str, address: str, scope: Scope) -> Caller:
        now_ms = self._services.clock_ms()
        read = read_token_text(text)
        token_id, digest = ("", _NOBODY) if read is None else read
        found = None if read is None else await self._services.store.tokens.admit(token_id)
        # An unknown token is compared with something too, so that the answer takes as long.
        is_same = is_same_secret(_NOBODY if found is None else found[1], digest)
        if found is None or not is_same or not found[0].is_valid(now_ms):
            self._services.quotas.forget(text)
        if found is None or not is_same:
            wait_ms = self._throttle.wait_ms(address, now_ms)
            if wait_ms:
                raise await self._too_many(address, wait_ms)
            self._throttle.record_failure(address, now_ms)
            raise await self._refused(address, "the token is not known; ask for a new one", "unknown token")
        token = found[0]
        if not token.is_valid(now_ms):
            state = token.state(now_ms)
            raise await self._refused(address, f"the token is {state}; ask for a new one", f"{state} token {token.id}")
        self._services.quotas.remember(text, token.id)
        scope[REDACTIONS] = found[2]
        return caller_with(token, dlqs=await self._dlq_owners.dlqs_of(token.queues))

    async def _refused(self, address: str, detail: str, reason: str) -> HttpProblem:
        await self._services.refusal_audit.record_unauthenticated(address, reason)
        return unauthenticated(detail)

    async def _too_many(self, address: str, wait_ms: int) -> HttpProblem:
        await self._services.refusal_audit.record_unauthenticated(address, "too many wrong tokens")
        seconds = -(-wait_ms // 1000)
        return HttpProblem(
            status=429,
            name="too-many-failures",
            title="Too many wrong tokens",
            detail=f"too many wrong tokens came from this address; wait {seconds} s",
            headers={"Retry-After": str(seconds)},
        )


def _check_local(headers: Headers) -> None:
    """Raises `HttpProblem` 403 for a request that did not start on this machine, or that a web page in its browser
    sends: by another name for 127.0.0.1, or from another origin."""
    asked = headers.get("host", "")
    origin = headers.get("origin")
    if came_through_proxy(headers):
        raise forbidden(
            "without tokens this is only for this machine, and this request came through a proxy (it has a Forwarded, "
            "X-Forwarded- or Via header); require tokens, and name the proxy with --trusted-proxy"
        )
    if not _names_loopback(headers):
        raise forbidden("without tokens this is only for this machine; ask for http://127.0.0.1 or http://localhost")
    if origin is not None and origin.partition("://")[2] != asked:
        raise forbidden("without tokens other web pages may not ask; give them a token, and require tokens")


def came_through_proxy(headers: Headers) -> bool:
    """Whether a proxy forwarded a request: then its sender may be anywhere, though it comes from this machine."""
    return any(name in _PROXIES_SAY or name.startswith("x-forwarded") for name in headers)


def _names_loopback(headers: Headers) -> bool:
    return is_loopback(_host_of(f"//{headers.get('host', '')}"))


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
