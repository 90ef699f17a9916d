"""Small windows of collecting and redriving that a changed line once passed through unnoticed."""

import asyncio

import pytest

from redrive.client import Client, PreconditionFailed
from redrive.deadletters.collect.batches import BatchTaker
from redrive.deadletters.redrive.witness import Witness, witness_queue
from redrive.embedded import EmbeddedBroker
from redrive.records import RedriveTarget
from redrive.testing import run_in_virtual_time
from tests.unit.deadletters.collecting_scene import numbered, park
from tests.unit.deadletters.memory_store import redrive_of
from tests.unit.deadletters.runner_stage import RunnerStage, play


def test_one_ack_settles_the_whole_batch_and_nothing_of_it_comes_again() -> None:
    """An ack of its first message only would leave the others to be stored a second time."""

    async def scenario() -> None:
        async with (
            EmbeddedBroker(listen=False) as broker,
            Client(broker.url, dial=broker.dial) as client,
        ):
            channel = await client.channel()
            await channel.declare_queue("orders.parked")
            await park(client, "orders.parked", numbered(5))
            taker = BatchTaker(client, "orders.parked")
            taken = await taker.take(at_least=0, idle_s=1.0, stop=asyncio.Event())
            assert [one.body for one in taken.deliveries] == [b"body %d" % number for number in range(5)]
            await park(client, "orders.parked", numbered(1, start=5))  # came later: it is not in the batch
            taken.ack()
            await taken.wait_settled()
            await taken.close()
            left = await channel.get_message("orders.parked")
            assert left is not None
            assert (left.body, left.redelivered) == (b"body 5", False)
            assert await channel.get_message("orders.parked") is None

    run_in_virtual_time(scenario())


def test_the_witness_queue_is_a_quorum_queue_and_lasts() -> None:
    """It must have its copies after a restart of the broker, and on a cluster after the loss of a node."""

    async def scenario(on: RunnerStage) -> None:
        await Witness(on.client, "op1").declare()
        await Witness(on.client, "op1").declare()
        channel = await on.client.channel()
        with pytest.raises(PreconditionFailed, match="x-queue-type"):
            await channel.declare_queue(witness_queue("op1"), arguments={"x-queue-type": "classic"})
        await park(on.client, witness_queue("op1"), numbered(1))
        await on.broker.restart()
        await on.client.connection()
        assert on.broker.depths()[witness_queue("op1")] == 1

    play(scenario)


def test_a_connection_lost_before_an_exchange_was_asked_for_refuses_nothing() -> None:
    """Whether the exchange exists is not known then: the send finds out, and no letter is refused for it."""

    async def scenario(on: RunnerStage) -> None:
        channel = await on.client.channel()
        await channel.declare_exchange("domain.events", "topic")
        await channel.bind_queue("orders", "domain.events", "orders.#")
        await channel.close()
        ids = await on.letters(4)
        cuts = 0

        async def cut(name: str) -> None:
            nonlocal cuts
            if name == "taken" and not cuts:
                cuts += 1
                await on.broker.restart()

        target = RedriveTarget(exchange="domain.events", routing_key="orders.again")
        operation = await on.begin(redrive_of(*ids, target=target))
        done = await on.redriver(pause_at=cut).run(operation.id)
        assert cuts == 1
        assert (done.sent, done.refused) == (4, 0)
        assert sorted(set(await on.ids())) == sorted(ids)

    play(scenario)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no.such", "the exchange no.such does not exist"),
        ("amq.default", "the exchange amq.default does not exist"),
        ("two words", "the exchange two words does not exist"),
        ("é" * 127 + "x", None),
        ("é" * 128, "is longer than 255 bytes"),
    ],
    ids=["missing", "reserved", "odd", "longest", "too long"],
)
def test_a_doubtful_exchange_refuses_its_letters_and_harms_no_neighbour(name: str, reason: str | None) -> None:
    async def scenario(on: RunnerStage) -> None:
        if reason is None:
            channel = await on.client.channel()
            await channel.declare_exchange(name, "fanout")
            await channel.bind_queue("orders", name)
        ids = await on.letters(2)
        operation = await on.begin(redrive_of(*ids, target=RedriveTarget(exchange=name, routing_key="orders")))
        done = await on.redriver().run(operation.id)
        if reason is None:
            assert (done.sent, done.refused, await on.ids()) == (2, 0, list(ids))
            return
        assert (done.sent, done.refused, done.in_doubt) == (0, 2, 0)
        assert all(reason in on.store.rows[id].reason for id in ids)
        assert set(on.store.statuses().values()) == {"pending"}

    play(scenario)
