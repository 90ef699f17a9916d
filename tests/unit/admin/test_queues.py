"""`/api/v1/queues`: without a broker the stored counts are shown, within the caller's queues."""

import pytest

from redrive.admin import Services
from redrive.admin.schemas.queues import Queue
from redrive.records import Role
from redrive.wiring import KnownQueue, KnownQueues
from tests.unit.admin.conftest import ClientFor, PutLetter, Run

QUEUES = "/api/v1/queues"


def test_without_a_broker_the_stored_counts_are_told_and_why_no_depths(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        await put_letter()
        await put_letter(queue="payments", dlq="payments.parked", group_id="cards")
        client = await client_for(Role.VIEWER)
        told = (await client.get(QUEUES)).json()
        assert [(one["dlq"], one["messages"], one["stored"]["pending"]) for one in told["queues"]] == [
            ("orders.parked", None, 1),
            ("payments.parked", None, 1),
        ]
        assert told["problem"]
        assert told["worker"] == "off"
        limited = await client_for(Role.VIEWER, queues=("orders*",))
        assert [one["dlq"] for one in (await limited.get(QUEUES)).json()["queues"]] == ["orders.parked"]

    run(scenario())


def test_a_limited_token_sees_the_dead_letter_queues_whose_letters_it_has(
    run: Run, client_for: ClientFor, put_letter: PutLetter, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file too, and before anything of them is stored; by their names, not by what letters say."""
    there = [("orders.dlq", None), ("dlq.orders", None), ("orders_error", "payments"), ("letters", "orders")]
    there += [("payments.dlq", None), ("payments_error", None), ("orders", None)]

    async def queues() -> KnownQueues:
        found = [KnownQueue(vhost="/", dlq=dlq, known_queue=known) for dlq, known in there]
        return KnownQueues(address="amqp://x", problem=None, queues=tuple(found))

    async def scenario() -> None:
        stored = await put_letter(queue="orders", dlq="orders.dlq")
        await put_letter(queue="orders", dlq="payments.dlq", group_id="claimed")
        client = await client_for(Role.ADMIN, queues=("orders",))
        told = [one["dlq"] for one in (await client.get(QUEUES)).json()["queues"]]
        assert told == ["orders.dlq"]
        assert [one["id"] for one in (await client.get("/api/v1/messages")).json()["messages"]] == [stored.id]
        monkeypatch.setattr(services.broker, "queues", queues)
        expected = ["orders.dlq", "dlq.orders", "letters", "orders"]
        assert [one["dlq"] for one in (await client.get(QUEUES)).json()["queues"]] == expected
        assert [one["queue"] for one in (await client.get("/admin/dlq/queues")).json()["queues"]] == expected

    run(scenario())


def test_every_figure_of_a_queue_is_under_its_own_name() -> None:
    known = KnownQueue(
        dlq="orders.parked",
        vhost="shop",
        known_queue="orders",
        messages=7,
        consumers=2,
        stored={"pending": 3, "failed": 1},
        stopped="a person stopped it",
    )
    told = Queue.of(known, collecting="").model_dump()
    assert told == {
        "dlq": "orders.parked",
        "vhost": "shop",
        "queue": "orders",
        "messages": 7,
        "consumers": 2,
        "stored": {**dict.fromkeys(told["stored"], 0), "pending": 3, "failed": 1},
        "stopped": "a person stopped it",
        "collecting": "yes",
    }
    assert Queue.of(known, collecting="the lease is another's").collecting == "the lease is another's"
    assert Queue.of(known, collecting=None).collecting is None
