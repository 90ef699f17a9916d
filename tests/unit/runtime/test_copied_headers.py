"""A new message with headers copied from another one is handled as new, in every shape and however it arrives.

A handler, or a client of any kind, makes a new message with the headers of one that was retried, parked or redriven. It
must be handled, from attempt 1, with its own key and no id of another, and run as often as its queue says.
"""

from collections import defaultdict
from typing import Any

import pytest

from redrive import App, Message
from redrive.core import headers as names
from redrive.wire import Properties, digest_of
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.forged_headers import forged
from tests.unit.runtime.shape_declarations import SHAPES
from tests.unit.runtime.stage import Stage, compiled, stage, until

pytestmark = pytest.mark.slow

DIGEST = "x-redrive-digest"


async def account_for(on: Stage, text: str, queue: str, runs_max: int, sent: dict[str, tuple[str, str]]) -> None:
    """Runs all of it to its end: each message as often as its queue says, with its own route, and nothing else."""
    app = App(compiled(text))
    seen: dict[str, list[tuple[int, str, str, str | None]]] = defaultdict(list)

    @app.consumer(queue)
    async def handle(body: bytes, message: Message) -> None:
        seen[body.decode()].append((message.attempt, message.exchange, message.routing_key, message.id))
        raise ValueError("no")

    async with on.running(app):
        await until(lambda: {one: len(runs) for one, runs in seen.items()} == dict.fromkeys(sent, runs_max))
        parking = compiled(text).queue(queue).routes
        dead = "d" if parking is None else parking.parking.queue
        await until(lambda: on.broker.depths()[dead] == len(sent))
    assert sum(on.broker.depths().values()) == len(sent)
    assert on.decisions()["skipped"] == 0
    for body, runs in seen.items():
        assert [run[0] for run in runs] == list(range(1, runs_max + 1)), body
        assert {run[1:3] for run in runs} == {sent[body]}, body
        assert "another" not in {run[3] for run in runs}, body
    for got in await on.take(dead):
        found = got.properties.headers
        assert found["mine"] == "kept"
        if parking is None:
            continue  # rejected as it was
        assert found[names.FINAL_RETRY_COUNT] == runs_max - 1
        assert found[names.ORIGINAL_QUEUE] == queue
        assert (found[names.ORIGINAL_EXCHANGE], found[names.ORIGINAL_ROUTING_KEY]) == sent[got.body.decode()]
        assert not {names.REDRIVEN_ID, names.FIRST_SEEN} & found.keys()
        assert found.get(names.ATTEMPTS_BEFORE, 0) < runs_max  # its own, where the broker counts the others
        assert "another's" not in [one["error"] for one in found[names.HISTORY]]


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_message_with_every_header_forged_is_handled_as_the_new_one_it_is(shape: str, profile: str) -> None:
    if shape == "native" and profile != "4.3":
        return
    text, queue, exchange, key, runs_max = SHAPES[shape]

    async def scenario() -> None:
        async with stage(text, profile=profile) as on:
            sent = {}
            for body, (to, by) in {"by exchange": (exchange, key), "by name": ("", queue)}.items():
                await on.publish(by, body.encode(), exchange=to, headers=forged(queue))
                sent[body] = (to, by)
            await account_for(on, text, queue, runs_max, sent)

    run_scenario(scenario(), timeout_s=30)


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
@pytest.mark.parametrize("shape", ["ladder", "tiered", "requeue", "service", "per-queue", "quorum"])
def test_a_message_that_a_plain_client_publishes_with_the_headers_of_a_retry_starts_afresh(
    shape: str, profile: str
) -> None:
    """The headers are not invented but taken from a real second attempt, digest, x-death and all; by the exchange,
    where the path tells, and by the queue's name where only the digest does."""
    text, queue, exchange, key, runs_max = SHAPES[shape]
    rejects = shape in ("service", "per-queue", "quorum")

    async def scenario() -> None:
        async with stage(text, profile=profile) as on:
            app = App(compiled(text))
            taken: list[dict[str, Any]] = []

            @app.consumer(queue)
            async def handle(body: bytes, message: Message) -> None:
                if message.attempt == 2:
                    taken.append(message.headers)
                    return
                raise ValueError("no")

            async with on.running(app):
                await on.publish(key, b"first", exchange=exchange, headers={"mine": "kept"})
                await until(lambda: taken and not on.broker.depths()[queue])
            assert names.DEATHS in taken[0] or shape == "requeue"
            sent = {"by exchange": (exchange, key)}
            if not rejects:  # an x-death that came straight to the queue can't be told from its own
                sent["by name"] = ("", queue)
            for body, (to, by) in sent.items():
                await on.publish(by, body.encode(), exchange=to, headers=taken[0])
            await account_for(on, text, queue, runs_max, sent)

    run_scenario(scenario(), timeout_s=30)


TIERED_AND_LADDER = """
exchanges: {e: topic}
queues:
  orders: {from: {e: ["orders.#"]}, retry: [30s]}
  e.user: {from: {e: ["user.*"]}, retry: {shape: tiered, domain: user}}
  audit: {from: {e: ["#"]}, retry: [30s]}
"""


