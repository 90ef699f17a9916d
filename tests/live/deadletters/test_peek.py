"""Peeking on real brokers: a hundred looks destroy nothing and move nothing, or there is no look at all."""

import pytest
from rig.brokers import Vhost

from redrive.client import Client
from redrive.deadletters.actions.peek import PeekRefused, peek
from redrive.management import Management, parse_management_url
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import numbered, park, ready

BODIES = [b"body %d" % number for number in range(8)]
LOOKS = 100


async def drain(client: Client, queue: str) -> list[bytes]:
    channel = await client.channel()
    found = []
    while (got := await channel.get_message(queue, no_ack=True)) is not None:
        found.append(got.body)
    return found


def look(vhost: Vhost, arguments: dict[str, str | int], limit: int, *, policy_limit: int | None = None) -> str | None:
    """A hundred looks at a queue of eight; the refusal if there was one. Afterwards all is as it was."""
    refusal: list[str] = []
    if policy_limit is not None:
        body = {"pattern": "^q$", "definition": {"delivery-limit": policy_limit}, "apply-to": "queues"}
        vhost.management.put("policies", vhost.name, "limit", body=body)

    async def steps() -> None:
        async with (
            Client(vhost.amqp_url) as client,
            Management(parse_management_url(vhost.management_url)) as management,
        ):
            channel = await client.channel()
            await channel.declare_queue("q", arguments=arguments)
            await park(client, "q", numbered(8))
            for _ in range(LOOKS):
                try:
                    seen = await peek(client, management, "q", limit)
                except PeekRefused as error:
                    refusal.append(str(error))
                    continue
                assert [one.body for one in seen.messages] == BODIES[:limit]
            assert await ready(client, "q") == 8
            assert await drain(client, "q") == BODIES

    run_scenario(steps(), timeout_s=120)
    assert len(refusal) in (0, LOOKS)
    return refusal[0] if refusal else None


@pytest.mark.live
def test_a_classic_queue_is_looked_at(vhost: Vhost) -> None:
    assert look(vhost, {"x-queue-type": "classic"}, 3) is None


@pytest.mark.live
def test_a_default_quorum_queue_is_looked_at_only_where_looks_are_not_counted(vhost: Vhost) -> None:
    refusal = look(vhost, {"x-queue-type": "quorum"}, 3)
    match vhost.profile:
        case "3.10":
            assert refusal is not None
            assert "go behind the others; look at all of them (--limit 8), or collect it" in refusal
        case "4.0":
            assert refusal is not None
            assert "counts each look, and drops a message after 20 of them; collect it" in refusal
        case _:
            assert refusal is None


@pytest.mark.live
def test_a_quorum_queue_of_a_million_deliveries_is_looked_at(vhost: Vhost) -> None:
    assert look(vhost, {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}, 3) is None


@pytest.mark.live(versions=("3.10",))
def test_all_of_a_quorum_queue_without_limit_is_looked_at_and_keeps_its_order(vhost: Vhost) -> None:
    assert look(vhost, {"x-queue-type": "quorum"}, 8) is None


@pytest.mark.live(versions=("4.0", "4.3"))
def test_all_of_an_unlimited_quorum_queue_is_looked_at_and_keeps_its_order(vhost: Vhost) -> None:
    assert look(vhost, {"x-queue-type": "quorum", "x-delivery-limit": -1}, 8) is None


@pytest.mark.live(versions=("3.10", "4.0"))
def test_a_limit_that_a_policy_sets_counts_from_its_first_second(vhost: Vhost) -> None:
    refusal = look(vhost, {"x-queue-type": "quorum"}, 3, policy_limit=6)
    assert refusal is not None
    assert "drops a message after 6 of them" in refusal


@pytest.mark.live(versions=("3.10",))
def test_the_limit_that_3_10_takes_for_zero_is_refused(vhost: Vhost) -> None:
    refusal = look(vhost, {"x-queue-type": "quorum", "x-delivery-limit": -1}, 8)
    assert refusal is not None
    assert "drops a message the first time it is requeued" in refusal
