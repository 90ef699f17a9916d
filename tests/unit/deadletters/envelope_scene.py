"""Redriven copies that come back in an envelope, and strangers' envelopes; where every message is then. Played on any
broker, with any store."""

from dataclasses import dataclass
from typing import Any

from redrive import App, Park
from redrive.client import Client
from redrive.deadletters.actions.dead_letter_service import DeadLetterService
from redrive.deadletters.actions.edits import LetterEdit
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.redrive.operation_run import RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.records import (
    DeadLetter,
    MessageContent,
    NewOperation,
    OperationKind,
    Selection,
    Status,
    make_id,
    parse_filter,
)
from redrive.stores import Store
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wire import ENVELOPE_CONTENT_TYPE, Got, Properties, wrap_in_envelope
from redrive.wiring import declare_missing, describe_content, running
from tests.unit.deadletters.collector_scene import (
    make_collector,
    now_ms,
    park,
    random_bits,
    ready,
    stored_letters,
    wait_for,
)

DECLARED = "queues: {orders: {retry: [30s]}}"
MAIN, DLQ = "orders", "orders.parked"
BODY = b'{"order": {"room": "blue"}}'
FULL = 130_650
"""Headers that leave room for those of a redriven copy, and none for those that parking that one adds."""


def compiled() -> Compiled:
    return compile_declaration(read_declaration(DECLARED, file="redrive.yaml"))


def large(message_id: str | None = "m1", **headers: Any) -> Properties:
    small = Properties.of(delivery_mode=2, message_id=message_id, headers={"mine": "velvet", **headers, "large": ""})
    return small.edit(headers={"large": "x" * (FULL - len(small.raw))})


def envelope(inner: Properties, body: bytes, **headers: Any) -> tuple[Properties, bytes]:
    """What anybody can make of a message."""
    named = {"x-redrive-envelope": 1, **headers}
    return Properties.of(headers=named, content_type=ENVELOPE_CONTENT_TYPE, delivery_mode=2), wrap_in_envelope(
        inner, body
    )


@dataclass
class EnvelopeScene:
    """A queue of ours, whose consumer parks all it gets; its dead letters are collected into a store."""

    client: Client
    store: Store
    url: str
    vhost: str = "/"

    async def fail(self) -> None:
        """Our own consumer gets what is in the main queue, and parks it."""
        app = App(compiled())

        @app.consumer(MAIN)
        async def handle(body: bytes) -> None:
            raise Park("no such room")

        async with running(app, url=self.url):
            await wait_for(lambda: self._has(MAIN, 0))
            await wait_for(lambda: self._has_some(DLQ))

    async def publish(self, properties: Properties, body: bytes = BODY) -> None:
        await declare_missing(compiled(), lambda _: Client(self.url))
        await park(self.client, MAIN, [(properties, body)])

    async def look(self) -> Got:
        """The one message of the dead-letter queue, which stays there."""
        channel = await self.client.channel()
        got = await channel.get_message(DLQ)
        assert got is not None
        channel.nack(got, requeue=True)
        await channel.close()
        return got

    async def collect(self) -> dict[str, DeadLetter]:
        source = Source(vhost=self.vhost, dlq=DLQ, queue_type="classic")
        report = await make_collector(self.client, self.store, [source]).run(once=True)
        assert report.left == {}
        return {one.id: one for one in await stored_letters(self.store)}

    async def redrive(self, letter_id: str) -> None:
        new = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(ids=(letter_id,)), who="ada")
        operation = await self.store.operations.create(new, id=make_id(now_ms(), random_bits()), now_ms=now_ms())
        parts = RedriverParts(store=self.store, client=self.client, owner="runner", clock_ms=now_ms)
        ended = await Redriver(parts).run(operation.id)
        assert (ended.sent, ended.refused) == (1, 0), ended

    async def content(self, letter_id: str) -> MessageContent:
        content = await self.store.letters.content(letter_id)
        assert content is not None
        return content

    async def found(self, text: str) -> set[str]:
        wanted = parse_filter(text, now_ms=now_ms())
        page = await self.store.letters.page(wanted, limit=100, cursor=None, newest_first=True, now_ms=now_ms())
        return {one.id for one in page.letters}

    async def _has(self, queue: str, count: int) -> bool:
        return await ready(self.client, queue) == count

    async def _has_some(self, queue: str) -> bool:
        return await ready(self.client, queue) > 0


