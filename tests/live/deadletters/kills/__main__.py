"""`python -m tests.live.deadletters.kills`: the crash matrix of dead letters, printed and kept."""

import argparse
import asyncio
import datetime
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig.node import Node
from rig.postgres import NOTHING, Postgres, find_programs
from rig.process_group import ProcessGroup
from rig.versions import LABELS, cache_folder, choose_installations, find_installations, installation_for

from tests.live.deadletters.kills.cells import STORES, Cell, Flow, Victim, all_cells
from tests.live.deadletters.kills.ledger import Account
from tests.live.deadletters.kills.matrix import AT_ONCE, House
from tests.live.deadletters.kills.page import write_page

ROOT = Path(__file__).parents[4]
KEPT = ROOT / "bench" / "results" / "dead-letter-kills.json"
PAGE = ROOT / "docs" / "dead-letter-kill-matrix.md"
WORDS = Path(__file__).parent / "windows.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every cell held."""
    chosen = _parse(arguments)
    cells = choose(chosen)
    results: dict[str, list[Account]] = {}
    for version in chosen.versions:
        started_s = time.monotonic()
        results[version] = play_version(version, cells, at_once=chosen.at_once)
        say(version, results[version], time.monotonic() - started_s)
        if chosen.keep:
            # After each: the whole takes an hour, and what was played counts.
            keep(results)
    return 1 if any(one.problems() for accounts in results.values() for one in accounts) else 0


def choose(chosen: argparse.Namespace) -> list[Cell]:
    """The cells somebody asked for; with a seed in another order, and with a sample fewer."""
    cells = [
        cell
        for cell in all_cells(chosen.stores)
        if cell.flow in chosen.flows and cell.victim in chosen.victims and chosen.window in ("", cell.window)
    ]
    if chosen.seed is not None:
        random.Random(chosen.seed).shuffle(cells)
    return cells if chosen.sample is None else cells[: chosen.sample]


def play_version(version: str, cells: Sequence[Cell], *, at_once: int) -> list[Account]:
    """All cells on a node and a PostgreSQL of their own."""
    installation = installation_for(version, choose_installations(find_installations(cache_folder())))
    if installation is None:
        sys.exit(f"RabbitMQ {version} is not here: run `python -m rig build {version}`")
    programs = find_programs()
    if programs is None:
        sys.exit(NOTHING)

    async def playing(node: Node, postgres: Postgres) -> list[Account]:
        return await House(node.amqp_url(), node=node, postgres=postgres, at_once=at_once).play(cells)

    with ProcessGroup() as run:
        node = Node(run, installation)
        postgres = Postgres(run, programs, fsync=True)
        postgres.start()
        node.start()
        return asyncio.run(playing(node, postgres))


def say(version: str, accounts: Sequence[Account], took_s: float) -> None:
    """One line for a version, and one for everything that does not hold."""
    lost = sum(len(one.lost) for one in accounts)
    marked = sum(one.marked for one in accounts)
    unmarked = sum(len(one.unmarked) for one in accounts)
    doubts = sum(one.doubts for one in accounts)
    kills = sum(one.reached for one in accounts)
    print(
        f"RabbitMQ {version}: {kills} kills, {lost} messages lost, {marked} duplicates marked, {unmarked} unmarked, "
        f"{doubts} in doubt; {sum(one.forged for one in accounts)} forged letters, "
        f"{sum(len(one.displaced) for one in accounts)} displaced; {sum(one.attacks for one in accounts)} attacks, "
        f"{sum(len(one.reached_by_attack) for one in accounts)} reached; {took_s:.0f} s",
        flush=True,
    )
    for one in accounts:
        for problem in one.problems():
            print(f"  {one.cell}: {problem}", file=sys.stderr, flush=True)
        if one.survivor:
            print(f"  {one.cell}: the survivor ended with {one.survivor.splitlines()[-1]}", file=sys.stderr, flush=True)


def keep(results: dict[str, list[Account]]) -> None:
    """The raw accounts, and the page made of them; cells that were not played now stay as they were."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    before = json.loads(KEPT.read_text())["results"] if KEPT.exists() else {}
    earlier = {version: [from_json(one) for one in accounts] for version, accounts in before.items()}
    kept = {}
    for version in LABELS:
        by_cell = {one.cell: one for one in (*earlier.get(version, ()), *results.get(version, ()))}
        if by_cell:
            kept[version] = list(by_cell.values())
    lines = [f" {json.dumps(version)}: [\n{_lines(accounts)}\n ]" for version, accounts in kept.items()]
    joined = ",\n".join(lines)
    KEPT.write_text(f'{{"date": "{today}", "results": {{\n{joined}\n}}}}\n')
    PAGE.write_text(write_page(kept, WORDS.read_text(), today))


def as_json(one: Account) -> dict[str, Any]:
    """An account, flat; what is nothing is left out."""
    account = {
        "part": one.cell.flow,
        "killed": one.cell.victim,
        "window": one.cell.window,
        "store": one.cell.store,
        "queues": one.cell.queue_type,
        "turn": one.cell.turn,
        "was_reached": one.reached,
        "published": one.published,
        "lost": one.lost,
        "duplicates_marked": one.marked,
        "duplicates_unmarked": one.unmarked,
        "in_doubt": one.doubts,
        "forged": one.forged,
        "displaced": one.displaced,
        "attacks": one.attacks,
        "reached_by_attack": one.reached_by_attack,
        "problems": one.problems(),
    }
    return {name: value for name, value in account.items() if value not in (0, [])}


def from_json(raw: dict[str, Any]) -> Account:
    """The account again."""
    cell = Cell(
        flow=Flow(raw["part"]),
        victim=Victim(raw["killed"]),
        window=raw["window"],
        store=raw["store"],
        queue_type=raw["queues"],
        turn=raw["turn"],
    )
    return Account(
        cell=cell,
        published=raw.get("published", 0),
        reached=raw.get("was_reached", False),
        lost=raw.get("lost", []),
        marked=raw.get("duplicates_marked", 0),
        unmarked=raw.get("duplicates_unmarked", []),
        doubts=raw.get("in_doubt", 0),
        forged=raw.get("forged", 0),
        displaced=raw.get("displaced", []),
        attacks=raw.get("attacks", 0),
        reached_by_attack=raw.get("reached_by_attack", []),
    )


def _lines(accounts: Sequence[Account]) -> str:
    """One account a line, so that a difference can be read."""
    return ",\n".join(f"  {json.dumps(as_json(one))}" for one in accounts)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.live.deadletters.kills")
    parser.add_argument("--versions", choices=LABELS, nargs="+", default=LABELS)
    parser.add_argument("--stores", choices=STORES, nargs="+", default=STORES)
    parser.add_argument("--flows", type=Flow, nargs="+", default=list(Flow))
    parser.add_argument("--victims", type=Victim, nargs="+", default=list(Victim))
    parser.add_argument("--window", default="", help="only this one")
    parser.add_argument("--seed", type=int, help="shuffle the cells")
    parser.add_argument("--sample", type=int, help="only so many, after shuffling")
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--keep", action="store_true", help=f"write {PAGE.name} and {KEPT.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
