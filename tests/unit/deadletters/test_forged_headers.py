"""A stranger who writes our headers displaces no stored letter: on the embedded broker."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive.client import Client
from redrive.deadletters.collect.sources import Source
from redrive.deadletters.redrive.auto_retry import AutoRetry
from redrive.deadletters.redrive.operation_run import RedriverParts
from redrive.deadletters.redrive.redriver import Redriver
from redrive.embedded import PROFILES, EmbeddedBroker
from redrive.records import RetryRule, Selection
from redrive.stores import acting_as
from redrive.wire import Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collector_scene import (
    make_collector,
    now_ms,
    park,
    random_bits,
    sqlite_store,
    stored_letters,
)
from tests.unit.deadletters.forged_headers_scene import (
    DLQ,
    ForgingScene,
    play_copied_marks,
    play_forged_headers,
    play_origin,
)

pytestmark = pytest.mark.slow

PLAYS = (play_forged_headers, play_copied_marks, play_origin)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_count_that_the_broker_never_reaches_stops_no_queue(profile: str, tmp_path: Path) -> None:
    """A publisher's x-delivery-count stays on a message until the broker counts itself, and not every return counts."""

    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            channel = await client.channel()
            limit = {"x-delivery-limit": 20} if profile == "3.10" else {}
            await channel.declare_queue(DLQ, arguments={"x-queue-type": "quorum", **limit})
            forged = Properties.of(headers={"x-delivery-count": 99, "x-acquired-count": 99}, message_id="m1")
            await park(client, DLQ, [(forged, b"forged")])
            got = await channel.get_message(DLQ)
            assert got is not None
            channel.nack(got, requeue=True)
            await channel.close()
            source = Source(vhost="/", dlq=DLQ, queue_type="quorum", delivery_limit=20)
            report = await make_collector(client, store, [source]).run(once=True)
            assert report.left == {}
            assert [one.message_id for one in await stored_letters(store)] == ["m1"]

    run_scenario(steps())


def test_what_redrive_does_by_itself_has_no_person_in_the_audit(tmp_path: Path) -> None:
    async def steps() -> None:
        async with EmbeddedBroker() as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            scene = ForgingScene(client, store)
            await scene.set_up()
            with acting_as("cli:root"):
                rule = RetryRule(scope="queue:orders", attempts=3, first_ms=1, ceiling_ms=1, is_declared=True)
                await store.rules.declare([rule], queues=["orders"], now_ms=now_ms())
                await scene.publish()
                await scene.die()
                await scene.collect()
                parts = RedriverParts(store=store, client=client, owner="runner", clock_ms=lambda: now_ms() + 10_000)
                report = await AutoRetry(Redriver(parts), random_bits=random_bits).once()
                assert [one.sent for one in report.operations] == [1]
                await scene.die()
                await scene.collect()
                (letter,) = (await scene.letters()).values()
                await store.letters.resolve(Selection(ids=(letter.id,)), who="ada", why="w", now_ms=now_ms())
            entries, _ = await store.audit.page(50)
            assert {(one.who, one.action.partition(".")[0], one.token_id) for one in entries} == {
                ("auto_retry:", "rule", ""),
                ("auto-retry", "auto-retry", ""),
                ("collector", "letters", ""),
                ("ada", "letters", "cli:root"),
            }

    run_scenario(steps())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("play", PLAYS)
def test_a_letter_stays_what_it_is(
    profile: str, play: Callable[[ForgingScene], Awaitable[None]], tmp_path: Path
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await play(ForgingScene(client, store))

    run_scenario(steps())
