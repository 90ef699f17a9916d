"""Queues that are named, where the management API can't say what they are: the broker itself is asked for each."""

from pathlib import Path

from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.wiring import CollectRequest, find_connection_settings, select_sources
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import numbered, park


def test_an_exclusive_queue_of_another_connection_does_not_hide_those_named_after_it(tmp_path: Path) -> None:
    async def steps() -> None:
        async with (
            EmbeddedBroker() as broker,
            Client(broker.url) as somebody,
            Client(broker.url) as client,
        ):
            channel = await somebody.channel()
            await channel.declare_queue("reports.dlq", exclusive=True)
            await channel.declare_queue("orders.dlq")
            await park(client, "orders.dlq", numbered(3))
            place = find_connection_settings(
                url=broker.url,
                management_url="http://127.0.0.1:1",
                database=f"sqlite:///{tmp_path}/dead-letters.db",
                environment={},
            )
            request = CollectRequest(patterns=("reports.dlq", "orders.dlq"))
            async with place.management() as management:
                selected = await select_sources(place, client, management, request)
            assert selected.depths == {"orders.dlq": 3}

    run_scenario(steps())
