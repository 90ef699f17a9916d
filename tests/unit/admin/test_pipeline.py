"""The file pipeline's endpoints without a network: known queues only, peeks that may be refused, targets, limits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redrive.admin import Services, SharedBroker
from redrive.admin.compat import pipeline
from redrive.deadletters import PeekedMessage, PeekRefused, PeekResult
from redrive.records import Role, Status
from redrive.stores import Store
from redrive.wire import Properties
from redrive.wiring import KnownQueue, KnownQueues, find_connection_settings
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, app_on

DLQ = "q.thumbnail.dlq"
PEEK = f"/admin/dlq/queues/{DLQ}/messages"
REDRIVE = f"/admin/dlq/queues/{DLQ}/re-drive"


class FakeBroker(SharedBroker):
    """A broker that knows queues and what lies on them; everything else of the broker is nowhere."""

    known = KnownQueues(address="nowhere", queues=(KnownQueue(vhost="/", dlq=DLQ, known_queue="q.thumbnail"),))
    seen: PeekResult | PeekRefused = PeekResult(messages=(), left=0)

    async def queues(self) -> KnownQueues:
        return self.known

    async def peek(self, queue: str, limit: int) -> PeekResult:
        if isinstance(self.seen, PeekRefused):
            raise self.seen
        return self.seen


@pytest.fixture
def shared(services: Services, run: Run) -> Iterator[FakeBroker]:
    made = FakeBroker(services.connections, services.store, patience_s=0.5)
    yield made
    run(made.close())


@pytest.fixture
def app(services: Services, shared: FakeBroker, tmp_path: Path) -> Any:
    """The API with that broker, and the document's own file."""
    file = Path(__file__).parents[3] / "examples" / "file-pipeline" / "redrive.yaml"
    place = find_connection_settings(
        url=services.connections.url.value, database="sqlite://", file=str(file), environment={}
    )
    return app_on(replace(services, broker=shared, connections=place))


def on_queue(*names: str, left: int = 0) -> PeekResult:
    messages = tuple(
        PeekedMessage(
            place=place,
            exchange="dlq.q.thumbnail",
            routing_key="parking",
            redelivered=True,
            properties=Properties.of(message_id=name).raw,
            body=b'{"id": 1}',
        )
        for place, name in enumerate(names, start=1)
    )
    return PeekResult(messages=messages, left=left)


def test_what_is_stored_is_shown_before_what_lies_on_the_queue(
    run: Run, client_for: ClientFor, put_letter: PutLetter, shared: FakeBroker
) -> None:
    async def scenario() -> None:
        first = await put_letter(queue="q.thumbnail", dlq=DLQ, message_id="a", body=b"{}")
        await put_letter(queue="q.thumbnail", dlq=DLQ, message_id="gone", status=Status.RESOLVED)
        await put_letter(queue="other", dlq="other.dlq", message_id="other")
        shared.seen = on_queue("b", "c", "d", left=7)
        client = await client_for(Role.ADMIN)
        told = (await client.get(f"{PEEK}?limit=3")).json()
        assert [(one["where"], one["messageId"], one["id"]) for one in told["messages"]] == [
            ("stored", "a", first.id),
            ("queue", "b", None),
            ("queue", "c", None),
        ]
        assert told["left"] == 8

    run(scenario())


def test_a_destructive_peek_is_refused_unless_something_is_stored(
    run: Run, client_for: ClientFor, put_letter: PutLetter, shared: FakeBroker
) -> None:
    async def scenario() -> None:
        shared.seen = PeekRefused(f"{DLQ} is not looked at: looks are counted; collect it")
        client = await client_for(Role.ADMIN)
        refused = await client.get(PEEK)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:redrive:problem:peek-would-destroy")
        await put_letter(queue="q.thumbnail", dlq=DLQ, message_id="a")
        told = await client.get(PEEK)
        assert (told.status_code, [one["messageId"] for one in told.json()["messages"]]) == (200, ["a"])
        assert "not looked at" in told.json()["note"]

    run(scenario())


