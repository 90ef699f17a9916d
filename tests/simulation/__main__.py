"""python -m tests.simulation: one seed step by step, or the sum of many (after a SIGTERM, of those played so far)."""

import argparse
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from redrive.embedded.engine.journal import Journal
from tests.simulation.auditor import audit
from tests.simulation.scenarios import Scenario, draw_scenario
from tests.simulation.tally import Tally, play_seeds
from tests.simulation.workloads import BEGIN_S
from tests.simulation.world import PlayedScenario, play

_TELL_EVERY = 500


def main(arguments: list[str] | None = None) -> int:
    """0 if every message is accounted for, 1 if not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play one seed")
    parser.add_argument("--seeds", default="0:300", help="play many, FROM:TO (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--verbose", action="store_true", help="with --seed: tell everything that happened")
    parser.add_argument("--message", type=int, action="append", default=[], help="with --seed: the life of a message")
    parser.add_argument("--write", type=Path, help="keep the figure in a JSON file")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _one(options.seed, verbose=options.verbose, messages=options.message)
    first, _, last = options.seeds.partition(":")
    return _many(range(int(first), int(last)), workers=options.workers, write=options.write)


def _one(seed: int, *, verbose: bool, messages: list[int]) -> int:
    scenario = draw_scenario(seed)
    played = play(scenario)
    account = audit(played)
    if verbose:
        _tell_scenario(scenario)
        print(*played.trace, sep="\n")
    for number in messages:
        _tell_message(played, number)
    print(
        f"seed {seed}, trace {played.hash}: {account.units} messages in queues, {account.runs} runs,"
        f" {account.handled} handled, {account.parked} parked, {account.duplicates} duplicates, {account.lost} lost"
    )
    for text in account.faults_found:
        print(f"  wrong: {text}")
    return 1 if account.faults_found else 0


def _tell_scenario(scenario: Scenario) -> None:
    print(f"RabbitMQ {scenario.profile}")
    for name, entry in scenario.sections["queues"].items():
        print(f"  {name}: {entry}\n    {scenario.consumer_options[name]}")
    for number, plan in enumerate(scenario.process_plans):
        print(f"  process {number}: {plan}")
    for disruption in scenario.disruptions:
        print(f"  {disruption}")
    print(f"  {scenario.rates}")
    print(f"  {scenario.refusals}")


def _tell_message(played: PlayedScenario, number: int) -> None:
    journal = Journal()
    journal.history_of("it").extend(played.ledger.hops(number))
    print(f"message {number}:", *(one for one in played.scenario.messages if one.number == number))
    for hop in journal.read("it"):
        print(f"  {hop.at_ms - BEGIN_S * 1000:>12} {hop.text}")
    for (owner, queue), runs in played.runs.items():
        for run in runs if owner == number else ():
            began_ms, ended_ms = run.begin_ms - BEGIN_S * 1000, run.end_ms - BEGIN_S * 1000
            when = f"attempt {run.attempt} from {began_ms}, {run.end} at {ended_ms}"
            print(f"  {queue}, process {run.process}: {when}; {run.step}")


def _many(seeds: range, *, workers: int, write: Path | None) -> int:
    began_s = time.monotonic()
    total = Tally()
    told_to_stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told_to_stop.append(number))
    results = play_seeds(seeds, workers=workers)
    for result in results:
        total.add(result)
        if result.account.faults_found:
            print(f"seed {result.seed}: {result.account.faults_found[0]}", flush=True)
        if total.seeds % _TELL_EVERY == 0:
            print(f"… {total.seeds} seeds, {time.monotonic() - began_s:.0f} s", file=sys.stderr, flush=True)
        if told_to_stop:
            break
    results.close()
    took_s = time.monotonic() - began_s
    figure = {
        "date": datetime.now(UTC).date().isoformat(),
        "range": f"{seeds.start}:{seeds.start + total.seeds}",
        **total.as_json(),
        "workers": workers,
        "seconds": round(took_s, 1),
    }
    print(json.dumps(figure, indent=2))
    if write is not None:
        write.write_text(json.dumps(figure, indent=2) + "\n")
    return 1 if total.failing else 0


if __name__ == "__main__":
    sys.exit(main())
