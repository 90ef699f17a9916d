"""Whether a queue has a dead-letter exchange is read over AMQP; nothing is declared or changed by that."""

import pytest

from redrive.client import Client, NotFound
from redrive.embedded import EmbeddedBroker
from redrive.inspection import ArgumentsUnreadable, find_dead_letter_exchange
from tests.unit.client.scenario import run_scenario
from tests.unit.inspection.queue_scene import DLX, QUEUES, check_vanishing


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_what_the_arguments_name_is_found(profile: str) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client:
            channel = await client.channel()
            for name, (settings, _) in QUEUES.items():
                await channel.declare_queue(name, **settings)
            found = {name: await find_dead_letter_exchange(client, name) for name in QUEUES}
            assert found == {name: exchange for name, (_, exchange) in QUEUES.items()}
            for name, (settings, _) in QUEUES.items():
                await channel.declare_queue(name, **settings)  # refused if anything were different now

    run_scenario(scenario())


def test_a_missing_queue_is_not_found_and_not_declared() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            with pytest.raises(NotFound):
                await find_dead_letter_exchange(client, "missing")
            assert broker.depths() == {}

    run_scenario(scenario())


def test_a_queue_with_more_arguments_than_declares_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.inspection.queue_arguments._DECLARES_MAX", 1)

    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            await (await client.channel()).declare_queue("orders", durable=False, arguments={DLX: "dead"})
            with pytest.raises(ArgumentsUnreadable, match="the settings of queue orders can't be told apart") as raised:
                await find_dead_letter_exchange(client, "orders")
            assert raised.value.code == 406

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_a_queue_deleted_meanwhile_is_not_declared_again(profile: str) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker(profile) as broker:
            await check_vanishing(broker.url)
            assert broker.depths() == {}

    run_scenario(scenario())
