"""The scenario of a seed: everything that will happen, as a value, before anything runs."""

from dataclasses import dataclass
from random import Random
from typing import Any

from redrive.core import Counter
from redrive.embedded import FaultRates
from redrive.topology import Compiled, QueuePlan, QueueType, compile_declaration, declare
from tests.simulation.consumer_options import ConsumerOptions, draw_consumer_options
from tests.simulation.declarations import draw_sections
from tests.simulation.forged_headers import forge_some
from tests.simulation.refusals import RefusalRates, draw_refusals
from tests.simulation.scripts import Limits
from tests.simulation.workloads import Sent, draw_workload

PROFILES = ("3.10", "4.0", "4.3")
LAPS_MAX = 12
"""How often a message may have to go round a wait queue for one long delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan:
    """One process's consumer of a queue."""

    queue: str
    prefetch: int
    concurrency: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process: what it consumes, and at which of its own steps it dies (counted from 1), if at any."""

    consumers: tuple[ConsumerPlan, ...]
    grace_s: float
    dies_at_step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """Something that happens from outside: to a process, by its number, or to the broker."""

    at_s: float
    kind: str
    process: int
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that follows from a seed."""

    seed: int
    profile: str
    sections: dict[str, Any]
    compiled: Compiled
    plans: dict[str, QueuePlan]
    """The consumed queues by name."""
    consumer_options: dict[str, ConsumerOptions]
    process_plans: tuple[ProcessPlan, ...]
    messages: tuple[Sent, ...]
    disruptions: tuple[Disruption, ...]
    rates: FaultRates | None
    refusals: RefusalRates | None
    routes: tuple[tuple[str, str], ...]
    heartbeat_s: int

    def limits(self, queue: str) -> Limits:
        """What handlers of a queue must not do for ever."""
        plan, options = self.plans[queue], self.consumer_options[queue]
        by_deliveries = plan.counted_by is Counter.DELIVERIES
        counted = not by_deliveries or self.counts_requeues(queue)
        native = plan.shape_name == "native"
        waits = () if plan.routes is None else plan.routes.waits
        return Limits(
            may_fail_for_ever=counted,
            may_crash_for_ever=native or (not by_deliveries and options.crashes_max is not None),
            may_be_absent_for_ever=options.pause_after is None,
            delay_s_max=LAPS_MAX * max([wait.delay_ms // 1000 for wait in waits], default=60),
        )

    def counts_requeues(self, queue: str) -> bool:
        """Whether the broker counts the shape's requeues: the rejects of `native`, a nack on quorum queues up to
        4.0."""
        plan = self.plans[queue]
        return plan.shape_name == "native" or (plan.queue.type == QueueType.QUORUM and self.profile != "4.3")


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    random = Random(f"scenario {seed}")
    profile = random.choice(PROFILES)
    sections = draw_sections(random, profile)
    compiled = compile_declaration(declare(**sections))
    names = list(sections["queues"])
    routes = _routes(sections, compiled)
    calm = random.random() < 0.35
    return Scenario(
        seed=seed,
        profile=profile,
        sections=sections,
        compiled=compiled,
        plans={name: compiled.queue(name) for name in names},
        consumer_options={name: draw_consumer_options(random) for name in names},
        process_plans=_draw_process_plans(random, names, calm),
        messages=forge_some(seed, draw_workload(random, routes, names), compiled, names),
        disruptions=() if calm else _draw_disruptions(random),
        rates=None if calm else _draw_rates(random),
        refusals=None if calm else draw_refusals(seed),
        routes=routes,
        heartbeat_s=20 if random.random() < 0.05 else 0,
    )


def _routes(sections: dict[str, Any], compiled: Compiled) -> tuple[tuple[str, str], ...]:
    """Where the outside may publish: each leads to a queue."""
    routes: list[tuple[str, str]] = []
    for number, (name, entry) in enumerate(sections["queues"].items()):
        for exchange, keys in entry["from"].items():
            for key in keys:
                routes.append((exchange, key.replace("#", f"d{number}.any.thing").replace("*", "done")))
        if entry["retry"]["shape"] == "service":
            assert compiled.queue(name).routes is not None
            routes.append(("wms.main-exchange", ""))
    return tuple(routes)


def _draw_process_plans(random: Random, names: list[str], calm: bool) -> tuple[ProcessPlan, ...]:
    plans = []
    for number in range(random.choice((1, 1, 2, 3))):
        chosen = names if number == 0 else random.sample(names, random.randint(1, len(names)))
        consumers = tuple(
            ConsumerPlan(
                queue=name,
                prefetch=random.choice((1, 2, 5, 20, 100)),
                concurrency=random.choice((None, None, 1, 3)),
            )
            for name in chosen
        )
        dies = None if calm or random.random() < 0.7 else random.randint(1, 60)
        plans.append(ProcessPlan(consumers=consumers, grace_s=random.choice((0.0, 2.0, 25.0)), dies_at_step=dies))
    return tuple(plans)


def _draw_disruptions(random: Random) -> tuple[Disruption, ...]:
    kinds = ("crash", "crash", "stop", "restart", "down", "block")
    disruptions = [
        Disruption(
            at_s=random.choice((0.001, 0.5, 30.0, 600.0, 7200.0)) * random.random(),
            kind=random.choice(kinds),
            process=random.randrange(3),
            lasts_s=random.choice((0.0, 0.3, 8.0, 90.0)),
        )
        for _ in range(random.choice((0, 0, 1, 2, 4)))
    ]
    return tuple(sorted(disruptions, key=lambda one: one.at_s))


def _draw_rates(random: Random) -> FaultRates | None:
    if random.random() < 0.15:
        return None
    chosen = {
        name: random.choice((0.003, 0.02, 0.1))
        for name in ("close_before", "close_after", "delay", "block", "restart")
        if random.random() < 0.35
    }
    chosen |= {
        name: random.choice((0.02, 0.2))
        for name in ("lose_confirm", "nack_confirm", "delay_confirm")
        if random.random() < 0.35
    }
    return FaultRates(**chosen, seconds_max=random.choice((0.2, 5.0, 50.0)), faults_max=random.choice((1, 2, 5, 15)))
