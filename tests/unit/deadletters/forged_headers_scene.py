"""A publisher that forges what redriven copies say, and where every message is then. Played on any broker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redrive.client import Client, Outgoing
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.redrive.operation_run import RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.records import DeadLetter, NewOperation, OperationKind, Selection, Status, make_id
from redrive.stores import Store
from redrive.wire import Got, Properties
from tests.unit.deadletters.collector_scene import (
    make_collector,
    now_ms,
    park,
    random_bits,
    ready,
    stored_letters,
    wait_for,
)

MAIN, DLQ, OTHER_MAIN, OTHER_DLQ = "orders", "orders.dlq", "payments", "payments.dlq"
BODY = b'{"order": 1}'
MARK = "x-redriven-mark"


@dataclass
class ForgingScene:
    """Two queues with their dead-letter queues, collected into a store."""

    client: Client
    store: Store
    vhost: str = "/"
    queue_type: str = "classic"

    async def set_up(self) -> None:
        channel = await self.client.channel()
        for main, dlq in ((MAIN, DLQ), (OTHER_MAIN, OTHER_DLQ)):
            kind = {"x-queue-type": self.queue_type}
            await channel.declare_queue(dlq, arguments=kind)
            to_dlq = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq}
            await channel.declare_queue(main, arguments={**kind, **to_dlq})
        await channel.close()

    async def die(self, queue: str = MAIN) -> None:
        """Everything in a queue is rejected."""
        channel = await self.client.channel()
        count = 0
        while (got := await channel.get_message(queue)) is not None:
            channel.reject(got, requeue=False)
            count += 1
        await channel.close()
        dlq = DLQ if queue == MAIN else OTHER_DLQ
        await wait_for(lambda: self._has(dlq, count))

    async def take(self, queue: str = MAIN) -> Got:
        """The one message of a queue, taken for good."""
        channel = await self.client.channel()
        got = await channel.get_message(queue, no_ack=True)
        await channel.close()
        assert got is not None
        return got

    async def forge(
        self, headers: Mapping[str, Any], *, dlq: str = DLQ, body: bytes = b"forged", message_id: str = "f"
    ) -> None:
        """Publishes into a dead-letter queue what a stranger may."""
        properties = Properties.of(headers=dict(headers), message_id=message_id, delivery_mode=2)
        await park(self.client, dlq, [(properties, body)])

    async def publish(self, body: bytes = BODY, message_id: str = "m1", queue: str = MAIN) -> None:
        await park(self.client, queue, [(Properties.of(message_id=message_id, delivery_mode=2), body)])

    async def publish_as(self, exchange: str, key: str, body: bytes = BODY) -> None:
        """Publishes through a topic exchange, as an application does."""
        channel = await self.client.channel()
        await channel.declare_exchange(exchange, "topic")
        await channel.bind_queue(MAIN, exchange, key)
        await channel.close()
        publisher = await self.client.publisher()
        await publisher.publish_many([Outgoing(exchange, key, body, Properties.of(message_id="m1"), True)])
        await publisher.close()
        await wait_for(lambda: self._has(MAIN, 1))

    async def resend(self, got: Got, queue: str) -> None:
        """The same message once more, to the byte."""
        publisher = await self.client.publisher()
        await publisher.publish_many([Outgoing("", queue, got.body, Properties(got.header), True)])
        await publisher.close()

    async def collect(self) -> None:
        sources = [Source(vhost=self.vhost, dlq=dlq, queue_type=self.queue_type) for dlq in (DLQ, OTHER_DLQ)]
        report = await make_collector(self.client, self.store, sources).run(once=True)
        assert report.left == {}

    async def redrive(self, letter_id: str) -> None:
        """Sends one letter back; its copy lies in the main queue then."""
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=(letter_id,)), who="ada")
        operation = await self.store.operations.create(new, id=make_id(now_ms(), random_bits()), now_ms=now_ms())
        parts = RedriverParts(store=self.store, client=self.client, owner="runner", clock_ms=now_ms)
        ended = await Redriver(parts).run(operation.id)
        assert (ended.sent, ended.refused) == (1, 0), ended
        await wait_for(lambda: self._has(MAIN, 1))

    async def letters(self) -> dict[str, DeadLetter]:
        return {one.id: one for one in await stored_letters(self.store)}

    async def body(self, letter_id: str) -> bytes:
        content = await self.store.letters.content(letter_id)
        assert content is not None
        return content.body

    async def _has(self, queue: str, count: int) -> bool:
        return await ready(self.client, queue) >= count


async def play_forged_headers(scene: ForgingScene) -> None:
    """A pending letter stands where it stood, whatever a stranger's headers say of it."""
    await scene.set_up()
    await scene.publish()
    await scene.die()
    await scene.collect()
    (first,) = (await scene.letters()).values()
    made_up = f"{first.id}.{'0' * 32}"
    forgeries: list[dict[str, Any]] = [
        {"x-redriven-id": first.id},
        {"x-redriven-id": first.id, "x-redriven-count": 0},
        {"x-redriven-id": first.id, "x-redriven-count": 0, MARK: made_up},
        {"x-redriven-id": first.id, "x-redriven-count": 1, MARK: 7},
        {"x-redriven-id": first.id, "x-redriven-count": -1, MARK: "x" * 70_000},
        {"x-redriven-id": first.id, "x-original-queue": MAIN, "x-redrive-reason": "attempts", MARK: {"a": [1]}},
    ]
    for number, headers in enumerate(forgeries):
        for dlq in (DLQ, OTHER_DLQ):
            await scene.forge(headers, dlq=dlq, message_id=f"f{number}")
    await scene.collect()
    letters = await scene.letters()
    assert len(letters) == 1 + 2 * len(forgeries)
    assert letters.pop(first.id) == first
    assert await scene.body(first.id) == BODY
    assert {(one.status, one.copy_of, one.redrives) for one in letters.values()} == {(Status.PENDING, None, 0)}
    audited = (await scene.store.audit.page(100, action="letters.unproven"))[0]
    assert sum(one.count for one in audited) == 2 * len(forgeries)
    assert {one.subject for one in audited} == {DLQ, OTHER_DLQ}
    assert all(set(one.detail["named"]) == {first.id} for one in audited)