@pytest.mark.parametrize("by", ["message.publish", "a plain client"])
@pytest.mark.parametrize("key", ["payments.retry", "user.retry", "orders.retry"])
def test_an_event_published_on_a_retry_run_with_its_headers_is_handled_by_everybody_who_hears_it(
    key: str, by: str
) -> None:
    """Whatever its key looks like, the way back of a declared tiered queue included."""

    async def scenario() -> None:
        async with stage(TIERED_AND_LADDER) as on:
            app = App(compiled(TIERED_AND_LADDER))
            heard: list[tuple[str, bytes, int, str]] = []

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                heard.append(("orders", body, message.attempt, message.routing_key))
                if body != b"order":
                    return
                if message.attempt == 1:
                    raise ValueError("not yet")
                if by == "message.publish":
                    await message.publish("e", key, b"new", headers=message.headers)
                else:
                    await on.publish(key, b"new", exchange="e", headers=message.headers)

            async def hear(queue: str, body: bytes, message: Message) -> None:
                heard.append((queue, body, message.attempt, message.routing_key))

            @app.consumer("e.user")
            async def user(body: bytes, message: Message) -> None:
                await hear("e.user", body, message)

            @app.consumer("audit")
            async def audit(body: bytes, message: Message) -> None:
                await hear("audit", body, message)

            wanted = {("audit", b"new", 1, key)}
            if key == "user.retry":
                wanted.add(("e.user", b"new", 1, key))
            if key == "orders.retry":
                wanted.add(("orders", b"new", 1, key))
            async with on.running(app):
                await on.publish("orders.placed", b"order", exchange="e")
                await until(lambda: wanted <= set(heard))
                await until(lambda: not sum(on.broker.depths().values()))
            assert {one for one in heard if one[1] == b"new"} == wanted
            assert on.decisions()["skipped"] == 0

    run_scenario(scenario())


def test_a_retry_of_a_declared_tiered_queue_is_still_skipped_by_those_who_only_hear_it() -> None:
    async def scenario() -> None:
        async with stage(TIERED_AND_LADDER) as on:
            app = App(compiled(TIERED_AND_LADDER))
            heard: list[tuple[str, int, str]] = []

            @app.consumer("e.user")
            async def user(body: bytes, message: Message) -> None:
                heard.append(("e.user", message.attempt, message.routing_key))
                if message.attempt < 3:
                    raise ValueError("not yet")

            @app.consumer("audit")
            async def audit(body: bytes, message: Message) -> None:
                heard.append(("audit", message.attempt, message.routing_key))

            async with on.running(app):
                await on.publish("user.created", b"new", exchange="e")
                await until(lambda: on.decisions()["skipped"] == 2 and len(heard) == 4)
                await until(lambda: not sum(on.broker.depths().values()))
            assert sorted(heard) == [("audit", 1, "user.created"), *(("e.user", n, "user.created") for n in (1, 2, 3))]

    run_scenario(scenario())


@pytest.mark.parametrize("profile", ["3.10", "4.3"])
def test_freeflows_own_consumers_and_ours_take_turns_with_a_message_and_it_ends(profile: str) -> None:
    """They write no digest. If their retries began anew with us, a fleet that changes over would retry for ever."""
    text, queue, exchange, _, runs_max = SHAPES["tiered"]

    async def scenario() -> None:
        async with stage(text, profile=profile) as on:
            app = App(compiled(text))
            routes = compiled(text).queue(queue).routes
            assert routes is not None
            first = routes.waits[0]
            seen: list[tuple[bytes, int, str]] = []

            @app.consumer(queue)
            async def handle(body: bytes, message: Message) -> None:
                seen.append((body, message.attempt, message.routing_key))
                raise ValueError("no")

            theirs = {"x-retry-count": 2, "x-original-routing-key": "a.created", "x-redrive-attempts-before": 50}
            async with on.running(app):
                await on.publish(first.routing_key, b"theirs", exchange=first.exchange, headers=theirs)
                # The same words on what did not wait are a new message's.
                await on.publish("a.retry", b"new", exchange=exchange, headers=theirs)
                await until(lambda: on.broker.depths()[routes.parking.queue] == 2)
            assert [one[1:] for one in seen if one[0] == b"theirs"] == [(3, "a.created"), (4, "a.created")]
            assert [one[1:] for one in seen if one[0] == b"new"] == [(n, "a.retry") for n in range(1, runs_max + 1)]
            for got in await on.take(routes.parking.queue):
                assert got.properties.headers[names.FINAL_RETRY_COUNT] == runs_max - 1
                key = {b"theirs": "a.created", b"new": "a.retry"}[got.body]
                assert got.properties.headers[names.ORIGINAL_ROUTING_KEY] == key

    run_scenario(scenario())


def test_what_a_handler_publishes_starts_afresh_and_keeps_its_authors_headers() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                await message.publish("", "orders.parked", b"new", headers={**message.headers, "x-tenant": "acme"})

            await on.publish("orders", headers={**forged("orders"), "traceparent": "00-1"})
            async with on.running(app):
                await until(lambda: on.decisions()["ack"])
            (got,) = await on.take("orders.parked")
            assert got.properties.headers == {"mine": "kept", "x-tenant": "acme", "traceparent": "00-1"}

    run_scenario(scenario())


def test_a_large_body_is_bound_by_its_length_its_beginning_and_its_end() -> None:
    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())
            attempts: list[int] = []

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                attempts.append(message.attempt)

            body = bytes(300_000)
            digest = digest_of(Properties.of(), "orders", message_id="a", body=body)
            async with on.running(app):
                for other in (body, body + b"\0", b"1" + body[1:], body[:-1] + b"1"):
                    await on.publish("orders", other, message_id="a", headers={names.RETRY_COUNT: 1, DIGEST: digest})
                await until(lambda: len(attempts) == 4)
            assert sorted(attempts) == [1, 1, 1, 2]

    run_scenario(scenario())
