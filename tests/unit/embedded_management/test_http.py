"""The HTTP side: logins, limits, kept connections, and what is not HTTP."""

import asyncio
import base64

import pytest

from redrive.embedded import EmbeddedBroker, PortTaken
from redrive.embedded.management import ManagementServer
from redrive.http1 import HEAD_BYTES_MAX
from tests.unit.embedded_management.http_client import GUEST, ApiClient
from tests.unit.embedded_management.management_broker import run


def test_a_request_without_a_login_is_told_how() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        wrong = "Basic " + base64.b64encode(b"guest:wrong").decode()
        for authorization in (None, wrong, "Bearer x", "Basic ???", "Basic " + base64.b64encode(b"\xff:x").decode()):
            answer = await api.ask("GET", "whoami", authorization=authorization)
            assert (answer.status, answer.json["error"]) == (401, "not_authorized")
            assert answer.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
        assert (await api.ask("GET", "whoami")).json == {"name": "guest", "tags": ["administrator"]}

    run(steps)


def test_an_unknown_address_and_a_wrong_method_are_told_apart() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        missing = await api.ask("GET", "nope")
        assert (missing.status, missing.json) == (404, {"error": "Object Not Found", "reason": "Not Found"})
        wrong = await api.ask("DELETE", "overview")
        assert (wrong.status, wrong.headers["allow"]) == (405, "HEAD, GET, OPTIONS")
        assert (await api.ask("OPTIONS", "overview")).status == 200
        head = await api.ask("HEAD", "overview")
        assert (head.status, head.body) == (200, b"")
        assert int(head.headers["content-length"]) > 100

    run(steps)


@pytest.mark.parametrize(("size", "status"), [(40, 201), (41, 413)])
def test_a_body_may_have_as_many_bytes_as_the_refusal_names(
    size: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.http1.requests.BODY_BYTES_MAX", 40)

    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        assert (await api.ask("PUT", "vhosts", "v", body=b"{}".ljust(size))).status == status

    run(steps)


def request(*lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join((*lines, f"Authorization: {GUEST}", "", "")).encode() + body


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (request("GET /api/whoami HTTP/2.0", "Host: x"), 505),
        (request("GET /api/whoami HTTP/1.1"), 400),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Host: y"), 400),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Content-Length: -1"), 400),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Content-Length: 999999999999"), 413),
        (request("GET /api/whoami HTTP/1.1", "Host: x", f"Content-Length: {'9' * 18}"), 413),
        (request("GET /api/whoami HTTP/1.1", "Host: x", f"Content-Length: {'9' * 19}"), 400),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Transfer-Encoding: gzip"), 501),
        (request("GET /api/whoami HTTP/1.1", "Host: x", "Bad Name: y"), 400),
        (request("PUT /api/vhosts/x HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", body=b"zz\r\n"), 400),
        (b"GET /api/whoami HTTP/1.1\r\nX: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", 431),
        (request("GET /api/whoami HTTP/1.1", "Host: x", *(f"X-{number}: y" for number in range(101))), 431),
    ],
)
def test_what_is_not_http_is_refused_and_the_connection_ends(raw: bytes, status: int) -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        answer = await api.send(raw)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert (await api.ask("GET", "whoami")).status == 200  # on a new one

    run(steps)


def test_a_body_may_come_in_chunks_and_after_100_continue() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        chunked = request(
            "PUT /api/queues/%2F/q HTTP/1.1",
            "Host: x",
            "Transfer-Encoding: chunked",
            body=b'6;x=y\r\n{"dura\r\nc\r\nble": true }\r\n0\r\nTrailer: x\r\n\r\n',
        )
        assert (await api.send(chunked)).status == 201
        assert (await api.ask("GET", "queues", "/", "q")).json["durable"] is True
        patient = request("PUT /api/vhosts/v HTTP/1.1", "Host: x", "Content-Length: 2", "Expect: 100-continue")
        assert (await api.send(patient, has_body=False)).status == 100
        assert (await api.send(b"{}")).status == 201

    run(steps)


def test_an_old_client_gets_its_answer_and_a_closed_connection() -> None:
    async def steps(_: EmbeddedBroker, api: ApiClient) -> None:
        answer = await api.send(request("GET /api/whoami HTTP/1.0"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")

    run(steps)


def test_a_taken_port_is_said_so() -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, ManagementServer(broker) as first:
            with pytest.raises(PortTaken) as caught:
                await ManagementServer(broker, port=first.port).start()
            assert caught.value.port == first.port

    asyncio.run(steps())


def test_stopping_hangs_up_on_idle_clients() -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker:
            async with ManagementServer(broker) as management:
                api = ApiClient(management.url)
                assert (await api.ask("GET", "overview")).status == 200
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await api.ask("GET", "overview")
            await api.close()

    asyncio.run(steps())


def test_a_stopped_broker_is_a_503() -> None:
    async def steps(broker: EmbeddedBroker, api: ApiClient) -> None:
        await broker.stop()
        assert (await api.ask("GET", "overview")).status == 503

    run(steps)
