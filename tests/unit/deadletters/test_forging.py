"""A stranger who writes our headers displaces no stored letter: on the embedded broker."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from redrive.client import Client
from redrive.embedded import PROFILES, EmbeddedBroker
from tests.unit.client.scenario import run_scenario
from tests.unit.deadletters.collecting_scene import sqlite_store
from tests.unit.deadletters.forging_scene import ForgingScene, play_copied_marks, play_forged_headers, play_origin

PLAYS = (play_forged_headers, play_copied_marks, play_origin)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("play", PLAYS)
def test_a_letter_stays_what_it_is(
    profile: str, play: Callable[[ForgingScene], Awaitable[None]], tmp_path: Path
) -> None:
    async def steps() -> None:
        async with EmbeddedBroker(profile) as broker, Client(broker.url) as client, sqlite_store(tmp_path) as store:
            await play(ForgingScene(client, store))

    run_scenario(steps())
