"""Random sequences on the embedded broker and on the real one: they must see the same, but for the relaxations."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from redrive.embedded import EmbeddedBroker
from tests.live.embedded.operations import make_sequence
from tests.live.embedded.player import Grid, Player, TooLate, VirtualGrid
from tests.rig.brokers import Vhost
from tests.unit.embedded.threaded import broker_in_a_thread

SEQUENCES = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEQUENCES", "60"))
FIRST_SEED = int(os.environ.get("REDRIVE_DIFFERENTIAL_SEED", "1"))
PLAYS = count()
AT_A_TIME = (12, 4, 1)
"""Sequences side by side; those for which the machine was too slow are played again with fewer neighbours."""
SETTLE_S = 0.03
UNSTEADY_MAX = 0.1
"""The part of sequences that may be left out: too slow a machine, or a real broker that disagrees with itself."""


def seen_on_real(url: str, profile: str, seed: int) -> list[Any] | None:
    """None when it was too slow for the grid."""
    try:
        return Player(url, make_sequence(seed, profile), f"s{seed}n{next(PLAYS)}").play(lambda: Grid(SETTLE_S))
    except TooLate:
        return None


def all_seen_on_real(url: str, profile: str, seeds: range) -> dict[int, list[Any] | None]:
    seen: dict[int, list[Any] | None] = dict.fromkeys(seeds)
    for at_a_time in AT_A_TIME:
        late = [seed for seed in seeds if seen[seed] is None]
        with ThreadPoolExecutor(at_a_time) as threads:
            seen |= zip(late, threads.map(lambda seed: seen_on_real(url, profile, seed), late), strict=True)
    return seen


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
    url, profile = vhost.amqp_url, vhost.profile
    seeds = range(FIRST_SEED, FIRST_SEED + SEQUENCES)
    real = all_seen_on_real(url, profile, seeds)
    unsteady = [seed for seed in seeds if real[seed] is None]
    different = {}
    with broker_in_a_thread(profile, time="manual", idle_s=0.0002) as (broker, loop):
        for seed in seeds:
            seen = real[seed]
            if seen is None:
                continue
            embedded = seen_on_embedded(broker, loop, profile, seed)
            if embedded == seen:
                continue
            again = seen_on_real(url, profile, seed)  # with no neighbours: does the real broker agree with itself?
            if again == seen:
                different[seed] = first_difference(seen, embedded)
            elif again != embedded:
                unsteady.append(seed)
    print(f"{profile}: {len(seeds)} sequences, {len(different)} different, {len(unsteady)} left out {unsteady}")
    report = "\n\n".join(f"seed {seed}: {text}" for seed, text in different.items())
    assert not different, f"{len(different)} of {len(seeds)} differ on {profile}\n{report}"
    assert len(unsteady) <= UNSTEADY_MAX * len(seeds), f"nothing can be said about {len(unsteady)} of {len(seeds)}"
