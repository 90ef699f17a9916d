"""A stranger who writes our headers displaces no stored letter: on real brokers, with both databases."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rig.brokers import Vhost

from redrive.client import Client
from redrive.stores import open_store
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.forged_headers_scene import (
    ForgingScene,
    play_copied_marks,
    play_forged_count,
    play_forged_headers,
    play_origin,
)

PLAYS = (play_forged_headers, play_copied_marks, play_origin, play_forged_count)
PLACES = (("quorum", "sqlite"), ("classic", "postgresql"))


@pytest.mark.live
@pytest.mark.parametrize(("kind", "database"), PLACES)
@pytest.mark.parametrize("play", PLAYS)
def test_a_letter_stays_what_it_is(
    vhost: Vhost,
    kind: str,
    database: str,
    play: Callable[[ForgingScene], Awaitable[None]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db" if database == "sqlite" else request.getfixturevalue("postgres_url")

    async def steps() -> None:
        async with Client(vhost.amqp_url) as client, await open_store(url) as store:
            await play(ForgingScene(client, store, vhost=vhost.name, queue_type=kind))

    run_scenario(steps())
