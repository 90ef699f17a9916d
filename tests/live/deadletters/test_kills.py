"""A seeded sample of the crash matrix; `make matrix` plays the whole of it (python -m tests.live.deadletters.kills)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from rig import OwnNodes, Vhost
from rig.postgres import Postgres

from redrive.records import Status
from tests.live.deadletters.kills.__main__ import as_json, from_json
from tests.live.deadletters.kills.cells import STORES, WRITES, Cell, Flow, Victim, all_cells, sample_cells, windows_of
from tests.live.deadletters.kills.gate import STEPS_AFTER
from tests.live.deadletters.kills.gate import WRITES as GATED
from tests.live.deadletters.kills.ledger import (
    Account,
    Copy,
    Row,
    account_resolved,
    account_sent,
    account_stored,
)
from tests.live.deadletters.kills.matrix import House

SEED = 20261115


def check(accounts: list[Account]) -> None:
    problems = [f"{one.cell}: {problem}" for one in accounts for problem in one.problems()]
    assert problems == []


@pytest.mark.live
def test_a_killed_process_loses_nothing(vhost: Vhost, postgres: Postgres) -> None:
    cells = sample_cells(seed=SEED, victim=Victim.PROCESS, count=6)

    async def scenario() -> list[Account]:
        return await House(vhost.amqp_url, node=None, postgres=postgres).play(cells)

    check(asyncio.run(scenario()))


@pytest.mark.live(versions=("4.0",), matrix=("3.10", "4.3"))
def test_a_database_that_goes_away_loses_nothing(vhost: Vhost, own_postgres: Callable[[], Postgres]) -> None:
    postgres = own_postgres()
    cells = sample_cells(seed=SEED, victim=Victim.DATABASE, count=4)

    async def scenario() -> list[Account]:
        return await House(vhost.amqp_url, node=None, postgres=postgres).play(cells)

    check(asyncio.run(scenario()))


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_killed_broker_loses_nothing(own_node: OwnNodes) -> None:
    node = own_node()
    cells = sample_cells(seed=SEED, victim=Victim.BROKER, count=3, stores=("sqlite",))
    cells += [
        replace(cell, victim=Victim.MACHINE)
        for cell in sample_cells(seed=SEED + 1, victim=Victim.BROKER, count=2, stores=("sqlite",))
    ]

    async def scenario() -> list[Account]:
        return await House(node.amqp_url(), node=node, postgres=None).play(cells)

    check(asyncio.run(scenario()))


def test_the_matrix_has_every_window_of_every_flow() -> None:
    cells = list(all_cells())
    assert len(cells) == len(set(cells))
    for flow in set(Flow) - {Flow.COLLECT_TWINS}:
        for store in STORES:
            played = {cell.window for cell in cells if (cell.flow, cell.store) == (flow, store)}
            assert played == {window for victim in Victim for window in windows_of(flow, victim, store)}


def test_every_write_that_is_a_window_has_a_gate() -> None:
    gated = {*GATED.values(), "announcing"}
    assert {write for writes in WRITES.values() for write in writes} == gated
    assert set(STEPS_AFTER.values()) == {"chosen"}


def test_a_cell_that_was_not_reached_does_not_hold() -> None:
    cell = Cell(flow=Flow.COLLECT, victim=Victim.PROCESS, window="taken", store="sqlite", queue_type="quorum")
    assert Account(cell=cell, published=1).problems() == ["nothing was killed: the window was never reached"]


def test_a_cell_in_which_an_attacker_had_its_way_does_not_hold() -> None:
    account = Account(cell=CELL, published=1, reached=True, displaced=["a"], reached_by_attack=["m1 was deleted"])
    assert account.problems() == [
        "a was displaced by a forged letter",
        "reached from outside of its scope: m1 was deleted",
    ]


def test_an_account_with_attacks_is_kept_as_it_is() -> None:
    account = Account(cell=CELL, published=1, reached=True, forged=3, attacks=20, displaced=["a"])
    assert from_json(as_json(account)) == account


PUBLISHED = Counter({"m1": 1, "twin": 2})
CELL = Cell(flow=Flow.COLLECT, victim=Victim.PROCESS, window="taken", store="sqlite", queue_type="quorum")


def row(content: str, status: Status = Status.PENDING, *, id: str = "", is_copy: bool = False) -> Row:
    return Row(id=id or content, content=content, status=status, redrives=1, returns=0, is_copy=is_copy)


def copy(id: str, *, is_possible_duplicate: bool = False) -> Copy:
    return Copy(content=id, redriven_id=id, count=1, is_possible_duplicate=is_possible_duplicate)


@pytest.mark.parametrize(
    ("rows", "left", "lost", "marked", "unmarked"),
    [
        ([row("m1"), row("twin"), row("twin")], [], [], 0, []),
        ([row("m1"), row("twin")], ["twin"], [], 0, []),
        ([row("m1"), row("twin")], [], ["twin"], 0, []),
        ([row("m1"), row("m1"), row("twin"), row("twin")], [], [], 0, ["m1"]),
        ([row("m1"), row("twin"), row("twin")], ["m1"], [], 0, ["m1"]),
        ([row("m1"), row("m1", is_copy=True), row("twin"), row("twin")], [], [], 1, []),
    ],
)
def test_the_ledger_finds_what_the_store_lacks_or_has_twice(
    rows: list[Row], left: list[str], lost: list[str], marked: int, unmarked: list[str]
) -> None:
    account = Account(cell=CELL, published=3)
    account_stored(account, PUBLISHED, rows, left)
    assert (account.lost, account.marked, account.unmarked) == (lost, marked, unmarked)


@pytest.mark.parametrize(
    ("status", "copies", "lost", "unmarked", "doubts"),
    [
        (Status.RETRYING, 1, [], [], 0),
        (Status.RETRYING, 0, ["m1"], [], 0),
        (Status.RETRYING, 2, [], ["m1"], 0),
        (Status.PENDING, 1, [], ["m1"], 0),
        (Status.IN_DOUBT, 0, [], [], 1),
        (Status.IN_DOUBT, 2, [], ["m1"], 1),
    ],
)
def test_the_ledger_holds_every_status_against_the_copies_on_the_broker(
    status: Status, copies: int, lost: list[str], unmarked: list[str], doubts: int
) -> None:
    account = Account(cell=CELL, published=1)
    account_sent(account, [row("m1", status)], [copy("m1")] * copies)
    assert (account.lost, account.unmarked, account.doubts) == (lost, unmarked, doubts)


def test_the_ledger_counts_a_second_copy_only_as_marked_if_it_says_so() -> None:
    account = Account(cell=CELL, published=2)
    copies = [copy("m1"), copy("m1", is_possible_duplicate=True), copy("m2"), copy("m2")]
    account_resolved(account, [row("m1", Status.RETRYING), row("m2", Status.RETRYING)], copies)
    assert (account.marked, account.unmarked, account.lost) == (1, ["m2"], [])
