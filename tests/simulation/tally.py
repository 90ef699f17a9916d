"""Many seeds: played one after the other or in several processes, and added up."""

from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from tests.simulation.auditor import Account, audit
from tests.simulation.scenarios import draw_scenario
from tests.simulation.world import play

_SEEDS_AT_ONCE = 20


@dataclass(slots=True, kw_only=True)
class Result:
    """One seed, played and audited."""

    seed: int
    hash: str
    account: Account
    faults: Counter[str]
    messages: int
    kills: int
    virtual_s: float


@dataclass(slots=True, kw_only=True)
class Tally:
    """The sum over seeds."""

    seeds: int = 0
    numbers: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    excepted: Counter[str] = field(default_factory=Counter)
    virtual_s: float = 0.0
    failing: dict[int, list[str]] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """One seed more."""
        account = result.account
        self.seeds += 1
        self.numbers.update(
            messages=result.messages,
            units=account.units,
            exactly_checked=account.exact,
            runs=account.runs,
            handled=account.handled,
            parked=account.parked,
            duplicates=account.duplicates,
            lost=account.lost,
            processes_killed=result.kills,
        )
        self.faults.update(result.faults)
        self.excepted.update(account.excepted)
        self.virtual_s += result.virtual_s
        if account.faults_found:
            self.failing[result.seed] = account.faults_found

    def as_json(self) -> dict[str, Any]:
        """For the record."""
        return {
            "seeds": self.seeds,
            **self.numbers,
            "documented_exceptions": dict(sorted(self.excepted.items())),
            "faults": dict(sorted(self.faults.items())),
            "virtual_days": round(self.virtual_s / 86_400),
            "failing_seeds": sorted(self.failing),
        }


def play_seed(seed: int) -> Result:
    """Plays and audits one seed. An exception of the simulation's own is a finding too."""
    played = play(draw_scenario(seed))
    return Result(
        seed=seed,
        hash=played.hash,
        account=audit(played),
        faults=played.faults,
        messages=len(played.scenario.messages) + len(played.children),
        kills=played.kills,
        virtual_s=played.took_s,
    )


def play_seeds(seeds: Iterable[int], *, workers: int) -> Generator[Result, None, None]:
    """Every result, in the order of the seeds; close it to leave the rest."""
    if workers < 2:
        yield from map(play_seed, seeds)
        return
    # Spawned, not forked: whoever runs this may have threads.
    with ProcessPoolExecutor(max_workers=workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(play_seed, seeds, chunksize=_SEEDS_AT_ONCE)
