"""The management client against the embedded broker's API, and against servers that misbehave."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.client import Client
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.management import (
    InvalidManagementUrl,
    Management,
    ManagementDenied,
    ManagementEndpoint,
    ManagementFailed,
    ManagementUnreachable,
    guess_endpoint,
    parse_management_url,
)
from redrive.topology import Arguments, Policy
from tests.live.client.certificates import Authority


@asynccontextmanager
async def embedded(profile: str = "4.3") -> AsyncIterator[tuple[EmbeddedBroker, Management]]:
    async with (
        EmbeddedBroker(profile) as broker,
        ManagementServer(broker) as server,
        Management(parse_management_url(server.url)) as management,
    ):
        yield broker, management


def test_queues_come_with_type_arguments_limit_and_counts() -> None:
    async def steps() -> None:
        async with embedded() as (broker, management), Client(broker.url) as client:
            channel = await client.channel()
            quorum = {"x-queue-type": "quorum", "x-delivery-limit": 50}
            await channel.declare_queue("orders.parked", arguments=quorum)
            await channel.declare_queue("orders.dlq")
            broker.set_policy(
                Policy(name="limits", pattern="parked", definition=Arguments({"delivery-limit": 7, "max-length": 9}))
            )
            publisher = await client.publisher()
            await publisher.publish("", "orders.dlq", b"one")
            found = {queue.name: queue async for queue in management.queues("/")}
            assert sorted(found) == ["orders.dlq", "orders.parked"]
            parked, dlq = found["orders.parked"], found["orders.dlq"]
            assert (parked.type, parked.delivery_limit(), parked.max_length()) == ("quorum", 7, 9)
            assert (dlq.type, dlq.messages, dlq.consumers, dlq.delivery_limit()) == ("classic", 1, 0, None)
            assert await management.queue("/", "orders.dlq") == dlq
            assert await management.queue("/", "nowhere") is None
            assert (await management.version()).startswith("4.3")
            assert await management.cluster_name() == (await client.connection()).server_properties["cluster_name"]

    asyncio.run(steps())


def test_a_queue_too_young_to_show_its_policy_is_judged_by_the_policies_themselves() -> None:
    async def steps() -> None:
        async with embedded("4.0") as (broker, management), Client(broker.url) as client:
            await (await client.channel()).declare_queue("orders.dlq", arguments={"x-queue-type": "quorum"})
            definition = Arguments({"delivery-limit": 7})
            broker.set_policy(Policy(name="limits", pattern="^orders", definition=definition, apply_to="queues"))
            shown = await management.queue("/", "orders.dlq")
            assert shown is not None
            book = await management.policy_matcher("/")
            young = replace(shown, policy_arguments=None)
            assert (young.delivery_limit(book), young.delivery_limit()) == (7, None)

    asyncio.run(steps())


def test_twelve_hundred_queues_come_page_by_page_each_once() -> None:
    async def steps() -> None:
        async with embedded() as (broker, management), Client(broker.url) as client:
            channel = await client.channel()
            names = [f"q{number:05}.dlq" for number in range(1200)]
            for name in names:
                await channel.declare_queue(name)
            assert [queue.name async for queue in management.queues("/")] == names

    asyncio.run(steps())


def test_a_wrong_password_and_a_missing_vhost_are_one_sentence_each() -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, ManagementServer(broker) as server:
            async with Management(parse_management_url(server.url, user="guest", password="wrong")) as management:
                with pytest.raises(ManagementDenied, match=r"asked as user guest, refuses the password") as denied:
                    await management.version()
                assert "wrong" not in str(denied.value)
            async with Management(parse_management_url(server.url)) as management:
                with pytest.raises(ManagementFailed, match="there is no vhost elsewhere"):
                    [one async for one in management.queues("elsewhere")]

    asyncio.run(steps())


def test_nobody_there_is_said_with_the_address_and_what_to_do() -> None:
    async def steps() -> None:
        async with Management(ManagementEndpoint(host="127.0.0.1", port=1)) as management:
            with pytest.raises(ManagementUnreachable, match=r"does not answer at http://127\.0\.0\.1:1: .*refused"):
                await management.version()

    asyncio.run(steps())


@asynccontextmanager
async def server(
    answers: list[bytes],
    *,
    closes: bool = False,
    timeout_s: float = 5.0,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
) -> AsyncIterator[tuple[Management, list[int]]]:
    """Gives the answers in turn; `closes`: hangs up after each without having said so; `tls`: its own, and ours."""
    connections: list[int] = []
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        connections.append(1)
        try:
            while answers:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answers.pop(0))
                await writer.drain()
                if closes:
                    break
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    listening = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=None if tls is None else tls[0])
    port = listening.sockets[0].getsockname()[1]
    try:
        endpoint = ManagementEndpoint(host="localhost" if tls else "127.0.0.1", port=port, is_tls=tls is not None)
        ours = None if tls is None else tls[1]
        async with Management(endpoint, tls=ours, timeout_s=timeout_s) as management:
            yield management, connections
    finally:
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' own last turn


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


OVERVIEW = http(json.dumps({"rabbitmq_version": "4.0.5"}).encode())


def test_one_connection_serves_many_questions() -> None:
    async def steps() -> None:
        async with server([OVERVIEW, OVERVIEW, OVERVIEW]) as (management, connections):
            assert [await management.version() for _ in range(3)] == ["4.0.5"] * 3
            assert len(connections) == 1

    asyncio.run(steps())


def test_a_server_that_hung_up_in_between_is_asked_again() -> None:
    async def steps() -> None:
        async with server([OVERVIEW, OVERVIEW], closes=True) as (management, connections):
            assert [await management.version() for _ in range(2)] == ["4.0.5"] * 2
            assert len(connections) == 2

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (b"220 mail.example ESMTP\r\n\r\n", ManagementUnreachable, "speaks no HTTP"),
        (http(b"<html>"), ManagementFailed, "no JSON"),
        (http(b"[1]"), ManagementFailed, "names no rabbitmq_version"),
        (
            http(b'{"reason": "out\\n of order"}', "500 Oh"),
            ManagementFailed,
            "answered 500 to /api/overview: out of order",
        ),
        (http(b"", "403 Forbidden"), ManagementDenied, "give it the tag monitoring"),
    ],
    ids=["mail", "html", "list", "500", "403"],
)
def test_what_is_no_answer_is_said_in_one_sentence(answer: bytes, error: type[Exception], text: str) -> None:
    async def steps() -> None:
        async with server([answer]) as (management, _):
            with pytest.raises(error, match=text):
                await management.version()

    asyncio.run(steps())


def test_a_silent_server_is_not_waited_for() -> None:
    async def steps() -> None:
        async with server([b""], timeout_s=0.05) as (management, _):
            with pytest.raises(ManagementUnreachable, match="no answer in"):
                await management.version()

    asyncio.run(steps())


@pytest.mark.slow
def test_tls_opens_to_who_is_trusted_and_says_why_not_to_others(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    signed = authority.sign("server", alternative_names="DNS:localhost")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(signed.certificate, signed.key)

    async def steps() -> None:
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        async with server([OVERVIEW], tls=(theirs, trusting)) as (management, _):
            assert await management.version() == "4.0.5"
        async with server([OVERVIEW], tls=(theirs, ssl.create_default_context())) as (management, _):
            with pytest.raises(ManagementUnreachable, match="TLS failed"):
                await management.version()

    asyncio.run(steps())


def test_a_url_says_where_and_as_whom_and_never_shows_the_password() -> None:
    read = parse_management_url("https://ann:se%40cret@broker.example/rabbit/api", user="x", password="y")
    assert read == ManagementEndpoint(
        host="broker.example", port=15671, is_tls=True, prefix="/rabbit", user="ann", password="se@cret"
    )
    assert read.address == "https://broker.example:15671/rabbit"
    assert "se@cret" not in repr(read)
    assert parse_management_url("http://h", user="x", password="y") == ManagementEndpoint(
        host="h", port=15672, user="x", password="y"
    )
    assert guess_endpoint("h", is_tls=True, user="u", password="p").address == "https://h:15671"
    for wrong in ("amqp://u:secret@h", "http://", "http://u:secret@h:nine", "http://u:secret@h?x=1", "h:15672"):
        with pytest.raises(InvalidManagementUrl) as refused:
            parse_management_url(wrong)
        assert "secret" not in str(refused.value)
