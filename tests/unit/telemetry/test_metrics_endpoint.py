"""Probes and scrapes over real HTTP."""

import asyncio

import pytest

from redrive.telemetry import EndpointFailed, MetricsEndpoint, Telemetry


async def ask(endpoint: MetricsEndpoint, request: bytes) -> tuple[int, dict[str, str], str]:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(request)
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    first, *lines = head.decode().split("\r\n")
    return int(first.split(" ")[1]), dict(line.split(": ", 1) for line in lines), body.decode()


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()


def test_metrics_health_and_readiness_are_served() -> None:
    async def run() -> None:
        telemetry = Telemetry()
        telemetry.acked("orders", 0.1)
        async with MetricsEndpoint(telemetry) as endpoint:
            status, headers, body = await ask(endpoint, get("/metrics"))
            assert status == 200
            assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert int(headers["content-length"]) == len(body.encode())
            assert 'redrive_deliveries_total{queue="orders"} 1\n' in body
            assert (await ask(endpoint, get("/healthz")))[::2] == (200, "ok\n")
            assert (await ask(endpoint, get("/readyz")))[::2] == (503, "no consumer has started\n")
            telemetry.watch("orders", in_hand=lambda: 0)
            assert (await ask(endpoint, get("/readyz?verbose")))[::2] == (200, "ok\n")
            assert (await ask(endpoint, get("/readyz", "HEAD")))[::2] == (200, "")
            assert (await ask(endpoint, get("/other")))[0] == 404
            assert (await ask(endpoint, get("/metrics", "POST")))[0] == 405
            assert (await ask(endpoint, b"nonsense\r\n\r\n"))[0] == 400

    asyncio.run(run())


def test_a_silent_client_does_not_keep_the_endpoint_from_stopping() -> None:
    async def run() -> None:
        async with MetricsEndpoint(Telemetry()) as endpoint:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            await ask(endpoint, get("/healthz"))
        async with asyncio.timeout(5):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()

    asyncio.run(run())


def test_a_request_head_without_end_is_dropped() -> None:
    async def run() -> None:
        async with MetricsEndpoint(Telemetry()) as endpoint:
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
            writer.write(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)
            async with asyncio.timeout(5):
                try:
                    assert await reader.read() == b""
                except ConnectionResetError:
                    pass
            writer.close()

    asyncio.run(run())


def test_a_taken_port_is_said_in_one_sentence() -> None:
    async def run() -> None:
        async with MetricsEndpoint(Telemetry()) as first:
            with pytest.raises(EndpointFailed) as refused:
                await MetricsEndpoint(Telemetry(), port=first.port).__aenter__()
            assert str(refused.value) == (
                f"can't serve metrics on 127.0.0.1:{first.port}: the port is taken; choose another with --metrics-port"
            )

    asyncio.run(run())
