"""Two attackers, at work while collectors and redrivers are killed.

A forger publishes dead letters with every header that we read, some of another's life, some naming dead letters that
are stored, with the mark of a real copy on another body. Each is a letter of its own, and displaces none.

An operator with the narrowest scope, a queue of its own beside that of the cell, tries to reach the cell's queue by
every endpoint: `ATTACKS` of the API's own tests, some of them in each cell, so that many cells try them all. What it is
allowed to ask for is really sent.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from fastapi import FastAPI

from redrive.admin import ApiSettings, Services, SharedBroker, WorkerActivity, WorkerState
from redrive.client import Client
from redrive.core import headers
from redrive.deadletters import DeadLetterService, Redriver, RedriverParts, RedriveService
from redrive.records import DeadLetter, Role
from redrive.stores import Store, open_store
from redrive.wire import Got
from redrive.wiring import find_connection_settings, new_id, new_random_bits, now_ms
from tests.unit.admin.conftest import Noted, app_on, make_token
from tests.unit.admin.scope_attacks import ATTACKS, MINE, MY_DLQ, THEIR_DLQ, THEIRS, Call, Ids
from tests.unit.admin.seeding import ask
from tests.unit.runtime.forged_headers import forged
from tests.unit.stores.made_letters import make_exported, make_letter, put

NARROW = "narrow"
"""The operator's name, and how the contents of its letters begin."""
LABELS_EACH = 5
"""So many endpoints are tried in a cell, and one more: `POST /api/v1/redrives`."""


def forged_headers(queue: str, *, is_sent: bool) -> dict[str, Any]:
    """Every header that we read. Where all letters are sent back by somebody who may, it names the queue it was taken
    from; else another."""
    told = {**forged(queue), headers.REDRIVEN_MARK: "x" * 59, headers.ENVELOPE: 1, headers.PARKED_AT: -1}
    return {**told, headers.ORIGINAL_QUEUE: queue} if is_sent else told


def forged_of_stored(letters: Sequence[DeadLetter], copies: Sequence[Got], queue: str) -> list[dict[str, Any]]:
    """Headers that name stored letters: made up, and seen on real copies of them."""
    found: list[dict[str, Any]] = []
    for letter in letters[:2]:
        told = forged_headers(queue, is_sent=True)
        made_up = {headers.REDRIVEN_COUNT: letter.redrives, headers.REDRIVEN_MARK: f"{letter.id}.{'0' * 32}"}
        found.append({**told, headers.REDRIVEN_ID: letter.id, **made_up})
    for copy in copies[:2]:
        seen = copy.properties.headers
        found.append({name: seen[name] for name in headers.REDRIVEN_HEADERS} | {headers.ORIGINAL_QUEUE: queue})
    return found


