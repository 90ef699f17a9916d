"""Random sequences on the embedded broker and on the real one: they must see the same, but for the relaxations."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redrive.embedded import EmbeddedBroker
from tests.live.embedded.operations import make_sequence
from tests.live.embedded.player import Grid, Player, TooLate, VirtualGrid
from tests.rig.brokers import Vhost
from tests.unit.embedded.threaded import broker_in_a_thread

SEQUENCES = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEQUENCES", "60"))
FIRST_SEED = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEED", "1"))
AT_A_TIME = 12
SETTLE_S = 0.03
TRIES_MAX = 3
LATE_MAX = 0.2
"""The part of sequences that may be left out because the machine was too slow."""


def seen_on_real(url: str, profile: str, seed: int) -> list[Any] | None:
    sequence = make_sequence(seed, profile)
    for attempt in range(TRIES_MAX):
        try:
            return Player(url, sequence, f"s{seed}t{attempt}").play(lambda: Grid(SETTLE_S))
        except TooLate:
            continue
    return None


def seen_on_embedded(broker: EmbeddedBroker, loop: asyncio.AbstractEventLoop, profile: str, seed: int) -> list[Any]:
    def advance(seconds: float) -> None:
        asyncio.run_coroutine_threadsafe(broker.advance(seconds), loop).result(10)

    return Player(broker.url, make_sequence(seed, profile), f"s{seed}").play(lambda: VirtualGrid(advance))


def first_difference(real: list[Any], embedded: list[Any]) -> str:
    for index, (one, other) in enumerate(zip(real, embedded, strict=False)):
        if one != other:
            before = "\n".join(f"    {step}" for step in real[:index])
            return f"after\n{before}\n  real     {one}\n  embedded {other}"
    return f"{len(real)} steps on the real broker, {len(embedded)} on the embedded one"


@pytest.mark.live
def test_random_sequences_look_the_same_on_both(vhost: Vhost) -> None:
    profile = vhost.profile
    seeds = range(FIRST_SEED, FIRST_SEED + SEQUENCES)
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        real = dict(
            zip(seeds, threads.map(lambda seed: seen_on_real(vhost.amqp_url, profile, seed), seeds), strict=True)
        )
    late = [seed for seed in seeds if real[seed] is None]
    different = {}
    with broker_in_a_thread(profile, time="manual", idle_s=0.0002) as (broker, loop):
        for seed in seeds:
            seen = real[seed]
            if seen is not None:
                embedded = seen_on_embedded(broker, loop, profile, seed)
                if embedded != seen:
                    different[seed] = first_difference(seen, embedded)
    report = "\n\n".join(f"seed {seed}: {text}" for seed, text in different.items())
    assert not different, f"{len(different)} of {len(seeds) - len(late)} differ on {profile}\n{report}"
    assert len(late) <= LATE_MAX * len(seeds), f"too slow a machine for {len(late)} of {len(seeds)} sequences"
