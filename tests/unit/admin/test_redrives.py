"""`/api/v1/redrives`: operations made, watched and stopped; accepted while the broker is away."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import pytest

from redrive.admin import Services
from redrive.admin.redrive_operations import measured_per_s
from redrive.admin.scope import OperationScope
from redrive.deadletters import Preflight, RedriveService
from redrive.records import NewOperation, Operation, OperationKind, OperationState, Role, Selection, Status
from redrive.stores import Store
from redrive.wiring import new_random_bits
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run, audited

REDRIVES = "/api/v1/redrives"


async def put_both(put_letter: PutLetter) -> tuple[list[str], list[str]]:
    """Ids of three of `orders`, and of two of `payments`."""
    mine = [(await put_letter()).id for _ in range(3)]
    others = [(await put_letter(queue="payments", dlq="payments.parked", group_id="cards")).id for _ in range(2)]
    return mine, others


async def items_of(store: Store, id: str) -> list[str]:
    found, _ = await store.operations.items(id, 100)
    return [one.letter_id for one in found]


async def create(client: httpx.AsyncClient, body: Mapping[str, Any], **headers: str) -> httpx.Response:
    return await client.post(REDRIVES, json=dict(body), headers=headers)


def test_a_redrive_without_a_broker_is_accepted_and_says_that_it_waits(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, woken: list[bool]
) -> None:
    async def scenario() -> None:
        mine, _ = await put_both(put_letter)
        client = await client_for(Role.OPERATOR, name="ada")
        answer = await create(client, {"queue": "orders", "rate_per_s": 5, "ramp": [1, 2], "why": "it is back"})
        assert answer.status_code == 202
        told = answer.json()
        assert (told["state"], told["total"], told["who"], told["why"]) == ("waiting", 3, "ada", "it is back")
        assert "broker" in told["note"]
        assert answer.headers["Location"] == f"{REDRIVES}/{told['id']}"
        assert woken == [True]
        assert await items_of(store, told["id"]) == mine
        assert (await client.get(answer.headers["Location"])).json()["id"] == told["id"]
        assert await audited(store, "redrive.created") == [("ada", told["id"], 3)]

    run(scenario())


def test_a_dry_run_changes_nothing_and_says_that_the_target_was_not_seen(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, woken: list[bool]
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        await put_letter(status=Status.RESOLVED)
        client = await client_for(Role.OPERATOR)
        answer = await create(client, {"q": "", "dry_run": True})
        assert answer.status_code == 200
        plan = answer.json()
        assert (plan["total"], plan["by_queue"]) == (5, {"orders": 3, "payments": 2})
        assert (plan["left_alone"], plan["targets"]) == ({"resolved": 1}, None)
        assert "could not be checked" in plan["note"]
        assert await store.operations.page(10) == ([], None)
        assert woken == []

    run(scenario())


@pytest.mark.parametrize("chosen", [{"q": ""}, {"q": "queue:*"}, {"ids": "all"}])
def test_a_redrive_never_takes_others_queues(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, chosen: dict[str, Any]
) -> None:
    async def scenario() -> None:
        mine, others = await put_both(put_letter)
        client = await client_for(Role.OPERATOR, queues=("orders", "quiet"))
        body = {"ids": [*others, *mine]} if "ids" in chosen else chosen
        told = (await create(client, body)).json()
        assert sorted(await items_of(store, told["id"])) == sorted(mine)

    run(scenario())


def test_a_redrive_of_others_alone_is_as_if_they_did_not_exist(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        _, others = await put_both(put_letter)
        client = await client_for(Role.OPERATOR, queues=("orders",))
        unknown = await create(client, {"ids": ["nobody"]})
        outside = await create(client, {"ids": others})
        assert (unknown.status_code, unknown.json()) == (outside.status_code, outside.json())
        assert outside.status_code == 409
        assert (await create(client, {"queue": "payments"})).status_code == 409
        assert (await create(client, {"group": "cards"})).status_code == 404
        assert await store.operations.page(10) == ([], None)

    run(scenario())


def test_a_limited_token_sends_only_to_its_own_queues(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        client = await client_for(Role.OPERATOR, queues=("orders*",))
        for target in (
            {"exchange": "", "routing_key": "payments"},
            {"exchange": "", "routing_key": "{queue}.x"},
            {"exchange": "events"},
            {"exchange": "events", "routing_key": "orders"},
            {"exchange": "events", "routing_key": "{queue}"},
            {"exchange": "retry.{queue}", "routing_key": "retry"},
        ):
            answer = await create(client, {"q": "", "target": target, "limit": 1})
            assert answer.status_code == 403, target
        assert await store.operations.page(10) == ([], None)
        assert len(await audited(store, "access.forbidden")) == 1
        for target in ({"exchange": "", "routing_key": "orders.again"}, {"exchange": "", "routing_key": "{queue}"}):
            assert (await create(client, {"q": "", "target": target, "limit": 1})).status_code == 202

    run(scenario())


def test_an_operation_that_takes_others_messages_too_is_not_there_for_a_limited_token(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        admin = await client_for(Role.ADMIN)
        of_orders = (await create(admin, {"queue": "orders"})).json()["id"]
        of_all = (await create(admin, {"q": ""})).json()["id"]
        of_others = (await create(admin, {"queue": "payments"})).json()["id"]
        for queues in (("orders",), ("orders.parked",)):
            client = await client_for(Role.OPERATOR, queues=queues)
            listed = (await client.get(REDRIVES)).json()
            assert [one["id"] for one in listed["redrives"]] == [of_orders]
            for id in (of_all, of_others):
                assert (await client.get(f"{REDRIVES}/{id}")).status_code == 404
                assert (await client.get(f"{REDRIVES}/{id}/items")).status_code == 404
                for word in ("pause", "resume", "cancel"):
                    assert (await client.post(f"{REDRIVES}/{id}/{word}")).status_code == 404
        found = {one.id: str(one.state) for one in (await store.operations.page(10))[0]}
        assert found == {of_orders: "waiting", of_all: "waiting", of_others: "waiting"}
        # Who tries is in the audit: one entry for each token, which names the first that was asked for.
        probes, _ = await store.audit.page(10, action="access.outside_scope")
        assert [(one.subject, one.detail) for one in probes] == [("redrive", {"id": of_all})] * 2

    run(scenario())


def test_a_limited_token_pages_through_its_operations(
    run: Run, client_for: ClientFor, put_letter: PutLetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.admin.scope._CHUNK", 4)

    async def scenario() -> None:
        await put_both(put_letter)
        admin = await client_for(Role.ADMIN)
        expected = []
        for number in range(13):
            queue = "orders" if number % 3 else "payments"
            id = (await create(admin, {"queue": queue})).json()["id"]
            expected += [id] if queue == "orders" else []
        client = await client_for(Role.VIEWER, queues=("orders",))
        for limit in (1, 2, 3, 100):
            seen: list[str] = []
            cursor = None
            while True:
                params = {"limit": limit, **({"cursor": cursor} if cursor else {})}
                page = (await client.get(REDRIVES, params=params)).json()
                assert len(page["redrives"]) <= limit
                seen += [one["id"] for one in page["redrives"]]
                cursor = page["next"]
                if cursor is None:
                    break
            assert seen == expected[::-1]

    run(scenario())


def test_pausing_resuming_and_cancelling(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, woken: list[bool]
) -> None:
    async def scenario() -> None:
        mine, _ = await put_both(put_letter)
        client = await client_for(Role.OPERATOR, name="ada")
        path = (await create(client, {"queue": "orders"})).headers["Location"]
        assert (await client.post(f"{path}/resume")).status_code == 409
        paused = (await client.post(f"{path}/pause")).json()
        assert (paused["state"], paused["note"]) == ("paused", "paused by ada")
        assert woken == [True]
        assert (await client.post(f"{path}/resume")).json()["state"] == "waiting"
        assert woken == [True, True]
        cancelled = (await client.post(f"{path}/cancel")).json()
        assert (cancelled["state"], cancelled["skipped"], cancelled["left"]) == ("cancelled", 3, 0)
        assert (await client.post(f"{path}/cancel")).status_code == 409
        items = (await client.get(f"{path}/items", params={"state": "skipped", "limit": 2})).json()
        assert [one["id"] for one in items["items"]] == mine[:2]
        rest = (await client.get(f"{path}/items", params={"limit": 2, "cursor": items["next"]})).json()
        assert ([one["id"] for one in rest["items"]], rest["next"]) == (mine[2:], None)
        for id in mine:
            letter = await store.letters.get(id)
            assert letter is not None
            assert letter.status is Status.PENDING

    run(scenario())


def test_the_same_request_twice_makes_one_operation(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        client = await client_for(Role.OPERATOR)
        first = await create(client, {"q": "dead:>2h -queue:x"}, **{"Idempotency-Key": "k1"})
        again = await create(client, {"q": "dead:>2h -queue:x"}, **{"Idempotency-Key": "k1"})
        assert first.json()["id"] == again.json()["id"]
        assert again.headers["Idempotency-Replayed"] == "true"
        assert len((await store.operations.page(10))[0]) == 1
        other = await client_for(Role.OPERATOR)
        assert (await create(other, {"q": ""}, **{"Idempotency-Key": "k1"})).json()["id"] != first.json()["id"]

    run(scenario())


def test_a_request_whose_answer_was_lost_finds_its_operation_though_its_moments_moved(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, clock: Clock
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        client = await client_for(Role.OPERATOR)
        first = await create(client, {"q": "dead:>2h"}, **{"Idempotency-Key": "k1"})
        clock.now_ms += 3 * 86_400_000  # the stored answer is gone, the operation's key is not
        again = await create(client, {"q": "dead:>2h"}, **{"Idempotency-Key": "k1"})
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        clock.now_ms += 3 * 86_400_000
        other = await create(client, {"q": "dead:>3h"}, **{"Idempotency-Key": "k1"})
        assert (other.status_code, other.json()["type"]) == (422, "urn:redrive:problem:idempotency-key-reused")
        assert len((await store.operations.page(10))[0]) == 1

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": ["a"], "q": ""},
        {"q": "no:field"},
        {"q": "", "rate_per_s": 0},
        {"q": "", "rate_per_s": "Infinity"},
        {"q": "", "ramp": [0]},
        {"q": "", "limit": 0},
        {"q": "", "settle_s": 0},
        {"q": "", "target": {"routing_key": "x"}},
        {"q": "", "target": {"exchange": ""}},
        {"q": "", "surprise": 1},
        {"q": "", "why": "w" * 2_001},
    ],
)
def test_what_can_t_be_asked_for_is_refused(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, body: dict[str, Any]
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        client = await client_for(Role.OPERATOR)
        assert (await create(client, body)).status_code == 422
        assert await store.operations.page(10) == ([], None)

    run(scenario())


def test_a_viewer_watches_and_sends_nothing(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        operator, viewer = await client_for(Role.OPERATOR), await client_for(Role.VIEWER)
        secret = (await create(operator, {"q": "body.card:4711 queue:x", "dry_run": True})).json()
        assert secret["total"] == 0
        path = (await create(operator, {"q": "-body.card:4711", "queue": "orders"})).headers["Location"]
        by_ids = (await create(operator, {"q": "queue:payments"})).headers["Location"]
        told = await viewer.get(path)
        assert told.status_code == 200
        assert "4711" not in told.text
        assert (await viewer.get(by_ids)).json()["selection"] == "queue:payments"
        assert (await create(viewer, {"q": ""})).status_code == 403
        for word in ("pause", "resume", "cancel"):
            assert (await viewer.post(f"{path}/{word}")).status_code == 403

    run(scenario())


def test_where_the_broker_is_at_hand_a_plan_has_its_targets_and_a_missing_one_refuses(
    run: Run,
    client_for: ClientFor,
    put_letter: PutLetter,
    services: Services,
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from redrive.deadletters.redrive.preflight import TargetHealth, judge

    async def check(queues: Mapping[str, int], target: object) -> Preflight:
        found = [
            TargetHealth(exchange="", routing_key=name, copies=count, exists=name == "orders", consumers=0)
            for name, count in queues.items()
        ]
        return Preflight(targets=tuple(found), findings=tuple(each for one in found for each in judge(one)))

    class Broker:
        service = RedriveService(store, clock_ms=clock, random_bits=new_random_bits, check_targets=check)

        async def plan(self, new: NewOperation) -> object:
            return await self.service.plan(new)

    async def broker() -> Broker:
        return Broker()

    monkeypatch.setattr(services.broker, "get", broker)

    async def scenario() -> None:
        await put_both(put_letter)
        client = await client_for(Role.OPERATOR)
        plan = (await create(client, {"queue": "orders", "dry_run": True})).json()
        assert [(one["routing_key"], one["copies"], one["exists"]) for one in plan["targets"]] == [("orders", 3, True)]
        assert ([one["code"] for one in plan["findings"]], plan["note"]) == (["no-consumers"], "")
        refused = await create(client, {"q": ""})
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:redrive:problem:target-refused")
        assert await store.operations.page(10) == ([], None)
        assert (await create(client, {"queue": "orders"})).json()["note"] == ""

    run(scenario())


def test_the_speed_is_what_was_done_since_it_began(put_letter: PutLetter, run: Run, store: Store, clock: Clock) -> None:
    async def scenario() -> Operation:
        await put_both(put_letter)
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=()), who="t")
        return await store.operations.create(new, id="op1", now_ms=clock())

    from redrive.records import OperationState

    made = run(scenario())
    running = replace(made, state=OperationState.RUNNING, started_at_ms=1_000, total=100, sent=30)
    assert measured_per_s(running, now_ms=4_000) == 10.0
    assert measured_per_s(running, now_ms=1_000) is None
    assert measured_per_s(replace(running, state=OperationState.PAUSED), now_ms=4_000) is None
    assert measured_per_s(replace(running, sent=0), now_ms=4_000) is None


def test_where_operations_took_their_messages_is_read_once(
    run: Run, client_for: ClientFor, put_letter: PutLetter, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await put_both(put_letter)
        admin = await client_for(Role.ADMIN)
        for _ in range(3):
            await create(admin, {"queue": "orders"})
        asked: list[int] = []
        real = services.store.operations.places

        async def places(ids: Any) -> Any:
            asked.append(len(ids))
            return await real(ids)

        monkeypatch.setattr(services.store.operations, "places", places)
        client = await client_for(Role.VIEWER, queues=("orders",))
        await asyncio.gather(*(client.get(REDRIVES) for _ in range(3)))
        for _ in range(3):
            assert len((await client.get(REDRIVES)).json()["redrives"]) == 3
        assert asked[:1] == [3]
        assert len(asked) <= 3
        assert OperationScope(services) is not None

    run(scenario())


def test_a_second_redrive_of_a_queued_dead_letter_is_refused(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter, other = await put_letter(), await put_letter()
        client = await client_for(Role.OPERATOR)
        first = await client.post(f"/dlq/{letter.id}/retry")
        assert first.status_code == 202
        operation = first.json()["operation"]
        second = await client.post(f"/dlq/{letter.id}/retry")
        assert (second.status_code, second.json()["type"]) == (409, "urn:redrive:problem:queued-already")
        assert operation in second.json()["detail"]
        assert (await client.post("/api/v1/redrives", json={"ids": [letter.id]})).status_code == 409
        assert [one.id for one in (await store.operations.page(10))[0]] == [operation]
        # With another one there is something to do, and what waits no more is no hindrance.
        both = await client.post("/api/v1/redrives", json={"ids": [letter.id, other.id]})
        assert both.status_code == 202
        for id in (operation, both.json()["id"]):
            assert (await client.post(f"/api/v1/redrives/{id}/cancel")).status_code == 200
        assert (await client.post(f"/dlq/{letter.id}/retry")).status_code == 202

    run(scenario())


def test_the_same_idempotency_key_finds_its_operation(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR)
        key = {"Idempotency-Key": "k"}
        answers = [await client.post(f"/dlq/{letter.id}/retry", headers=key) for _ in range(2)]
        assert len({one.json()["operation"] for one in answers}) == 1

    run(scenario())


def test_an_operation_that_sent_nothing_says_how_many_it_skipped_and_why(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, services: Services
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR)
        id = (await client.post(f"/dlq/{letter.id}/retry")).json()["operation"]
        await client.delete(f"/dlq/{letter.id}")
        now_ms = services.clock_ms()
        lease = await store.leases.acquire(f"operation:{id}", owner="test", ttl_ms=60_000)
        assert lease is not None
        await store.operations.claim(id, lease, now_ms=now_ms)
        assert await store.operations.take(id, lease, limit=10, now_ms=now_ms) == ()
        told = (await client.get(f"/api/v1/redrives/{id}")).json()
        assert told["state"] == OperationState.DONE
        assert told["note"] == "nothing was sent: 1 of 1 was skipped (it was deleted)"
        assert (await client.get(f"/api/v1/redrives/{id}/items")).json()["items"][0]["reason"] == "it was deleted"
        (listed,) = (await client.get("/api/v1/redrives")).json()["redrives"]
        assert listed["note"] == "nothing was sent: 1 of 1 was skipped (its items say why)"

    run(scenario())
