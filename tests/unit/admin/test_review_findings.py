"""What a review found: each of these failed before it was mended."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from redrive.admin import ApiSettings, Services, create_app
from redrive.admin.compat import pipeline
from redrive.admin.settings import InvalidSettings
from redrive.admin.shared_broker import SharedBroker
from redrive.deadletters import PeekRefused, RedriveService
from redrive.records import LetterEvent, Role
from redrive.records.masking import overlaps
from redrive.stores import Store, StoreUnavailable
from redrive.stores.letters import changes as changing
from redrive.stores.letters.transitions import record_life
from redrive.wiring import KnownQueue, KnownQueues
from tests.unit.admin.conftest import BASE_URL, ClientFor, Clock, PutLetter, Run, audited

GONE = StoreUnavailable("the database", "it went", "try again")


@pytest.mark.parametrize("event", [LetterEvent.CAME_BACK, LetterEvent.SPENT])
def test_a_life_tells_no_error_text_to_who_sees_no_payloads(
    event: LetterEvent, run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        async with store._database.write() as tx:
            seq = await tx.value("SELECT seq FROM letters WHERE id = $1", letter.id)
            await record_life(tx, [seq], event.value, now_ms=clock(), who="", detail="card 4711 was refused")
        path = f"/api/v1/messages/{letter.id}"
        assert "4711" not in (await (await client_for(Role.VIEWER)).get(path)).text
        assert "4711" in (await (await client_for(Role.VIEWER, payloads=True)).get(path)).text

    run(scenario())


def test_a_hidden_place_in_a_list_is_hidden_however_its_number_is_written() -> None:
    assert overlaps(("cards", "00", "number"), ("cards", "0", "number"))
    assert overlaps(("cards", "007"), ("cards", "7"))
    assert not overlaps(("cards", "1", "number"), ("cards", "10", "number"))
    assert not overlaps(("cards", "0", "x"), ("cards", "", "y"))


def test_one_network_of_many_addresses_fills_no_audit(run: Run, client_for: ClientFor, store: Store) -> None:
    async def scenario() -> None:
        for number in range(20):
            client = await client_for(None, address=f"2001:db8::{number:x}")
            assert (await client.get("/dlq")).status_code == 401
        assert await audited(store, "access.unauthenticated") == [("address 2001:db8::/64", "api", 1)]

    run(scenario())


class TestWhatIsOpenOnThisMachine:
    def test_metrics_are_not_for_a_web_page_under_another_name(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter
    ) -> None:
        async def scenario() -> None:
            await put_letter()
            client = await client_for(None)
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.get("/metrics", headers={"Host": "evil.example:8080"})).status_code == 401

        run(scenario())

    def test_metrics_behind_a_proxy_need_a_token(self, run: Run, services: Services, client_for: ClientFor) -> None:
        async def scenario() -> None:
            app = create_app(replace(services, settings=ApiSettings(trusted_proxies=("127.0.0.1",))))
            viewer = await client_for(Role.VIEWER)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE_URL) as client:
                assert (await client.get("/metrics")).status_code == 401
                headers = {"Authorization": viewer.headers["Authorization"]}
                assert (await client.get("/metrics", headers=headers)).status_code == 200

        run(scenario())

    def test_a_proxy_without_authentication_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match="proxy"):
            ApiSettings(require_auth=False, trusted_proxies=("127.0.0.1",))


class TestADatabaseThatGoesInTheMiddle:
    def test_a_retry_that_was_stored_is_told_as_one(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            letter = await put_letter()
            client = await client_for(Role.OPERATOR)
            create = store.operations.create

            async def create_and_go(*arguments: Any, **options: Any) -> Any:
                operation = await create(*arguments, **options)
                monkeypatch.setattr(store.letters, "get", gone)
                return operation

            monkeypatch.setattr(store.operations, "create", create_and_go)
            answer = await client.post(f"/dlq/{letter.id}/retry")
            operations, _ = await store.operations.page(10)
            assert answer.status_code == 202
            assert [one.id for one in operations] == [answer.json()["operation"]]

        run(scenario())

    def test_a_change_of_many_does_not_say_that_nothing_was_done(
        self, run: Run, client_for: ClientFor, put_letter: PutLetter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> None:
            for _ in range(3):
                await put_letter()
            apply, turns = changing._apply, iter(range(9))

            async def apply_once(*arguments: Any, **options: Any) -> int:
                if next(turns):
                    raise GONE
                return await apply(*arguments, **options)

            monkeypatch.setattr(changing, "PIECE", 1)
            monkeypatch.setattr(changing, "_apply", apply_once)
            client = await client_for(Role.OPERATOR)
            answer = await client.post("/api/v1/messages/resolve", json={"q": "", "why": "refunded"})
            listed = (await client.get("/api/v1/messages")).json()["messages"]
            assert sorted(one["status"] for one in listed) == ["pending", "pending", "resolved"]
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
            assert answer.json()["type"] == "urn:redrive:problem:store-unavailable"
            assert "some may be changed" in answer.json()["detail"]

        run(scenario())


def test_a_peek_shows_large_messages_only_up_to_a_size(
    run: Run, client_for: ClientFor, put_letter: PutLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def queues(self: SharedBroker) -> KnownQueues:
        return KnownQueues(address="", queues=(KnownQueue(vhost="/", dlq="orders.parked"),))

    async def peek(self: SharedBroker, queue: str, limit: int) -> Any:
        raise PeekRefused("it is not looked at")

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

    monkeypatch.setattr(SharedBroker, "queues", queues)
    monkeypatch.setattr(SharedBroker, "peek", peek)
    run(scenario())


def test_one_long_look_at_a_time(
    run: Run, client_for: ClientFor, put_letter: PutLetter, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[int] = []
    most: list[int] = []
    plan = RedriveService.plan

    async def watched(self: RedriveService, new: Any) -> Any:
        looking.append(1)
        most.append(len(looking))
        await asyncio.sleep(0)
        try:
            return await plan(self, new)
        finally:
            looking.pop()

    async def scenario() -> None:
        await put_letter(body={"order": 17})
        client = await client_for(Role.OPERATOR)
        asked = {"q": "-body.order:18", "why": "look", "dry_run": True}
        answers = await asyncio.gather(*[client.post("/api/v1/redrives", json=asked) for _ in range(5)])
        assert [answer.json()["total"] for answer in answers] == [1] * 5
        assert max(most) == 1

    monkeypatch.setattr(RedriveService, "plan", watched)
    run(scenario())


async def gone(*arguments: object, **options: object) -> Any:
    raise GONE
