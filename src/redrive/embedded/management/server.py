"""The management API's server: authenticates a request, finds its handler, sends the answer. One request is one turn.

    async with EmbeddedBroker() as broker, ManagementServer(broker) as management:
        ...                                  # any tool for RabbitMQ, at management.url

Every request must authenticate as one of the broker's users, with a tag that gives access to management; then it may do
everything. No TLS: it is for tests and development.
"""

import asyncio
import base64
import binascii
import hmac

from redrive.embedded.broker import EmbeddedBroker
from redrive.embedded.engine import AmqpError
from redrive.embedded.errors import NotRunning, PortTaken
from redrive.embedded.management import (
    bindings,
    connections,
    definitions,
    exchanges,
    messages,
    overview,
    policies,
    queues,
    users,
    vhosts,
)
from redrive.embedded.management.broker_view import BrokerView
from redrive.embedded.management.json_values import write_json
from redrive.embedded.management.replies import NOTHING, ApiError, Reply, refused
from redrive.embedded.management.routes import Request, Routes, split_target
from redrive.http1 import HEAD_BYTES_MAX, Http1Server, HttpError, HttpRequest, read_request, response_bytes

CONNECTIONS_MAX = 100
WRITE_S_MAX = 30.0
_REALM = 'Basic realm="RabbitMQ Management"'
_MANAGERS = frozenset({"administrator", "monitoring", "policymaker", "management"})
_ROOMS = (overview, users, vhosts, queues, exchanges, bindings, messages, policies, definitions, connections)


class ManagementServer:
    """The management API of an embedded broker, on a port of its own (0: any free one)."""

    def __init__(self, broker: EmbeddedBroker, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._broker = broker
        self._view = BrokerView(broker)
        self._routes = Routes()
        for room in _ROOMS:
            room.add_routes(self._routes)
        self._server = Http1Server(
            self._exchange, host=host, port=port, connections_max=CONNECTIONS_MAX, head_bytes_max=HEAD_BYTES_MAX
        )

    async def __aenter__(self) -> "ManagementServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self._server.host

    @property
    def port(self) -> int:
        """The port it listens on; after `start` never 0."""
        return self._server.port

    @property
    def url(self) -> str:
        """Where tools find it: add /api and so on."""
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        """Listen. Raises PortTaken."""
        try:
            await self._server.start()
        except OSError as error:
            raise PortTaken(self.host, self.port, error) from None

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        await self._server.stop()

    def answer(self, request: HttpRequest) -> Reply:
        """The answer to a request, errors included. Runs from end to end without waiting for anything."""
        try:
            segments, query = split_target(request.target)
            user = self._login(request.headers.get("authorization"))
            handler, names = self._routes.find(request.method, segments)
            asked = Request(view=self._view, user=user, query=query, headers=request.headers, body=request.body)
            with self._view.turn():
                return handler(asked, **names)
        except ApiError as problem:
            return problem.reply()
        except AmqpError as error:
            return refused(error).reply()
        except NotRunning as stopped:
            return ApiError(503, "service_unavailable", str(stopped)).reply()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and send its answer; whether there may be another."""
        try:
            request = await read_request(reader, writer)
        except HttpError as error:
            problem = ApiError(error.status.value, "bad_request", error.reason)
            writer.write(_bytes(problem.reply(), keep_alive=False))
            await _drain(writer)
            return False
        if request is None:
            return False
        reply = self.answer(request)
        writer.write(_bytes(reply, keep_alive=request.keep_alive, without_body=request.method == "HEAD"))
        await _drain(writer)
        return request.keep_alive

    def _login(self, authorization: str | None) -> str:
        """The authenticated user. Raises ApiError (401)."""
        scheme, _, given = (authorization or "").partition(" ")
        reason = "Not_Authorized" if authorization is None else self._view.api_profile.login_failed
        denied = ApiError(401, "not_authorized", reason, {"www-authenticate": _REALM})
        if scheme.lower() != "basic":
            raise denied
        try:
            user, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise denied from None
        expected = self._broker.users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise denied
        if not _MANAGERS.intersection(self._broker.tags[user]):
            raise ApiError(401, "not_authorised", "Not management user")
        return user


def _bytes(reply: Reply, *, keep_alive: bool, without_body: bool = False) -> bytes:
    headers = dict(reply.headers)
    if reply.content is NOTHING:
        body = b""
    else:
        body = write_json(reply.content)
        headers["content-type"] = "application/json"
    headers.setdefault("cache-control", "no-cache")
    return response_bytes(reply.status, body, headers, keep_alive=keep_alive, without_body=without_body)


async def _drain(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(WRITE_S_MAX):
        await writer.drain()
