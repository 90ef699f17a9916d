"""A queue that is deleted while its messages are in hand, on real brokers: whatever fails then is parked by a copy."""

import asyncio
from collections import Counter

import pytest
from rig.brokers import Vhost

from redrive.core import Park, Requeue
from redrive.runtime import Message
from tests.live.runtime.faults_shop import NoSuchCustomer, open_shop, play

DECLARED = """
exchanges: {shop: topic, others: topic}
queues:
  ladder: {from: {shop: ["ladder.#"]}, retry: [10m]}
  per-queue: {from: {shop: ["per.#"]}, retry: {shape: per-queue, delays: [500ms]}}
  quorum: {from: {shop: ["quorum.#"]}, retry: {shape: quorum, delays: [500ms]}}
  requeue: {from: {shop: ["requeue.#"]}, retry: {shape: requeue}}
  literal: {from: {shop: ["literal.#"]}, retry: {shape: requeue, requeue: nack, park: reject}}
  tiered: {from: {others: ["tiered.*"]}, retry: {shape: tiered, delays: [500ms], park: reject}}
"""
DEAD_LETTERS = {
    "ladder": "ladder.parked",
    "per-queue": "per-queue.dlq",
    "quorum": "quorum.dlq",
    "requeue": "requeue.dlq",
    "literal": "literal.dlq",
    "tiered": "others.dlq",
}
FATES = {"fails": "late-failure", "parks": "late-park", "requeues": "late-requeue", "ends well": "late"}


@pytest.mark.live(versions=("3.10", "4.0", "4.3"))
@pytest.mark.parametrize("known", [True, False])
def test_a_message_that_fails_after_its_queue_was_deleted_is_among_the_dead_letters(vhost: Vhost, known: bool) -> None:
    """`known`: the consumer was told that there is no such queue any more, before the handlers end."""

    async def scenario() -> None:
        shop = await open_shop(vhost.amqp_url, DECLARED)
        gone = asyncio.Event()
        errors = {"late-failure": NoSuchCustomer("late"), "late-park": Park("late"), "late-requeue": Requeue(0)}

        async def late(message: Message) -> None:
            await gone.wait()
            if (error := errors.get(message.body.decode())) is not None:
                raise error

        shop.acts |= dict.fromkeys(FATES.values(), late)
        async with shop.open():
            for queue in DEAD_LETTERS:
                await shop.publish_all(queue, {f"{queue} {name}": fate for name, fate in FATES.items()})
            await shop.until(lambda: len(shop.runs) == len(DEAD_LETTERS) * len(FATES))
            await shop.delete(*DEAD_LETTERS)
            await shop.until(lambda: shop.journal.count("consumer.cancelled") == len(DEAD_LETTERS))
            if known:
                await shop.until(
                    lambda: {one["queue"] for one in shop.journal.of("consumer.failed")} == DEAD_LETTERS.keys()
                )
            gone.set()
            await shop.until(lambda: shop.journal.count("runtime.decided") == 3 * len(DEAD_LETTERS))
        await shop.declare()
        found = await shop.census()
        # A ladder's wait queue keeps what waits in it until the queue is there again: if that is known to be gone.
        waiting = found.pop("ladder.wait.10m", Counter())
        assert waiting in ([Counter(["ladder fails"])] if known else [Counter(["ladder fails"]), Counter()])
        found["ladder.parked"] += waiting
        assert found == {
            place: Counter(f"{queue} {name}" for name in ("fails", "parks", "requeues"))
            for queue, place in DEAD_LETTERS.items()
        }
        assert shop.journal.of("runtime.lost") == []
        assert "yes" not in {one["comes_again"] for one in shop.journal.of("runtime.stale")}

    play(scenario, timeout_s=120)
