"""Operations whose target is an exchange: one that does not exist, and one that could not be asked for."""

import pytest

from redrive.records import RedriveTarget
from tests.unit.deadletters.memory_store import redrive_of
from tests.unit.deadletters.redriver_stage import RedriverStage, play


def test_a_connection_lost_before_an_exchange_was_looked_up_refuses_nothing() -> None:
    """Whether the exchange exists is not known then: the send finds out, and no letter is refused for it."""

    async def scenario(on: RedriverStage) -> None:
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
def test_letters_for_an_exchange_that_does_not_exist_are_refused_and_no_other_is_harmed(
    name: str, reason: str | None
) -> None:
    async def scenario(on: RedriverStage) -> None:
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
