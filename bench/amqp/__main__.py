"""`python -m bench.amqp`: measure, print the table, keep the numbers.

A run with everything in it is kept in bench/results/amqp.json and amqp.md (with the version in the name when it is not
the default one); one with parts left out (--quick, --only, --workloads) only where --output says.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rig.errors import NodeFailed
from rig.versions import LABELS

from bench.amqp.broker import BrokerMissing, start_broker
from bench.amqp.cases import CLIENTS, WORKLOADS, Client
from bench.amqp.harness import Harness, Measurement
from bench.amqp.programs import Missing, Program, Programs, cache_folder
from bench.amqp.report import Setting, keep, make_rows, render_text

RESULTS = Path(__file__).parents[1] / "results"
VERSION = "3.10"
ROUNDS = 5
ROUNDS_MAX = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 measured, 1 with a case that failed, 2 could not."""
    chosen = _parse(arguments)
    clients = [each for each in CLIENTS if _is_chosen(each, chosen.only, chosen.peers)]
    makers = Programs(cache=cache_folder(), say=_say)
    programs = {client.name: makers.get(client.name) for client in clients if client.name != "shovel"}
    missing = {name: program.reason for name, program in programs.items() if isinstance(program, Missing)}
    for name, reason in missing.items():
        _say(f"!!! {name} is left out: {reason}")
    filler = next((each for each in map(makers.get, ("c", "pika")) if isinstance(each, Program)), None)
    assert filler is not None, "pika needs nothing that is not there"
    measurements: list[Measurement] = []
    try:
        with start_broker(chosen.version) as broker:
            harness = Harness(broker, programs, filler=filler, quick=chosen.quick, say=_say)
            versions = broker.versions()
            measurements.extend(harness.run(clients, chosen.workloads, chosen.rounds))
    except (BrokerMissing, NodeFailed) as error:
        _say(str(error))
        return 2
    rows = make_rows(clients, chosen.workloads, measurements, missing)
    setting = Setting(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=_machine(),
        versions=versions,
        clients={each.name: harness.libraries[each.name] for each in clients if each.name in harness.libraries},
        rounds=chosen.rounds,
    )
    print(render_text(rows, setting))
    is_whole = not (chosen.quick or chosen.only or set(chosen.workloads) != set(WORKLOADS))
    if is_whole or chosen.output is not None:
        name = "amqp" if chosen.version == VERSION else f"amqp-{chosen.version}"
        for path in keep(chosen.output or RESULTS, name, rows, setting, measurements):
            _say(f"kept in {os.path.relpath(path)}")
    return 1 if any(each.error for each in measurements) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.amqp", description="Compare AMQP clients on a real broker.")
    names = [client.name for client in CLIENTS]
    parser.add_argument("--peers", action="store_true", help="aiormq, FastStream, amqplib and rascal too")
    parser.add_argument("--version", choices=LABELS, default=VERSION, help=f"of RabbitMQ (default {VERSION})")
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round: does it work?")
    parser.add_argument("--only", type=_names(names), default=[], metavar="CLIENT,…", help=", ".join(names))
    parser.add_argument("--workloads", type=_names(list(WORKLOADS)), default=list(WORKLOADS), metavar="W1,…")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="keep the results there, whatever was measured")
    chosen = parser.parse_args(arguments)
    if chosen.rounds is None:
        chosen.rounds = 1 if chosen.quick else ROUNDS
    if not 1 <= chosen.rounds <= ROUNDS_MAX:
        parser.error(f"--rounds is between 1 and {ROUNDS_MAX}")
    return chosen


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return [name for name in known if name in names]

    return read


def _is_chosen(client: Client, only: Sequence[str], peers: bool) -> bool:
    return client.name in only if only else peers or not client.is_peer


def _machine() -> dict[str, str]:
    return {"cores": f"{os.cpu_count()} cores", "processor": _processor(), "system": platform.platform(terse=True)}


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
