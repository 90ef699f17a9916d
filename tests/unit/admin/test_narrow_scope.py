"""An operator with the narrowest scope, one queue, tries to reach another through every endpoint: none is reached.

`ATTACKS` has a line for every operation of the document; a new one fails until somebody has thought of how it could be
used to get round a scope. What was asked for is then really sent: by a redriver and by auto-retry, to a broker where
the other queue would take it.
"""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from redrive.admin import Services, create_app
from redrive.admin.shared_broker import SharedBroker
from redrive.client import Client, Confirmed
from redrive.deadletters import AutoRetry, Redriver, RedriverParts
from redrive.embedded import EmbeddedBroker
from redrive.records import (
    ItemState,
    NewOperation,
    OperationKind,
    RedriveTarget,
    RetryRule,
    Role,
    Selection,
)
from redrive.stores import Store
from redrive.wiring import Setting, new_random_bits
from tests.unit.admin.conftest import ClientFor, Clock, PutLetter, Run, make_token
from tests.unit.admin.event_watch import Watch
from tests.unit.admin.scope_attacks import ATTACKS, MINE, MY_DLQ, THEIR_DLQ, THEIRS, WHY, Call, Ids
from tests.unit.admin.seeding import ask

pytestmark = pytest.mark.slow

SECRET = "only-for-payments"
LONG_AGO_MS = 1_700_000_000_000


def test_there_is_an_attack_through_every_operation_of_the_document(app: FastAPI) -> None:
    documented = {
        f"{method.upper()} {path}" for path, operations in app.openapi()["paths"].items() for method in operations
    }
    assert documented == set(ATTACKS)


@dataclass
class Stage:
    """The API, a broker with both queues, and everything that could be reached."""

    app: FastAPI
    services: Services
    store: Store
    put_letter: PutLetter
    client: Client
    ids: Ids = field(default_factory=Ids)

    async def set_up(self) -> None:
        channel = await self.client.channel()
        for name in (MINE, MY_DLQ, THEIRS, THEIR_DLQ):
            await channel.declare_queue(name)
        await channel.declare_exchange("events", "fanout")
        await channel.declare_exchange(f"retry.{MINE}", "fanout")
        await channel.declare_exchange(f"retry.{THEIRS}", "fanout")
        for exchange in ("events", f"retry.{MINE}", f"retry.{THEIRS}"):
            await channel.bind_queue(THEIRS, exchange, "")
        await channel.close()
        await self.seed()

    async def seed(self) -> None:
        """One of everything, anew."""
        ids, number = Ids(), self.services.new_id()
        kinds = {
            "mine": (MINE, MY_DLQ, "my_group"),
            "edited": (MINE, MY_DLQ, "my_group"),
            "forged": (THEIRS, MY_DLQ, "forged_group"),
            "theirs": (THEIRS, THEIR_DLQ, "their_group"),
            "claimed": (MINE, THEIR_DLQ, "claimed_group"),
        }
        for name, (queue, dlq, group) in kinds.items():
            is_theirs = dlq == THEIR_DLQ
            said = SECRET if is_theirs else "mine"
            letter = await self.put_letter(
                queue=queue,
                dlq=dlq,
                dlq_routing_key=dlq,
                routing_key=said if is_theirs else queue,
                group_id=f"{group}{number}",
                title=f"in {said}",
                error_message=said,
                body={"said": said},
                headers={"x-original-queue": queue, "x-original-routing-key": queue},
                dead_at_ms=LONG_AGO_MS,
            )
            setattr(ids, name, letter.id)
            setattr(ids, group, f"{group}{number}")
            ids.letters[letter.id] = letter
        store, now_ms = self.store, self.services.clock_ms()
        for name, letter_id, target in (
            ("their_operation", ids.theirs, RedriveTarget()),
            ("whole_operation", ids.mine, RedriveTarget(exchange="", routing_key=THEIRS)),
        ):
            selection = Selection(ids=(letter_id,))
            new = NewOperation(kind=OperationKind.REDRIVE, selection=selection, who=f"admin {number}", target=target)
            made = await store.operations.create(new, id=self.services.new_id(), now_ms=now_ms)
            await store.operations.pause(made.id, "by an admin", who="admin", now_ms=now_ms)
            setattr(ids, name, made.id)
        text = await make_token(store, f"somebody {number}", Role.VIEWER, now_ms=now_ms)
        ids.token = text.split("_")[1]
        self.ids = ids

    async def call(self, call: Call, token: str) -> httpx.Response:
        method, path, body = call
        headers = {"Authorization": f"Bearer {token}", "If-Match": "*"} if method == "PATCH" else {}
        headers["Authorization"] = f"Bearer {token}"
        content = b"" if body is None else httpx.Request("POST", "http://x", json=body).content
        if content:
            headers["Content-Type"] = "application/json"
        return await ask(self.app, method, path, headers=headers, body=content)

    async def send_everything(self) -> None:
        """Runs whatever waits, and auto-retry."""
        parts = RedriverParts(store=self.store, client=self.client, owner="runner", clock_ms=self.services.clock_ms)
        redriver = Redriver(parts)
        for operation_id in await self.store.operations.waiting():
            await redriver.run(operation_id)
        await AutoRetry(redriver, random_bits=new_random_bits).once()

    async def reached(self) -> dict[str, int]:
        """How many messages lie in each queue that is not the attacker's."""
        channel = await self.client.channel()
        found = {}
        for name in (THEIRS, THEIR_DLQ):
            found[name] = (await channel.declare_queue(name, passive=True)).messages_ready
        await channel.close()
        return found


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
@pytest.mark.parametrize("label", ATTACKS)
def test_no_other_queue_is_reached(
    run: Run,
    app: FastAPI,
    services: Services,
    store: Store,
    clock: Clock,
    put_letter: PutLetter,
    label: str,
    role: Role,
) -> None:
    async def scenario() -> None:
        token = await make_token(store, "narrow", role, now_ms=clock(), queues=(MINE,))
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            stage = Stage(app, services, store, put_letter, client)
            await stage.set_up()
            for call in ATTACKS[label](stage.ids):
                answer = await stage.call(call, token)
                assert answer.status_code < 500 or answer.status_code == 503, (call, answer.text)
                assert SECRET not in answer.text, call
                asked = f"{call[1]} {call[2]}"
                assert not [id for id in (stage.ids.theirs, stage.ids.claimed) if id in answer.text and id not in asked]
                await stage.send_everything()
            assert await stage.reached() == {THEIRS: 0, THEIR_DLQ: 0}, label
            for id in (stage.ids.theirs, stage.ids.claimed):
                letter = await store.letters.get(id)
                assert letter is not None, label
                assert letter == stage.ids.letters[id], label

    run(scenario())


