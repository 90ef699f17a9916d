"""Whether a queue has a dead-letter exchange is seen over AMQP, and the question makes and changes nothing."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from redrive.client import Channel, Client, NotFound, PreconditionFailed
from redrive.embedded import EmbeddedBroker
from redrive.inspection import ArgumentsUnreadable, find_dead_letter_exchange
from tests.unit.client.scenario import run_scenario

DLX = "x-dead-letter-exchange"
QUEUES: dict[str, tuple[dict[str, Any], str | None]] = {
    "plain": ({}, None),
    "with": ({"arguments": {DLX: "dead"}}, "dead"),
    "to the default exchange": ({"arguments": {DLX: "", "x-dead-letter-routing-key": "parked"}}, ""),
    "named none": ({"arguments": {DLX: "none"}}, "none"),
    "quorum": ({"arguments": {"x-queue-type": "quorum"}}, None),
    "quorum with": ({"arguments": {"x-queue-type": "quorum", DLX: "dead", "x-delivery-limit": 3}}, "dead"),
    "not durable": ({"durable": False, "auto_delete": True, "arguments": {DLX: "dead"}}, "dead"),
    "many": (
        {
            "arguments": {
                "x-expires": 100_000,
                "x-message-ttl": 3000,
                "x-max-length": 4,
                "x-overflow": "reject-publish",
                "x-max-priority": 4,
                "x-single-active-consumer": True,
                "x-dead-letter-routing-key": "elsewhere",
                DLX: "dead",
            }
        },
        "dead",
    ),
}


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


def test_a_missing_queue_is_said_to_be_missing_and_not_made() -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            with pytest.raises(NotFound):
                await find_dead_letter_exchange(client, "missing")
            assert broker.depths() == {}

    run_scenario(scenario())


def test_a_queue_with_more_settings_than_are_asked_about_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.inspection.queue_arguments._DECLARES_MAX", 1)

    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            await (await client.channel()).declare_queue("orders", durable=False, arguments={DLX: "dead"})
            with pytest.raises(ArgumentsUnreadable, match="the settings of queue orders can't be told apart") as raised:
                await find_dead_letter_exchange(client, "orders")
            assert raised.value.code == 406

    run_scenario(scenario())


class _Vanishing(Client):
    """Whose queues are deleted as soon as they were seen."""

    async def channel(self) -> Channel:
        channel = await super().channel()
        declare: Callable[..., Awaitable[Any]] = channel.declare_queue

        async def declare_queue(name: str, *, passive: bool = False, **settings: Any) -> Any:
            answer = await declare(name, passive=passive, **settings)
            if passive:
                await channel.delete_queue(name)
            return answer

        channel.declare_queue = declare_queue  # type: ignore[method-assign, assignment]
        return channel


async def check_vanishing(url: str) -> None:
    """A queue that is deleted after it was seen is not made again by the question."""
    async with _Vanishing(url) as client:
        await (await client.channel()).declare_queue("plain")
        with pytest.raises((NotFound, PreconditionFailed)):
            await find_dead_letter_exchange(client, "plain")
        with pytest.raises(NotFound):
            await (await client.channel()).declare_queue("plain", passive=True)


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
def test_a_queue_that_goes_while_it_is_asked_is_not_made_again(profile: str) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker(profile) as broker:
            await check_vanishing(broker.url)
            assert broker.depths() == {}

    run_scenario(scenario())