@dataclass
class NarrowOperator:
    """One operator in one cell. `main` and `dlq` are the cell's, which it must not reach."""

    amqp_url: str
    database_url: str
    main: str
    dlq: str
    seed: str
    calls: int = 0
    reached: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _ids: Ids = field(default_factory=Ids)
    _token: str = ""

    @property
    def queue(self) -> str:
        return f"{self.main}.{NARROW}"

    @property
    def own_dlq(self) -> str:
        return f"{self.queue}.dead"

    async def set_up(self, store: Store, theirs: Sequence[DeadLetter], operation_id: str) -> None:
        """Its queues, its token and its letters, one of which says that it failed in the cell's queue."""
        async with Client(self.amqp_url) as client:
            channel = await client.channel()
            for name in (self.queue, self.own_dlq):
                await channel.declare_queue(name)
        self._token = await make_token(store, NARROW, Role.OPERATOR, now_ms=now_ms(), queues=(self.queue,))
        ids = self._ids
        for name, queue in (("mine", self.queue), ("edited", self.queue), ("forged", self.main)):
            letter = make_letter(
                id=new_id(),
                queue=queue,
                dlq=self.own_dlq,
                dlq_routing_key=self.own_dlq,
                routing_key=queue,
                group_id=f"{NARROW} {name}",
            )
            told = {headers.ORIGINAL_QUEUE: queue, headers.ORIGINAL_ROUTING_KEY: queue}
            body = {"content": f"{NARROW} {name}"}
            await put(store, [replace(make_exported(letter, body=body, headers=told), group_title=name)])
            setattr(ids, name, letter.id)
        ids.my_group, ids.forged_group = f"{NARROW} mine", f"{NARROW} forged"
        ids.theirs = theirs[0].id if theirs else new_id()
        ids.claimed = theirs[-1].id if theirs else new_id()
        ids.their_group = theirs[0].group_id if theirs else "none"
        ids.claimed_group = theirs[-1].group_id if theirs else "none"
        ids.their_operation = ids.whole_operation = operation_id or new_id()
        ids.token = new_id()

    async def attack(self) -> None:
        """Asks for all it can think of, whatever dies meanwhile."""
        rng = random.Random(self.seed)
        labels = [*rng.sample(sorted(ATTACKS), LABELS_EACH), "POST /api/v1/redrives"]
        async with await open_store(self.database_url) as store:
            place = find_connection_settings(url=self.amqp_url, database=self.database_url, environment={})
            broker = SharedBroker(place, store, patience_s=5.0)
            app = app_on(
                Services(
                    connections=place,
                    store=store,
                    dead_letters=DeadLetterService(store, clock_ms=now_ms),
                    redrives=RedriveService(store, clock_ms=now_ms, random_bits=new_random_bits),
                    broker=broker,
                    settings=ApiSettings(),
                    workers=lambda: WorkerState(activity=WorkerActivity.OFF),
                    observer=Noted(),
                    clock_ms=now_ms,
                    new_id=new_id,
                    wake=lambda: None,
                )
            )
            try:
                for label in labels:
                    calls = ATTACKS[label](self._ids)
                    for call in rng.sample(calls, min(len(calls), 8)):
                        await self._call(app, self._named(call))
            finally:
                await broker.close()

    async def send(self) -> None:
        """Whatever it was allowed to ask for is sent by a redriver."""
        async with await open_store(self.database_url) as store, Client(self.amqp_url) as client:
            redriver = Redriver(RedriverParts(store=store, client=client, owner=NARROW, clock_ms=now_ms))
            for operation_id in await store.operations.waiting():
                operation = await store.operations.get(operation_id)
                if operation is not None and operation.who == NARROW:
                    await redriver.run(operation_id)

    async def tear_down(self) -> None:
        async with Client(self.amqp_url) as client:
            channel = await client.channel()
            for name in (self.queue, self.own_dlq):
                await channel.delete_queue(name)

    async def _call(self, app: FastAPI, call: Call) -> None:
        method, path, body = call
        sent = {"Authorization": f"Bearer {self._token}"}
        if method == "PATCH":
            sent["If-Match"] = "*"
        content = b"" if body is None else msgspec.json.encode(body)
        if content:
            sent["Content-Type"] = "application/json"
        answer = await ask(app, method, path, headers=sent, body=content)
        self.calls += 1
        asked = f"{path} {body}"
        if answer.status_code >= 500 and answer.status_code != 503:
            self.notes.append(f"{method} {path} was answered with {answer.status_code}")
        for id in (self._ids.theirs, self._ids.claimed):
            if id in answer.text and id not in asked:
                self.reached.append(f"{id} shown by {method} {path}")

    def _named(self, call: Call) -> Call:
        """A call of the API's tests, with the names of this cell."""
        names = ((MY_DLQ, "\0a"), (THEIR_DLQ, "\0b"), (MINE, "\0c"), (THEIRS, "\0d"))
        real = {"\0a": self.own_dlq, "\0b": self.dlq, "\0c": self.queue, "\0d": self.main}

        def named(value: Any) -> Any:
            match value:
                case str():
                    for name, mark in names:
                        value = value.replace(name, mark)
                    for mark, name in real.items():
                        value = value.replace(mark, name)
                    return value
                case dict():
                    return {key: named(one) for key, one in value.items()}
                case list():
                    return [named(one) for one in value]
                case _:
                    return value

        method, path, body = call
        return method, named(path), named(body)
