"""Peeking on the embedded broker: it leaves everything as it was, or refuses; and what is refused where."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from redrive.client import Client
from redrive.deadletters.actions.peek import PeekPermission, PeekRefused, decide_peek, peek
from redrive.deadletters.collect.sources import Source
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.management import Management, QueueInfo, parse_management_url
from redrive.topology import BrokerVersion
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import numbered, park, ready

V3, V40, V43 = BrokerVersion
ANY, WHOLE = PeekPermission(), PeekPermission(only_whole=True)


@pytest.mark.parametrize(
    ("type", "limit", "expected"),
    [
        ("classic", None, {V3: ANY, V40: ANY, V43: ANY}),
        ("quorum", None, {V3: WHOLE, V40: None, V43: ANY}),
        ("quorum", 9, {V3: None, V40: None, V43: ANY}),
        ("quorum", 1_000_000, {V3: ANY, V40: ANY, V43: ANY}),
        ("quorum", -1, {V3: None, V40: WHOLE, V43: WHOLE}),
        ("stream", None, {V3: None, V40: None, V43: None}),
    ],
)
def test_what_may_be_looked_at_and_how_is_what_was_measured(
    type: str, limit: int | None, expected: dict[BrokerVersion, PeekPermission | None]
) -> None:
    info = QueueInfo(vhost="/", name="q", type=type)
    source = Source(vhost="/", dlq="q", queue_type=type, delivery_limit=limit)
    for version, permission in expected.items():
        if permission is None:
            with pytest.raises(PeekRefused, match="is not looked at"):
                decide_peek(info, source, version)
        else:
            assert decide_peek(info, source, version) == permission


@asynccontextmanager
async def scene(profile: str, count: int, **arguments: str | int) -> AsyncIterator[tuple[Client, Management]]:
    async with (
        EmbeddedBroker(profile) as broker,
        ManagementServer(broker) as server,
        Management(parse_management_url(server.url)) as management,
        Client(broker.url) as client,
    ):
        channel = await client.channel()
        named = {key.replace("_", "-"): value for key, value in arguments.items()}
        await channel.declare_queue("q", arguments=named)
        await park(client, "q", numbered(count))
        yield client, management


async def drain(client: Client) -> list[bytes]:
    channel = await client.channel()
    found = []
    while (got := await channel.get_message("q", no_ack=True)) is not None:
        found.append(got.body)
    return found


BODIES = [b"body %d" % number for number in range(5)]


@pytest.mark.parametrize(
    ("profile", "arguments"),
    [
        ("3.10", {"x_queue_type": "classic"}),
        pytest.param("4.3", {"x_queue_type": "classic"}, marks=pytest.mark.slow),
        ("4.3", {"x_queue_type": "quorum"}),
        pytest.param("3.10", {"x_queue_type": "quorum", "x_delivery_limit": 1_000_000}, marks=pytest.mark.slow),
        pytest.param("4.0", {"x_queue_type": "quorum", "x_delivery_limit": 1_000_000}, marks=pytest.mark.slow),
    ],
)
def test_a_hundred_looks_leave_every_message_in_its_place(profile: str, arguments: dict[str, str | int]) -> None:
    async def steps() -> None:
        async with scene(profile, 5, **arguments) as (client, management):
            for _ in range(100):
                seen = await peek(client, management, "q", 3)
                assert [one.body for one in seen.messages] == BODIES[:3]
                assert (seen.left, seen.note) == (2, "")
            assert await drain(client) == BODIES

    run_scenario(steps())


def test_where_looks_are_counted_they_are_refused_with_the_reason() -> None:
    async def steps() -> None:
        async with scene("4.0", 5, x_queue_type="quorum") as (client, management):
            with pytest.raises(PeekRefused, match="counts each look, and drops a message after 20 of them; collect it"):
                await peek(client, management, "q", 3)
            assert await ready(client, "q") == 5

    run_scenario(steps())


def test_where_messages_go_to_the_back_all_or_nothing_is_looked_at() -> None:
    async def steps() -> None:
        async with scene("3.10", 5, x_queue_type="quorum") as (client, management):
            with pytest.raises(
                PeekRefused, match=r"it has 5 messages, and those that are requeued go behind .*--limit 5"
            ):
                await peek(client, management, "q", 3)
            for _ in range(30):
                seen = await peek(client, management, "q", 5)
                assert ([one.body for one in seen.messages], seen.note) == (BODIES, "")
            assert await drain(client) == BODIES

    run_scenario(steps())


def test_without_management_and_without_a_queue_it_says_so() -> None:
    async def steps() -> None:
        async with scene("4.3", 1) as (client, management):
            with pytest.raises(PeekRefused, match="only the management API says"):
                await peek(client, None, "q", 1)
            with pytest.raises(PeekRefused, match="there is no queue missing"):
                await peek(client, management, "missing", 1)
            assert await ready(client, "q") == 1

    run_scenario(steps())


def test_an_empty_queue_has_nothing_to_see() -> None:
    async def steps() -> None:
        async with scene("4.3", 0) as (client, management):
            seen = await peek(client, management, "q", 5)
            assert (seen.messages, seen.left, seen.note) == ((), 0, "")

    run_scenario(steps())
