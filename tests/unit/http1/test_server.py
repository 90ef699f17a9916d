"""The listener alone: its bound, and its end."""

import asyncio

from redrive.http1 import Http1Server, read_request_line, response_bytes


async def echo_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answers with the path that was asked for, and keeps the connection."""
    line = await read_request_line(reader)
    writer.write(response_bytes(200, line.target.encode(), {}, keep_alive=True))
    await writer.drain()
    return True


def make_server(*, connections_max: int) -> Http1Server:
    return Http1Server(echo_target, host="127.0.0.1", port=0, connections_max=connections_max, head_bytes_max=1_024)


async def read_until_closed(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(5):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


def test_a_connection_beyond_the_bound_is_dropped_and_the_others_are_served() -> None:
    async def run() -> None:
        server = make_server(connections_max=1)
        await server.start()
        first, first_writer = await asyncio.open_connection(server.host, server.port)
        for path in (b"/a", b"/b"):
            first_writer.write(b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert (await first.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
            assert await first.readexactly(2) == path
        second, second_writer = await asyncio.open_connection(server.host, server.port)
        assert await read_until_closed(second) == b""
        second_writer.close()
        await server.stop()
        assert await read_until_closed(first) == b""
        first_writer.close()

    asyncio.run(run())


def test_stopping_what_never_started_does_nothing() -> None:
    asyncio.run(make_server(connections_max=1).stop())