async def play_copied_marks(scene: ForgingScene) -> None:
    """A mark that somebody saw proves nothing on another message, and a second time no more than that it is a copy."""
    await scene.set_up()
    await scene.publish()
    await scene.die()
    await scene.collect()
    (first,) = (await scene.letters()).values()
    await scene.redrive(first.id)
    copy = await scene.take()
    seen = copy.properties.headers
    assert seen["x-redriven-id"] == first.id
    assert MARK in seen
    # What a handler makes of it with `headers=message.headers`: another body, another id; other counts.
    await scene.forge(seen, body=b"new event", message_id="m1")
    await scene.forge(seen, body=BODY, message_id="new id")
    await scene.forge({**seen, "x-redriven-count": 2}, body=BODY, message_id="m1")
    await scene.collect()
    letters = await scene.letters()
    assert len(letters) == 4
    assert letters[first.id].status is Status.RETRYING
    assert {one.copy_of for one in letters.values()} == {None}
    # The copy itself, into another queue's dead letters: a copy that died, and none of the letter's own recurrences.
    await scene.resend(copy, OTHER_DLQ)
    await scene.collect()
    letters = await scene.letters()
    (elsewhere,) = [one for one in letters.values() if one.dlq == OTHER_DLQ]
    assert (elsewhere.copy_of, letters[first.id].status) == (first.id, Status.RETRYING)
    # At last where it belongs: it comes back, once.
    await scene.resend(copy, MAIN)
    await scene.die()
    await scene.collect()
    back = (await scene.letters())[first.id]
    assert (back.status, back.returns, back.queue, back.dlq) == (Status.PENDING, 1, MAIN, DLQ)
    (entry,) = (await scene.store.audit.page(10, action="letters.came_back"))[0]
    assert (entry.count, entry.detail["ids"]) == (1, [first.id])
    await scene.resend(copy, DLQ)
    await scene.collect()
    letters = await scene.letters()
    assert len(letters) == 6
    assert letters[first.id] == back
    assert sorted(one.copy_of or "" for one in letters.values()) == ["", "", "", "", first.id, first.id]


async def play_origin(scene: ForgingScene) -> None:
    """Where a message came from is known after every redrive as after the first death, however it was parked."""
    await scene.set_up()
    await scene.publish_as("shop", "orders.placed")
    await scene.die()
    await scene.collect()
    (first,) = (await scene.letters()).values()
    assert (first.exchange, first.routing_key, first.told_by) == ("shop", "orders.placed", "x-death")
    for turn in (1, 2, 3):
        await scene.redrive(first.id)
        copy = await scene.take()
        origin = {name: copy.properties.header(f"x-original-{name}") for name in ("queue", "exchange", "routing-key")}
        assert origin == {"queue": MAIN, "exchange": "shop", "routing-key": "orders.placed"}
        # Somebody's handler may drop what it does not know before it parks.
        headers = copy.properties.headers
        if turn == 3:
            headers = {name: value for name, value in headers.items() if not name.startswith("x-original-")}
        await scene.forge(headers, dlq=MAIN, body=copy.body, message_id="m1")
        await scene.die()
        await scene.collect()
        (letter,) = (await scene.letters()).values()
        assert (letter.exchange, letter.routing_key, letter.queue) == ("shop", "orders.placed", MAIN)
        assert (letter.returns, letter.redrives) == (turn, turn)


async def play_forged_count(scene: ForgingScene) -> None:
    """A publisher's x-delivery-count stays on a message until the broker counts itself, and not every return counts: a
    count that the broker never reaches stops no queue."""
    await scene.set_up()
    await scene.forge({"x-delivery-count": 99, "x-acquired-count": 99})
    channel = await scene.client.channel()
    got = await channel.get_message(DLQ)
    assert got is not None
    channel.nack(got, requeue=True)
    await channel.close()
    await scene.collect()
    assert [one.message_id for one in (await scene.letters()).values()] == ["f"]