def test_a_redrive_takes_the_longest_dead_and_goes_to_the_retry_exchange(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letters = [await put_letter(queue="q.thumbnail", dlq=DLQ) for _ in range(3)]
        await put_letter(queue="other", dlq="other.dlq")
        client = await client_for(Role.ADMIN, name="ada")
        answer = await client.post(REDRIVE, json={"limit": 2})
        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert (told["total"], told["redriven"], told["state"], told["left"]) == (2, 0, "waiting", None)
        assert told["target"] == {"exchange": "retry.{queue}", "routing_key": "retry"}
        assert "waits for the broker" in told["note"]
        assert answer.headers["location"] == f"/api/v1/redrives/{told['operation']}"
        items, _ = await store.operations.items(told["operation"], 10)
        assert [one.letter_id for one in items] == [one.id for one in letters[:2]]

    run(scenario())


def test_without_a_retry_exchange_copies_go_to_the_failed_queue(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        await put_letter(queue="somebody-elses", dlq=DLQ)
        told = (await (await client_for(Role.ADMIN)).post(REDRIVE)).json()
        assert told["target"] == {"exchange": None, "routing_key": None}

    run(scenario())


def test_the_same_key_again_sends_nothing_more(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        for _ in range(3):
            await put_letter(queue="q.thumbnail", dlq=DLQ)
        client = await client_for(Role.ADMIN)
        answers = [await client.post(REDRIVE, json={"limit": 1}, headers={"Idempotency-Key": "k"}) for _ in range(3)]
        assert len({one.json()["operation"] for one in answers}) == 1
        assert len((await store.operations.page(10))[0]) == 1

    run(scenario())


def test_nothing_to_send_is_no_error(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        answer = await (await client_for(Role.ADMIN)).post(REDRIVE, json={"limit": 10})
        assert (answer.status_code, answer.json()["total"], answer.json()["operation"]) == (202, 0, None)
        assert (await store.operations.page(10))[0] == []

    run(scenario())


@pytest.mark.parametrize("body", [{"limit": 0}, {"limit": 10_001}, {"limit": "all"}, {"limits": 10}, []])
def test_a_limit_that_is_none_is_refused(run: Run, client_for: ClientFor, body: object) -> None:
    async def scenario() -> None:
        assert (await (await client_for(Role.ADMIN)).post(REDRIVE, json=body)).status_code == 422

    run(scenario())


@pytest.mark.parametrize("queue", ["q.thumbnail", "nothing", "*.dlq", "..%2F..", "%00", "q.thumbnail.dlq%2F"])
def test_only_known_queues_are_served(run: Run, client_for: ClientFor, shared: FakeBroker, queue: str) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        for answer in (
            await client.get(f"/admin/dlq/queues/{queue}/messages"),
            await client.post(f"/admin/dlq/queues/{queue}/re-drive", json={"limit": 1}),
        ):
            assert (answer.status_code, answer.json()["type"]) == (404, "urn:redrive:problem:unknown-queue")
        shared.known = KnownQueues(address="nowhere", queues=(), problem="nobody answers")
        assert (await client.get(f"/admin/dlq/queues/{queue}/messages")).status_code == 503

    run(scenario())


def test_it_is_for_admins_of_the_queue(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_letter(queue="q.thumbnail", dlq=DLQ)
        for role, queues, expected in (
            (None, (), [401, 401, 401]),
            (Role.VIEWER, (), [403, 403, 403]),
            (Role.OPERATOR, (), [403, 403, 403]),
            (Role.ADMIN, ("orders",), [200, 404, 404]),
            (Role.ADMIN, ("q.thumbnail",), [200, 200, 202]),
        ):
            client = await client_for(role, queues=queues)
            found = [await client.get("/admin/dlq/queues"), await client.get(PEEK), await client.post(REDRIVE)]
            assert [one.status_code for one in found] == expected, (role, queues)
            if expected[0] == 200:
                names = [one["queue"] for one in found[0].json()["queues"]]
                assert names == ([DLQ] if queues == ("q.thumbnail",) else [])

    run(scenario())


def test_a_peek_shows_large_messages_only_up_to_a_size(
    run: Run, client_for: ClientFor, put_letter: PutLetter, shared: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        sizes = {(await put_letter(dlq="orders.parked", size_bytes=100)).size_bytes for _ in range(5)}
        assert sizes == {100}
        client = await client_for(Role.ADMIN)
        whole = (await client.get("/admin/dlq/queues/orders.parked/messages")).json()
        monkeypatch.setattr(pipeline, "_PEEK_BYTES_MAX", 250)
        some = (await client.get("/admin/dlq/queues/orders.parked/messages")).json()
        monkeypatch.setattr(pipeline, "_PEEK_BYTES_MAX", 1)
        one = (await client.get("/admin/dlq/queues/orders.parked/messages")).json()
        assert [len(each["messages"]) for each in (whole, some, one)] == [5, 2, 1]
        assert "too large" in some["note"]

    shared.known = KnownQueues(address="", queues=(KnownQueue(vhost="/", dlq="orders.parked"),))
    shared.seen = PeekRefused("it is not looked at")
    run(scenario())