async def play_coming_back(scene: EnvelopeScene) -> None:
    """A copy that is parked in an envelope is the row that it was sent from, twice; it is found, shown, edited and sent
    as the message that it is."""
    await scene.publish(large())
    await scene.fail()
    (first,) = (await scene.collect()).values()
    for turn in (1, 2):
        await scene.redrive(first.id)
        await scene.fail()
        parked = await scene.look()
        assert parked.properties.header("x-redrive-envelope") == 1, len(parked.properties.raw)
        (letter,) = (await scene.collect()).values()
        assert (letter.id, letter.status, letter.returns, letter.redrives) == (first.id, Status.PENDING, turn, turn)
        assert (letter.message_id, letter.queue, letter.reason) == ("m1", MAIN, first.reason)
        assert "no such room" in (letter.error_message or ""), letter
        content = await scene.content(first.id)
        assert content.body == BODY
        shown = describe_content(content)
        assert shown.headers["mine"] == "velvet"
        assert shown.headers["large"] == "x" * len(shown.headers["large"])
        assert "x-redrive-envelope" not in shown.headers
        assert shown.headers["x-original-queue"] == MAIN
    for text in ("body.order.room:blue", "header.mine:velvet", "velvet", "blue", "header.x-redrive-reason:park"):
        assert await scene.found(text) == {first.id}, text
    for text in ("body.order.room:red", "header.x-redrive-envelope:1"):
        assert await scene.found(text) == set(), text
    assert not (await scene.store.audit.page(10, action="letters.unproven"))[0]
    # EditedContent, it is the message that is edited, and goes out so.
    service = DeadLetterService(scene.store, clock_ms=now_ms)
    await service.edit(first.id, LetterEdit(body=b"mended", drop_headers=("large",)), who="ada", why="mend")
    await scene.redrive(first.id)
    channel = await scene.client.channel()
    sent = await channel.get_message(MAIN, no_ack=True)
    await channel.close()
    assert sent is not None
    assert (sent.body, sent.properties.message_id) == (b"mended", "m1")
    assert {name for name in sent.properties.headers if name in ("mine", "large", "x-redrive-envelope")} == {"mine"}


async def play_strangers(scene: EnvelopeScene) -> None:
    """Whatever looks like an envelope is a letter of its own, whole, and proves no more than it would without."""
    await scene.publish(Properties.of(message_id="m1", delivery_mode=2))
    await scene.fail()
    (first,) = (await scene.collect()).values()
    await scene.redrive(first.id)
    channel = await scene.client.channel()
    copy = await channel.get_message(MAIN, no_ack=True)
    await channel.close()
    assert copy is not None
    seen = copy.properties.headers
    own = Properties(copy.header)
    whole = wrap_in_envelope(own, BODY)
    outer, _ = envelope(own, BODY)
    pairs: list[tuple[Properties, bytes]] = [
        # Whole ones, around what proves nothing.
        envelope(own, b"another body"),
        envelope(own.edit(message_id="another"), BODY),
        envelope(Properties.of(message_id="m2"), BODY, **seen),
        envelope(own.edit(headers={"x-redriven-count": 7}), BODY),
        envelope(own.edit(headers={"x-redriven-mark": f"{first.id}.{'0' * 32}"}), BODY),
        # Around itself, and around one around itself.
        envelope(*envelope(own, BODY)),
        envelope(*envelope(*envelope(own, BODY))),
        # Not whole, and not ours.
        (outer, whole[: -len(BODY) - 1]),
        (outer, whole[:21]),
        (outer, b"redrive envelope 1\n\xff\xff\xff\xff" + bytes(100)),
        (outer, b"redrive envelope 1\n\x00\x00\x00\x01\x00" + BODY),
        (outer, b"redrive envelope 2\n" + whole[19:]),
        (outer, wrap_in_envelope(Properties(b"\x20\x00\x00\x00\x00\x05\xffabcd"), BODY)),
        (outer, wrap_in_envelope(Properties(own.raw + b"more"), BODY)),
        (outer, wrap_in_envelope(Properties(own.raw + bytes(2 << 20)), BODY)),
        (outer, wrap_in_envelope(Properties.of(headers={"deep": _deep(60)}), BODY)),
        (outer, wrap_in_envelope(Properties.of(headers={f"h{n}": True for n in range(9_000)}), BODY)),
        (outer, BODY),
        (outer, b""),
        (outer.edit(content_type="text/plain"), whole),
        (outer.edit(headers={"x-redrive-envelope": True}), whole),
        (outer.edit(headers={"x-redrive-envelope": "1"}), whole),
        (outer.edit(headers={"x-redrive-envelope": {"1": [1]}}), whole),
        (outer.edit(headers={}, drop=("x-redrive-envelope",)), whole),
        (
            outer.edit(headers={"x-original-queue": "payments", "x-death": "none"}),
            wrap_in_envelope(Properties(), b"\xff\xfe"),
        ),
    ]
    await park(scene.client, DLQ, pairs)
    letters = await scene.collect()
    assert len(letters) == 1 + len(pairs)
    stands = letters.pop(first.id)
    assert (stands.status, stands.returns, stands.queue) == (Status.RETRYING, 0, MAIN)
    assert (await scene.content(first.id)).body == BODY
    assert {(one.status, one.copy_of, one.returns) for one in letters.values()} == {(Status.PENDING, None, 0)}
    assert not (await scene.store.audit.page(10, action="letters.came_back"))[0]
    # Each is kept as it came, and can be shown, searched and exported.
    kept = []
    async for exported in scene.store.letters.stream(parse_filter("", now_ms=now_ms()), now_ms=now_ms()):
        if exported.letter.id != first.id:
            kept.append(exported.content.body)
        describe_content(await scene.content(exported.letter.id))
    assert sorted(kept) == sorted(body for _, body in pairs)
    await scene.found("body.order.room:blue header.mine:velvet")
    # And the copy itself, in an envelope that somebody else made of it, is the copy.
    await park(scene.client, DLQ, [envelope(own, BODY, **{"x-redrive-reason": "park"})])
    letters = await scene.collect()
    assert len(letters) == 1 + len(pairs)
    assert (letters[first.id].status, letters[first.id].returns) == (Status.PENDING, 1)


def _deep(levels: int) -> Any:
    return {"a": _deep(levels - 1)} if levels else 1
