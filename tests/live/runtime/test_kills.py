"""A seeded sample of the kill matrix; `make matrix` plays the whole of it (python -m tests.live.runtime.kills)."""

import asyncio

import pytest
from rig.brokers import Vhost
from rig.versions import LABELS

from redrive.embedded import EmbeddedBroker
from tests.live.runtime.kills.cells import FLOWS, WRITTEN, Cell, all_cells, sample_cells
from tests.live.runtime.kills.scene import Account, Scene

SEED = 20261115
SAMPLE = 10


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


@pytest.mark.parametrize("version", LABELS)
def test_the_sample_has_every_shape_and_would_notice_an_early_ack_in_every_flow(version: str) -> None:
    sample = sample_cells(version, seed=SEED, count=SAMPLE)
    assert len(sample) == len(set(sample)) == SAMPLE
    assert {cell.shape for cell in sample} == {cell.shape for cell in all_cells(version)}
    assert {cell.flow for cell in sample if cell.shows_early_ack} == set(FLOWS)


@pytest.mark.parametrize(("place", "ends"), [("before publish", 1), (WRITTEN, 2), ("after ack written", 1)])
def test_a_cell_holds_with_as_many_ends_as_its_place_makes_and_no_others(place: str, ends: int) -> None:
    cell = Cell(shape="ladder", flow="park", place=place)
    for parked in range(4):
        found = {"before": 1, "after": 1, "target": parked}
        account = Account(cell=cell, ends=found, parked=["target"] * parked, killed=True)
        assert (account.problems() == []) == (parked == ends)


def test_the_matrix_has_a_place_between_any_two_commands_of_every_shape() -> None:
    cells = list(all_cells("4.3"))
    assert len(cells) == len(set(cells))
    assert {(cell.shape, cell.flow) for cell in cells} == {
        (shape, flow)
        for shape in ("ladder", "native", "tiered", "service", "per-queue", "quorum", "requeue")
        for flow in ("ack", "retry", "park", "park, waiting", "park, transient", "requeue")
    }
