"""The same sequences on a real broker and on the embedded one, and what differed."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from redrive.embedded import EmbeddedBroker
from tests.live.embedded.operations import SCALE, make_sequence
from tests.live.embedded.player import Grid, Player, TooLate, VirtualGrid
from tests.unit.embedded.threaded import broker_in_a_thread

AT_A_TIME = (12 * SCALE, 4 * SCALE, 1)
"""Sequences side by side; those for which the machine was too slow are played again with fewer neighbours."""
SETTLE_S = 0.03 * SCALE
_PLAYS = count()


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What came of some sequences on one version. `unsteady` are the seeds about which nothing can be said."""

    profile: str
    seeds: range
    operations: int = 0
    different: dict[int, str] = field(default_factory=dict)
    unsteady: list[int] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """The sequences that both brokers played to the end."""
        return len(self.seeds) - len(self.unsteady)


def compare(url: str, profile: str, seeds: range) -> Comparison:
    """Play them all on both; a difference counts when the real broker repeats its own answers."""
    outcome = Comparison(profile=profile, seeds=seeds)
    real = all_seen_on_real(url, profile, seeds)
    with broker_in_a_thread(profile, time="manual", idle_s=0.0002) as (broker, loop):
        for seed, seen in real.items():
            if seen is None:
                outcome.unsteady.append(seed)
                continue
            embedded = seen_on_embedded(broker, loop, profile, seed)
            if embedded != seen:
                again = seen_on_real(url, profile, seed)  # with no neighbours: does the real broker agree with itself?
                if again == seen:
                    outcome.different[seed] = first_difference(seen, embedded)
                elif again != embedded:
                    outcome.unsteady.append(seed)
                    continue
            outcome.operations += len(seen)
    return outcome


def all_seen_on_real(url: str, profile: str, seeds: Iterable[int]) -> dict[int, list[Any] | None]:
    """What the real broker showed, by seed; None where it was too slow for the grid even with no neighbours."""
    seen: dict[int, list[Any] | None] = dict.fromkeys(seeds)
    for at_a_time in AT_A_TIME:
        late = [seed for seed in seen if seen[seed] is None]
        with ThreadPoolExecutor(at_a_time) as threads:
            seen |= zip(late, threads.map(lambda seed: seen_on_real(url, profile, seed), late), strict=True)
    return seen


def seen_on_real(url: str, profile: str, seed: int) -> list[Any] | None:
    """None when it was too slow for the grid."""
    try:
        return Player(url, make_sequence(seed, profile), f"s{seed}n{next(_PLAYS)}", lambda: Grid(SETTLE_S)).play()
    except TooLate:
        return None


def seen_on_embedded(broker: EmbeddedBroker, loop: asyncio.AbstractEventLoop, profile: str, seed: int) -> list[Any]:
    """What the embedded broker shows, in virtual time."""

    def advance(seconds: float) -> None:
        asyncio.run_coroutine_threadsafe(broker.advance(seconds), loop).result(10)

    return Player(broker.url, make_sequence(seed, profile), f"s{seed}", lambda: VirtualGrid(advance)).play()


def first_difference(real: list[Any], embedded: list[Any]) -> str:
    """The first step seen differently, with all steps before it."""
    for index, (one, other) in enumerate(zip(real, embedded, strict=False)):
        if one != other:
            before = "\n".join(f"    {step}" for step in real[:index])
            return f"after\n{before}\n  real     {one}\n  embedded {other}"
    return f"{len(real)} steps on the real broker, {len(embedded)} on the embedded one"
