"""The management client on real brokers."""

import asyncio

import pytest
from rig.brokers import Vhost

from redrive.client import Client
from redrive.management import Management, ManagementDenied, parse_management_url
from tests.unit.client.scenario import run_scenario


async def declare(vhost: Vhost, arguments: dict[str, dict[str, str | int]]) -> None:
    async with Client(vhost.amqp_url) as client:
        channel = await client.channel()
        for name, one in arguments.items():
            await channel.declare_queue(name, arguments=one)


@pytest.mark.live
def test_version_queues_and_policies_are_read_as_they_are(vhost: Vhost) -> None:
    async def steps() -> None:
        await declare(vhost, {"b.dlq": {"x-queue-type": "quorum", "x-delivery-limit": 50}, "a.dlq": {}})
        definition = {"delivery-limit": 7, "max-length": 9}
        body = {"pattern": "dlq$", "definition": definition, "apply-to": "queues", "priority": 3}
        vhost.management.put("policies", vhost.name, "limits", body=body)
        async with Management(parse_management_url(vhost.management_url)) as management:
            assert await management.version() == vhost.version
            found = {queue.name: queue async for queue in management.queues(vhost.name)}
            assert {name: queue.type for name, queue in found.items()} == {"a.dlq": "classic", "b.dlq": "quorum"}
            book = await management.policy_matcher(vhost.name)
            assert found["b.dlq"].delivery_limit(book) == 7
            assert found["b.dlq"].max_length(book) == 9
            one = await management.queue(vhost.name, "b.dlq")
            assert one is not None
            assert (one.type, one.delivery_limit(book), one.durable) == ("quorum", 7, True)
            assert await management.queue(vhost.name, "missing") is None
            # Statistics come seconds later.
            async with asyncio.timeout(60):
                while one is None or one.messages is None or one.policy is None:
                    await asyncio.sleep(0.5)
                    one = await management.queue(vhost.name, "b.dlq")
            assert (one.messages, one.messages_ready, one.consumers, one.policy) == (0, 0, 0, "limits")
            assert one.delivery_limit() == 7

    run_scenario(steps(), timeout_s=90)


@pytest.mark.live
def test_a_wrong_password_is_one_sentence(vhost: Vhost) -> None:
    async def steps() -> None:
        endpoint = parse_management_url(vhost.management_url, user="guest", password="wrong")
        async with Management(endpoint) as management:
            with pytest.raises(ManagementDenied, match="asked as user guest, refuses the password"):
                await management.version()

    run_scenario(steps())


@pytest.mark.live(versions=("4.3",))
def test_many_queues_come_page_by_page(vhost: Vhost) -> None:
    async def steps() -> None:
        names = [f"q{number:04}.dlq" for number in range(620)]
        await declare(vhost, {name: {} for name in names})
        async with Management(parse_management_url(vhost.management_url)) as management:
            assert [queue.name async for queue in management.queues(vhost.name)] == names

    run_scenario(steps(), timeout_s=90)
