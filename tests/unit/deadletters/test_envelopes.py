"""A message that lies in an envelope is known, found and shown as itself: on the embedded broker, with both stores."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.stores import open_store
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.envelope_scene import EnvelopeScene, play_coming_back, play_strangers

PLAYS = (play_coming_back, play_strangers)


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("play", PLAYS)
def test_a_message_in_an_envelope_is_known_found_and_shown_as_itself(
    play: Callable[[EnvelopeScene], Awaitable[None]], database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db" if database == "sqlite" else request.getfixturevalue("postgres_url")

    async def steps() -> None:
        async with EmbeddedBroker("4.3") as broker, Client(broker.url) as client, await open_store(url) as store:
            await play(EnvelopeScene(client, store, broker.url))

    run_scenario(steps(), timeout_s=60)
