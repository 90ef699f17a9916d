"""Targets before a redrive: what refuses it, what is only said."""

from dataclasses import replace

import pytest

from redrive.client import Client
from redrive.core import Severity
from redrive.deadletters.redrive.preflight import (
    Preflight,
    QueueLimits,
    TargetHealth,
    TargetRefused,
    check_targets,
    judge,
    judge_for_witness,
)
from redrive.embedded import EmbeddedBroker
from redrive.records import (
    RedriveTarget,
)
from tests.unit.client.scenario import run_scenario


async def looked_at(queues: dict[str, int], target: RedriveTarget, limits: QueueLimits | None = None) -> Preflight:
    """On a broker with `orders` (2 ready, no consumer), `busy` (a consumer), and the exchange `retry.orders`."""

    async def limits_of(vhost: str, queue: str) -> QueueLimits | None:
        assert (vhost, queue) == ("/", "orders")
        return limits

    async with EmbeddedBroker() as broker, Client(broker.url) as client:
        channel = await client.channel()
        for name in ("orders", "busy"):
            await channel.declare_queue(name)
        await channel.declare_exchange("retry.orders")
        publisher = await client.publisher()
        for _ in range(2):
            await publisher.publish("", "orders", b"x")
        await client.consume("busy", lambda _: None)
        return await check_targets(client, queues, target, limits_of=limits_of if limits else None)


def codes(preflight: Preflight) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.code) for finding in preflight.findings]


def test_a_missing_queue_refuses_and_is_named() -> None:
    async def scenario() -> None:
        preflight = await looked_at({"orders": 1, "gone": 4}, RedriveTarget())
        assert codes(preflight) == [(Severity.WARNING, "no-consumers"), (Severity.ERROR, "target-missing")]
        with pytest.raises(TargetRefused, match="queue gone: it does not exist; declare it first, or name another"):
            preflight.require()

    run_scenario(scenario())


def test_the_backlog_and_the_consumers_of_a_queue_are_reported() -> None:
    async def scenario() -> None:
        preflight = await looked_at({"orders": 5, "busy": 2}, RedriveTarget())
        assert preflight.targets == (
            TargetHealth(exchange="", routing_key="orders", copies=5, exists=True, messages_ready=2, consumers=0),
            TargetHealth(exchange="", routing_key="busy", copies=2, exists=True, messages_ready=0, consumers=1),
        )
        assert codes(preflight) == [(Severity.WARNING, "no-consumers")]
        preflight.require()

    run_scenario(scenario())


def test_an_exchange_must_exist_and_has_no_counts() -> None:
    async def scenario() -> None:
        preflight = await looked_at(
            {"orders": 1, "busy": 1}, RedriveTarget(exchange="retry.{queue}", routing_key="retry")
        )
        assert [(target.address, target.exists) for target in preflight.targets] == [
            ("exchange retry.orders with key retry", True),
            ("exchange retry.busy with key retry", False),
        ]
        assert codes(preflight) == [(Severity.ERROR, "target-missing")]

    run_scenario(scenario())


def test_dead_letters_of_an_unknown_queue_need_a_target() -> None:
    async def scenario() -> None:
        preflight = await looked_at({"": 3}, RedriveTarget())
        with pytest.raises(TargetRefused, match="nobody knows the queue they failed in; name a target"):
            preflight.require()

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (QueueLimits(length_max=7, overflow="drop-head"), []),
        (QueueLimits(length_max=6, overflow="reject-publish"), [(Severity.WARNING, "target-full")]),
        (QueueLimits(length_max=6, overflow="drop-head"), [(Severity.ERROR, "target-overflows")]),
        (QueueLimits(length_max=None), []),
    ],
)
def test_a_queue_too_small_for_all_refuses_where_it_would_push_out_others(
    limits: QueueLimits, expected: list[tuple[Severity, str]]
) -> None:
    async def scenario() -> None:
        preflight = await looked_at({"orders": 5}, RedriveTarget(), limits)
        assert codes(preflight) == [(Severity.WARNING, "no-consumers"), *expected]

    run_scenario(scenario())


def test_a_long_backlog_is_reported() -> None:
    health = TargetHealth(
        exchange="", routing_key="q", copies=1, exists=True, messages_ready=123_456, consumers=1, limits=None
    )
    assert [finding.text for finding in judge(health)] == [
        "queue q: 123,456 messages are ready there already; ours go behind them"
    ]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (QueueLimits(ttl_ms=60_000), ["target-expires"]),
        (QueueLimits(ttl_ms=60_000, is_dead_lettered=True), []),
        (QueueLimits(), []),
    ],
)
def test_a_target_whose_messages_expire_and_are_lost_is_reported(limits: QueueLimits, said: list[str]) -> None:
    health = TargetHealth(exchange="", routing_key="orders", copies=1, exists=True, consumers=1, limits=limits)
    assert [one.code for one in judge(health)] == said


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx", "drop-head"])
def test_a_target_that_rejects_publishes_when_full_gets_no_witness(overflow: str) -> None:
    limits = QueueLimits(length_max=100, overflow=overflow)
    health = TargetHealth(exchange="", routing_key="orders", copies=1, exists=True, consumers=1, limits=limits)
    free = replace(health, routing_key="mail", limits=QueueLimits())
    found = judge_for_witness(Preflight(targets=(health, free), findings=()))
    expected = [] if overflow == "drop-head" else [("witness-unsure", "queue orders")]
    assert [(one.code, one.address) for one in found.errors] == expected
