"""`python -m tests.live.runtime.kills`: the whole matrix on every version and the embedded broker, printed and kept."""

import argparse
import asyncio
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.amqp.broker import start_broker
from rig.versions import LABELS

from redrive.embedded import EmbeddedBroker
from tests.live.runtime.kills.cells import FLOWS, SHAPES, all_cells, places_of
from tests.live.runtime.kills.scene import Account, Scene

ROOT = Path(__file__).parents[4]
KEPT = ROOT / "bench" / "results" / "kill-matrix.json"
PAGE = ROOT / "docs" / "kill-matrix.md"


async def play_all(url: str, version: str, flows: Sequence[str], *, at_once: int) -> list[Account]:
    """Every cell of a version and these flows on one broker."""
    scene = Scene(url, at_once=at_once)
    cells = [cell for cell in all_cells(version) if cell.flow in flows]
    accounts = await asyncio.gather(*(scene.play(cell, f"k{number}") for number, cell in enumerate(cells)))
    return list(accounts)


async def play_embedded(version: str, flows: Sequence[str], *, at_once: int) -> list[Account]:
    """The same on the embedded broker."""
    async with EmbeddedBroker(version) as broker:
        return await play_all(broker.url, version, flows, at_once=at_once)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every cell held."""
    parser = argparse.ArgumentParser(prog="python -m tests.live.runtime.kills")
    parser.add_argument("--version", choices=LABELS, action="append", help="default: all")
    parser.add_argument("--flow", choices=FLOWS, action="append", help="default: all")
    parser.add_argument("--embedded", action="store_true", help="on the embedded broker only")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help=f"write {PAGE.name} and {KEPT.name}")
    chosen = parser.parse_args(arguments)
    if chosen.keep and (chosen.version or chosen.flow or chosen.embedded):
        parser.error("only the whole matrix is kept")
    results: dict[str, list[Account]] = {}
    flows = chosen.flow or FLOWS
    for version in chosen.version or LABELS:
        if not chosen.embedded:
            where = f"RabbitMQ {version}"
            with start_broker(version) as broker:
                results[where] = asyncio.run(play_all(broker.url, version, flows, at_once=chosen.at_once))
            say(where, results[where])
        where = f"embedded {version}"
        results[where] = asyncio.run(play_embedded(version, flows, at_once=chosen.at_once))
        say(where, results[where])
    if chosen.keep:
        keep(results)
    return 1 if any(one.problems() for accounts in results.values() for one in accounts) else 0


def say(where: str, accounts: Sequence[Account]) -> None:
    """One line for a broker, and one for everything that does not hold."""
    lost = sum(len(one.lost) for one in accounts)
    doubled = sum(one.duplicates for one in accounts)
    print(f"{where}: {len(accounts)} kills, {lost} messages lost, {doubled} duplicates", flush=True)
    for one in accounts:
        for problem in one.problems():
            print(f"  {one.cell.shape} {one.cell.flow} {one.cell.place}: {problem}", file=sys.stderr, flush=True)


def keep(results: dict[str, list[Account]]) -> None:
    """The raw accounts, and the page made of them."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    raw = {
        where: [
            {
                "shape": one.cell.shape,
                "flow": one.cell.flow,
                "place": one.cell.place,
                "ends": one.ends,
                "runs": dict(one.runs),
                "problems": one.problems(),
            }
            for one in accounts
        ]
        for where, accounts in results.items()
    }
    KEPT.write_text(json.dumps({"date": today, "results": raw}, indent=1) + "\n")
    PAGE.write_text(page(results, today))


def page(results: dict[str, list[Account]], today: str) -> str:
    """The matrix as Markdown: lost / duplicates in each cell, summed over the brokers."""
    lines = [
        "# The kill matrix",
        "",
        "A consumer is killed with SIGKILL between any two commands of a decision, another one takes over, and every",
        "message is accounted for: handled, or in its parking queue. `make matrix` plays it all and writes this page;",
        f"`make test` plays a seeded sample. Last played {today}.",
        "",
        "| broker | kills | messages lost | duplicates |",
        "|---|--:|--:|--:|",
    ]
    for where, accounts in results.items():
        lost = sum(len(one.lost) for one in accounts)
        lines.append(f"| {where} | {len(accounts)} | {lost} | {sum(one.duplicates for one in accounts)} |")
    lines += [
        "",
        "Each cell: messages lost, then duplicates, over all these brokers (a dash where the place does not exist).",
        "Places marked *, and no others, make one message two, and each kill there must: the copy is with the broker",
        "and the original not yet acked, or a handler ended well and its ack was not written. Copies carry the same",
        "message id. Messages are persistent, and their parked copies are sent with no task waiting for the confirm;",
        "`waiting`: the publisher has no room at once, and a task waits; `transient`: the copy of a transient message.",
        "",
    ]
    for flow in FLOWS:
        places = list(dict.fromkeys(place for shape in SHAPES for place in places_of(shape, flow)))
        lines += [f"**{flow}**", "", f"| killed | {' | '.join(SHAPES)} |", f"|---|{'--:|' * len(SHAPES)}"]
        for place in places:
            lines.append(f"| {place} | {' | '.join(_cell(results, shape, flow, place) for shape in SHAPES)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(results: dict[str, list[Account]], shape: str, flow: str, place: str) -> str:
    found = [
        one
        for accounts in results.values()
        for one in accounts
        if (one.cell.shape, one.cell.flow, one.cell.place) == (shape, flow, place)
    ]
    if not found:
        return "–"
    lost, doubled = sum(len(one.lost) for one in found), sum(one.duplicates for one in found)
    mark = "*" if found[0].cell.may_duplicate or found[0].cell.may_repeat else ""
    return f"{lost}, {doubled}{mark}"


if __name__ == "__main__":
    sys.exit(main())
