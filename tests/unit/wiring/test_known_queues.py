"""A dead letter that a collector has stored and not yet acked counts as stored, and not as in its queue too."""

import asyncio
from pathlib import Path

from redrive.client import Client
from redrive.deadletters.collect.sources import Source
from redrive.embedded import EmbeddedBroker, ManagementServer
from redrive.wiring import find_connection_settings, known_queues
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import make_collector, numbered, park, sqlite_store

DLQ = "orders.dlq"


def test_a_message_that_is_stored_and_not_acked_yet_counts_once(tmp_path: Path) -> None:
    counted: list[tuple[int | None, int]] = []

    async def steps() -> None:
        async with (
            EmbeddedBroker() as broker,
            ManagementServer(broker) as management,
            Client(broker.url) as client,
            sqlite_store(tmp_path) as store,
        ):
            place = find_connection_settings(
                url=broker.url,
                management_url=management.url,
                database=f"sqlite:///{tmp_path}/dead-letters.db",
                environment={},
            )

            async def count(at: str) -> None:
                found = await known_queues(place, store)
                assert found.problem is None
                (one,) = [queue for queue in found.queues if queue.dlq == DLQ]
                counted.append((one.messages, sum(one.stored.values())))

            async def pause_at(name: str) -> None:
                if name == "stored":
                    await count(name)

            channel = await client.channel()
            await channel.declare_queue(DLQ)
            await channel.close()
            await park(client, DLQ, numbered(5))
            await count("before")
            source = Source(vhost="/", dlq=DLQ, queue_type="classic")
            await make_collector(client, store, [source], pause_at=pause_at).run(asyncio.Event(), once=True)
            await count("after")

    run_scenario(steps())
    assert counted[0] == (5, 0)
    assert counted[-1] == (0, 5)
    assert {(messages or 0) + stored for messages, stored in counted} == {5}
    assert len(counted) > 2


def test_what_the_management_api_has_not_noticed_leaving_is_not_counted_again(tmp_path: Path) -> None:
    """A collector has come and gone, and the management API still tells of before: there is nobody on the queue."""

    async def steps() -> None:
        async with (
            EmbeddedBroker() as broker,
            EmbeddedBroker() as before,
            ManagementServer(before) as late,
            Client(broker.url) as client,
            Client(before.url) as client_before,
            sqlite_store(tmp_path) as store,
        ):
            for one in (client, client_before):
                channel = await one.channel()
                await channel.declare_queue(DLQ)
                await channel.close()
                await park(one, DLQ, numbered(5))
            source = Source(vhost="/", dlq=DLQ, queue_type="classic")
            await make_collector(client, store, [source]).run(asyncio.Event(), once=True)
            place = find_connection_settings(
                url=broker.url,
                management_url=late.url,
                database=f"sqlite:///{tmp_path}/dead-letters.db",
                environment={},
            )
            (counted,) = [queue for queue in (await known_queues(place, store)).queues if queue.dlq == DLQ]
            assert (counted.messages, counted.consumers, sum(counted.stored.values())) == (0, 0, 5)

    run_scenario(steps())
