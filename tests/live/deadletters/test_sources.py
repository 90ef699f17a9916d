"""Dead-letter queues found on real brokers by what the management API says."""

import pytest
from rig.brokers import Vhost

from redrive.client import Client
from redrive.deadletters.collect.sources import SourceSelection, select_from_broker
from redrive.management import Management, parse_management_url
from tests.unit.client.scenario import run_scenario


@pytest.mark.live
def test_a_brokers_dead_letter_queues_are_found_and_its_wait_queues_are_not(vhost: Vhost) -> None:
    queues: dict[str, dict[str, str | int]] = {
        "orders": {},
        "orders.dlq": {"x-queue-type": "quorum", "x-delivery-limit": 50},
        "orders.wait.30s": {"x-message-ttl": 30_000, "x-dead-letter-exchange": ""},
        "retry.dead": {"x-message-ttl": 30_000, "x-dead-letter-exchange": ""},
        "billing_error": {},
        "log.dlq": {"x-queue-type": "stream"},
    }

    async def steps() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            for name, arguments in queues.items():
                await channel.declare_queue(name, arguments=arguments)
        async with Management(parse_management_url(vhost.management_url)) as management:
            selected = select_from_broker(
                [queue async for queue in management.queues(vhost.name)],
                policies=await management.policy_matcher(vhost.name),
            )
        found = {one.dlq: (one.queue_type, one.delivery_limit) for one in selected.sources}
        assert found == {"orders.dlq": ("quorum", 50), "billing_error": ("classic", None)}
        assert {(one.code, one.address.split(" (")[0]) for one in selected.refusals} == {
            ("live-queue", "queue retry.dead"),
            ("stream", "queue log.dlq"),
        }

    run_scenario(steps())


@pytest.mark.live
def test_a_main_queue_whose_consumers_are_away_is_not_taken_for_a_dead_letter_queue(vhost: Vhost) -> None:
    async def steps() -> None:
        async with Client(vhost.amqp_url) as client:
            channel = await client.channel()
            await channel.declare_exchange("shop", "topic")
            await channel.declare_exchange("orders.dlx", "fanout")
            await channel.declare_queue("orders", arguments={"x-dead-letter-exchange": "orders.dlx"})
            await channel.declare_queue("mail")
            await channel.declare_queue("graveyard")
            await channel.bind_queue("mail", "shop", "mail.#")
            await channel.bind_queue("graveyard", "orders.dlx", "")
        async with Management(parse_management_url(vhost.management_url)) as management:
            infos = [queue async for queue in management.queues(vhost.name)]
            book = await management.policy_matcher(vhost.name)
            bindings = await management.bindings(vhost.name)

            def select(*patterns: str, forced: bool = False) -> SourceSelection:
                return select_from_broker(infos, policies=book, patterns=patterns, forced=forced, bindings=bindings)

        for forced in (False, True):
            selected = select("*", forced=forced)
            assert [one.dlq for one in selected.sources] == ["graveyard"]
            assert {one.address.split(" (")[0] for one in selected.refusals} == {"queue orders", "queue mail"}
        assert [one.dlq for one in select("mail", forced=True).sources] == ["mail"]

    run_scenario(steps())
