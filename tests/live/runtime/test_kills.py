"""A seeded sample of the kill matrix; `make matrix` plays the whole of it (python -m tests.live.runtime.kills)."""

import asyncio

import pytest

from redrive.embedded import EmbeddedBroker
from tests.live.runtime.kills.cells import Cell, all_cells, sample_cells
from tests.live.runtime.kills.scene import Account, Scene
from tests.rig.brokers import Vhost
from tests.rig.versions import LABELS

SEED = 20261115
SAMPLE = 9


async def play(url: str, cells: list[Cell]) -> list[Account]:
    scene = Scene(url)
    return list(await asyncio.gather(*(scene.play(cell, f"k{number}") for number, cell in enumerate(cells))))


def check(accounts: list[Account]) -> None:
    problems = [f"{one.cell}: {problem}" for one in accounts for problem in one.problems()]
    assert problems == []


@pytest.mark.live
def test_a_killed_consumer_loses_nothing(vhost: Vhost) -> None:
    cells = sample_cells(vhost.broker.label, seed=SEED, count=SAMPLE)
    check(asyncio.run(play(vhost.amqp_url, cells)))


@pytest.mark.slow
@pytest.mark.parametrize("profile", LABELS)
def test_a_killed_consumer_loses_nothing_on_the_embedded_broker(profile: str) -> None:
    async def scenario() -> list[Account]:
        async with EmbeddedBroker(profile) as broker:
            return await play(broker.url, sample_cells(profile, seed=SEED, count=SAMPLE))

    check(asyncio.run(scenario()))


def test_the_matrix_has_a_place_between_any_two_commands_of_every_shape() -> None:
    cells = list(all_cells("4.3"))
    assert len(cells) == len(set(cells))
    assert {(cell.shape, cell.flow) for cell in cells} == {
        (shape, flow)
        for shape in ("ladder", "native", "tiered", "service", "per-queue", "quorum", "requeue")
        for flow in ("ack", "retry", "park", "requeue")
    }
