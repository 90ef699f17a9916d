"""Bookly's endpoints without a network: its words, its filters, who may do what, and what changes."""

from typing import Any

import pytest

from redrive.records import Role, Status
from redrive.stores import Store
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, audited


def test_entries_are_in_its_words_and_filtered_by_them(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        await put_letter(message_id="a", routing_key="hotel.booked", service="hotels", type="Booked")
        await put_letter(message_id="b", routing_key="hotel.left", service="hotels", type="Left", status=Status.FAILED)
        await put_letter(
            message_id="c", routing_key="car.booked", service="cars", type="Booked", status=Status.RESOLVED
        )
        client = await client_for(Role.OPERATOR)

        async def found(query: str) -> set[str]:
            answer = await client.get(f"/dlq{query}")
            assert answer.status_code == 200, answer.text
            return {one["eventId"] for one in answer.json()["items"]}

        assert await found("") == {"a", "b", "c"}
        assert await found("?status=FAILED") == await found("?status=failed") == {"b"}
        assert await found("?status=FAILED,RESOLVED") == await found("?status=failed&status=Resolved") == {"b", "c"}
        assert await found("?topic=hotel.*") == {"a", "b"}
        assert await found("?service=cars&eventType=Booked") == {"c"}
        assert await found("?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z") == set()
        assert await found("?from=2001-01-01") == {"a", "b", "c"}
        (entry,) = (await client.get("/dlq?status=FAILED")).json()["items"]
        assert (entry["topic"], entry["service"], entry["eventType"], entry["status"]) == (
            "hotel.left",
            "hotels",
            "Left",
            "FAILED",
        )

    run(scenario())


def test_pages_follow_each_other_without_gaps(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        put = [(await put_letter()).id for _ in range(7)]
        client = await client_for(Role.VIEWER)
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await client.get(f"/dlq?limit=3{cursor}")).json()
            seen += [one["id"] for one in page["items"]]
            if page["nextCursor"] is None:
                break
            cursor = f"&cursor={page['nextCursor']}"
        assert sorted(seen) == sorted(put)

    run(scenario())


@pytest.mark.parametrize(
    "query",
    [
        "?status=LOST",
        "?topic=%00",
        "?from=yesterday",
        "?limit=0",
        "?limit=1001",
        "?cursor=nonsense",
    ],
)
def test_what_can_not_be_asked_is_refused(run: Run, client_for: ClientFor, query: str) -> None:
    async def scenario() -> None:
        answer = await (await client_for(Role.VIEWER)).get(f"/dlq{query}")
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"

    run(scenario())


def test_stats_count_by_status_topic_service_and_event_type(
    run: Run, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        await put_letter(queue="q1", routing_key="t", service="s", type="e")
        await put_letter(queue="q2", dlq="q2.parked", routing_key="t", service="s", type="f", status=Status.FAILED)
        stats = (await (await client_for(Role.VIEWER)).get("/dlq/stats")).json()
        assert stats == {
            "total": 2,
            "byStatus": {"PENDING": 1, "RETRYING": 0, "WAITING": 0, "IN_DOUBT": 0, "FAILED": 1, "RESOLVED": 0},
            "byTopic": {"t": {"PENDING": 1, "FAILED": 1}},
            "byService": {"s": {"PENDING": 1, "FAILED": 1}},
            "byEventType": {"e": {"PENDING": 1}, "f": {"FAILED": 1}},
            "partial": False,
        }
        scoped = (await (await client_for(Role.VIEWER, queues=("q2",))).get("/dlq/stats")).json()
        assert (scoped["total"], scoped["byEventType"]) == (1, {"f": {"FAILED": 1}})

    run(scenario())


def test_a_retry_without_a_broker_is_stored_and_says_that_it_waits(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store, woken: list[bool]
) -> None:
    async def scenario() -> None:
        letter = await put_letter(queue="orders")
        client = await client_for(Role.OPERATOR, name="olga")
        answer = await client.post(f"/dlq/{letter.id}/retry", headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert (told["id"], told["status"]) == (letter.id, "PENDING")
        assert "waits for the broker" in told["note"]
        assert woken
        operation = await store.operations.get(told["operation"])
        assert operation is not None
        assert (operation.who, operation.total, operation.state) == ("olga", 1, "waiting")
        again = await client.post(f"/dlq/{letter.id}/retry", headers={"Idempotency-Key": "k"})
        assert (again.json()["operation"], again.headers["idempotency-replayed"]) == (told["operation"], "true")

    run(scenario())


def test_what_is_on_its_way_is_not_retried(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(status=Status.RETRYING)
        answer = await (await client_for(Role.OPERATOR)).post(f"/dlq/{letter.id}/retry")
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:redrive:problem:on-its-way")
        assert (await store.operations.page(10))[0] == []

    run(scenario())


def test_a_resolved_one_is_reopened_and_retried(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(status=Status.RESOLVED)
        answer = await (await client_for(Role.OPERATOR, name="olga")).post(f"/dlq/{letter.id}/retry")
        assert (answer.status_code, answer.json()["status"]) == (202, "PENDING"), answer.text
        (operation,) = (await store.operations.page(10))[0]
        assert (operation.total, operation.who) == (1, "olga")
        assert [(who, count) for who, _, count in await audited(store, "letters.reopened")] == [("olga", 1)]

    run(scenario())


def test_who_resolves_is_told_besides_whose_token_it_was(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.OPERATOR, name="olga")
        body = {"resolvedBy": "admin", "resolution": "Data corrected manually"}
        answer = await client.post(f"/dlq/{letter.id}/resolve", json=body)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["status"], told["resolvedBy"], told["resolution"]) == ("RESOLVED", *body.values())
        ((who, _, count),) = await audited(store, "letters.resolved")
        assert (who, count) == ("olga", 1)
        (entry,), _ = await store.audit.page(1, action="letters.resolved")
        assert entry.detail == {"ids": [letter.id], "told_by": "admin"}
        (olga,) = [one for one in await store.tokens.all() if one.name == "olga"]
        assert entry.token_id == olga.id
        whole = (await client.get(f"/api/v1/messages/{letter.id}")).json()
        assert whole["resolved_by"] == "admin, as told by olga"
        assert [one["who"] for one in whole["life"] if one["event"] == "resolved"] == ["olga"]
        again = {"resolvedBy": "admin, as told by root", "resolution": "and again"}
        answer = await client.post(f"/dlq/{letter.id}/resolve", json=again)
        assert answer.json()["resolvedBy"] == again["resolvedBy"]

    run(scenario())


def test_a_deleted_entry_is_gone_and_the_audit_has_it(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter()
        client = await client_for(Role.ADMIN, name="ada")
        assert (await client.delete(f"/dlq/{letter.id}")).status_code == 204
        assert (await client.delete(f"/dlq/{letter.id}")).status_code == 404
        assert await store.letters.get(letter.id) is None
        assert [one[0] for one in await audited(store, "letters.deleted")] == ["ada"]

    run(scenario())


def test_each_role_does_what_it_may_and_nothing_of_another_queue(
    run: Run, client_for: ClientFor, put_letter: PutLetter, store: Store
) -> None:
    async def scenario() -> None:
        letter = await put_letter(queue="orders", dlq="orders.dlq")
        body = {"resolvedBy": "x", "resolution": "y"}

        async def statuses(client: Any) -> list[int]:
            return [
                (await client.get(f"/dlq/{letter.id}")).status_code,
                (await client.post(f"/dlq/{letter.id}/retry")).status_code,
                (await client.post(f"/dlq/{letter.id}/resolve", json=body)).status_code,
                (await client.delete(f"/dlq/{letter.id}")).status_code,
            ]

        assert await statuses(await client_for(None)) == [401] * 4
        assert await statuses(await client_for(Role.VIEWER)) == [200, 403, 403, 403]
        assert await statuses(await client_for(Role.ADMIN, queues=("invoices",))) == [404] * 4
        other = await client_for(Role.VIEWER, queues=("invoices",))
        assert (await other.get("/dlq")).json()["items"] == []
        still = await store.letters.get(letter.id)
        assert still is not None
        assert (still.version, still.status) == (letter.version, Status.PENDING)

    run(scenario())


def test_payloads_are_for_those_who_may_see_them(run: Run, client_for: ClientFor, put_letter: PutLetter) -> None:
    async def scenario() -> None:
        text = await put_letter(body=b'{"card": "4111"}', headers={"x-tenant": "acme"}, error_message="card 4111")
        octets = await put_letter(body=b"\xff\x00")
        seen = (await (await client_for(Role.VIEWER, payloads=True)).get(f"/dlq/{text.id}")).json()
        assert (seen["payload"], seen["payloadEncoding"], seen["headers"]) == (
            '{"card": "4111"}',
            "utf-8",
            {"x-tenant": "acme"},
        )
        raw = (await (await client_for(Role.OPERATOR)).get(f"/dlq/{octets.id}")).json()
        assert (raw["payload"], raw["payloadEncoding"]) == ("/wA=", "base64")
        hidden = await (await client_for(Role.VIEWER)).get(f"/dlq/{text.id}")
        assert (hidden.json()["payload"], hidden.json()["redacted"]) == (None, True)
        assert "4111" not in hidden.text
        assert "acme" not in hidden.text

    run(scenario())