def test_what_is_refused_at_the_moment_of_sending_stays_and_says_why(
    run: Run, app: FastAPI, services: Services, store: Store, clock: Clock, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        token = await make_token(store, "narrow", Role.OPERATOR, now_ms=clock(), queues=(MINE,))
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            stage = Stage(app, services, store, put_letter, client)
            await stage.set_up()
            ids = stage.ids
            answer = await stage.call(("POST", "/api/v1/redrives", {"ids": [ids.mine, ids.forged]}), token)
            assert answer.status_code == 202, answer.text
            await stage.send_everything()
            items, _ = await store.operations.items(answer.json()["id"], 10)
            told = {item.letter_id: (item.state, item.reason) for item in items}
            assert told[ids.mine][0] is ItemState.SENT
            assert told[ids.forged] == (
                ItemState.REFUSED,
                f"queue {THEIRS} is outside of the queues that narrow is limited to; it stays here",
            )
            created = [one for one in (await store.audit.page(50, action="redrive.created"))[0] if one.who == "narrow"]
            assert [one.detail for one in created] == [
                {
                    "selection": "2 by id",
                    "target": "the failed queue",
                    "token": token.split("_")[1],
                    "queues": [MINE],
                }
            ]

    run(scenario())


def test_a_rule_of_a_limited_operator_sends_their_letters_and_no_others(
    run: Run, app: FastAPI, services: Services, store: Store, clock: Clock, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            stage = Stage(app, services, store, put_letter, client)
            await stage.set_up()
            for scope in (f"queue:{MINE}", f"group:{stage.ids.forged_group}"):
                rule = RetryRule(scope=scope, first_ms=1, ceiling_ms=1, queues=(MINE, MY_DLQ))
                await store.rules.set(rule, now_ms=clock(), who="narrow")
            await stage.send_everything()
            channel = await client.channel()
            there = {name: (await channel.declare_queue(name, passive=True)).messages_ready for name in (MINE, THEIRS)}
            assert there == {MINE: 1, THEIRS: 0}  # the other one waits in an operation
            for id in (stage.ids.claimed, stage.ids.forged):
                letter = await store.letters.get(id)
                assert letter is not None
                assert (letter.status, letter.due_at_ms, letter.redrives) == ("pending", None, 0)

    run(scenario())


def test_a_plan_tells_nothing_of_queues_outside_of_the_scope(
    run: Run, services: Services, store: Store, clock: Clock, put_letter: PutLetter
) -> None:
    """A letter of one's own dead-letter queue names whatever queue its sender liked: whether that is there, who
    consumes it and how deep it is stays unsaid, and is not asked."""
    unknown = "nosuchqueue"

    async def scenario() -> None:
        token = await make_token(store, "narrow", Role.OPERATOR, now_ms=clock(), queues=(MINE,))
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            shared = SharedBroker(
                replace(services.connections, url=Setting(value=broker.url, source="test")), store, patience_s=5.0
            )
            app = create_app(replace(services, broker=shared))
            stage = Stage(app, services, store, put_letter, client)
            await stage.set_up()
            publisher = await client.publisher()
            for _ in range(3):
                assert await publisher.publish("", THEIRS, b"theirs") == Confirmed()
            told: dict[str, list[Any]] = {}
            for name in (THEIRS, unknown):
                letters = [await put_letter(queue=name, dlq=MY_DLQ, group_id=f"{name} {n}") for n in range(2)]
                told[name] = []
                for body in (
                    {"ids": [one.id for one in letters], "dry_run": True},
                    {"ids": [letters[0].id, stage.ids.mine], "dry_run": True},
                    {"ids": [letters[0].id], "dry_run": True, "target": {"exchange": "", "routing_key": "{queue}"}},
                    {"ids": [letters[0].id]},
                ):
                    answer = await stage.call(("POST", "/api/v1/redrives", body), token)
                    kept = answer.json()
                    for varies in ("id", "created_at", "updated_at", "at"):
                        kept.pop(varies, None)
                    told[name].append((answer.status_code, json.loads(json.dumps(kept).replace(name, "NAME"))))
                retried = await stage.call(("POST", f"/dlq/{letters[1].id}/retry", None), token)
                told[name].append(retried.status_code)
            await shared.close()
            assert told[THEIRS] == told[unknown]
            _, plan = told[THEIRS][0]
            assert (plan["targets"], plan["total"]) == ([], 2)
            assert [(one["code"], one["text"]) for one in plan["findings"]] == [
                (
                    "outside-scope",
                    "queue NAME: it is outside of the queues that you may send to; the 2 dead letters for it stay",
                )
            ]
            _, both = told[THEIRS][1]
            assert [(one["routing_key"], one["exists"]) for one in both["targets"]] == [(MINE, True)]
            await stage.send_everything()
            assert await stage.reached() == {THEIRS: 3, THEIR_DLQ: 0}

    run(scenario())


def test_rules_of_a_limited_operator_move_no_due_time_of_others(
    run: Run, app: FastAPI, services: Services, store: Store, clock: Clock, put_letter: PutLetter
) -> None:
    """A letter of another dead-letter queue that says it failed in the operator's queue follows the admin's rule."""

    async def scenario() -> None:
        token = await make_token(store, "narrow", Role.OPERATOR, now_ms=clock(), queues=(MINE,))
        async with EmbeddedBroker() as broker, Client(broker.url) as client:
            stage = Stage(app, services, store, put_letter, client)
            await stage.set_up()
            await store.rules.set(RetryRule(scope="*", first_ms=1_000, ceiling_ms=1_000), now_ms=clock(), who="admin")
            others = (stage.ids.theirs, stage.ids.claimed)
            before = [await store.letters.get(id) for id in others]
            assert all(one is not None and one.due_at_ms is not None for one in before)
            rule = {**WHY, "attempts": 5, "first_ms": 7, "max_ms": 7}
            for asked in ({"enabled": False}, rule, {**rule, "first_ms": 1}):
                for call in ATTACKS["PUT /api/v1/rules/{scope}"](stage.ids):
                    await stage.call((call[0], call[1], {**call[2], **asked}), token)
                for call in ATTACKS["DELETE /api/v1/rules/{scope}"](stage.ids):
                    await stage.call(call, token)
            assert [await store.letters.get(id) for id in others] == before
            mine = RetryRule(scope=f"queue:{MINE}", attempts=9)
            await store.rules.set(mine, now_ms=clock(), who="admin")
            for method, body in (("PUT", {"enabled": False}), ("DELETE", None)):
                answer = await stage.call((method, f"/api/v1/rules/queue:{MINE}", body), token)
                assert answer.status_code == 403, answer.text
                assert "a token with more queues" in answer.json()["detail"]
            assert mine in await store.rules.all()

    run(scenario())


def test_counts_over_time_and_in_the_stream_go_by_where_letters_were_taken_from(
    run: Run, app: FastAPI, client_for: ClientFor, put_letter: PutLetter
) -> None:
    async def scenario() -> None:
        at_ms = 1_800_000_000_000
        for queue, dlq in ((MINE, MY_DLQ), (THEIRS, MY_DLQ), (MINE, THEIR_DLQ), (THEIRS, THEIR_DLQ), (MINE, THEIR_DLQ)):
            group = f"{queue} {dlq}"
            await put_letter(queue=queue, dlq=dlq, dlq_routing_key=dlq, group_id=group, dead_at_ms=at_ms)
        narrow, whole = await client_for(Role.VIEWER, queues=(MINE,)), await client_for(Role.VIEWER)
        span = {"from": "2027-01-15T00:00:00Z", "until": "2027-01-16T00:00:00Z", "bucket_s": "3600"}
        for client, asked, expected in (
            (narrow, {}, 2),
            (narrow, {"queue": MINE}, 1),
            (narrow, {"queue": THEIRS}, 1),
            (whole, {}, 5),
            (whole, {"queue": MINE}, 3),
        ):
            params: dict[str, str] = {**span, **asked}
            told = (await client.get("/api/v1/stats/timeseries", params=params)).json()
            assert sum(one["dead"] for one in told["points"]) == expected, (asked, expected)
        watch = Watch(app, narrow)
        await watch.until(lambda one: bool(one.events("stats")))
        assert watch.events("stats") == [
            {"total": None, "by_status": None, "by_queue": None, "by_dlq": {MY_DLQ: {"pending": 2}}}
        ]
        await watch.go_away()

    run(scenario())
