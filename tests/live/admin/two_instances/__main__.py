"""`python -m tests.live.admin.two_instances`: played on a RabbitMQ and a PostgreSQL of its own, printed and kept."""

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rig.node import Node
from rig.postgres import NOTHING, Postgres, find_programs
from rig.process_group import ProcessGroup
from rig.versions import LABELS, cache_folder, choose_installations, find_installations, installation_for

from tests.live.admin.two_instances.report import problems, render, summary
from tests.live.admin.two_instances.scene import Plan, play

KEPT = Path(__file__).parents[4] / "bench" / "results" / "admin_two_instances.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if everything holds."""
    chosen = _parse(arguments)
    plan = Plan(messages=chosen.messages, rate=chosen.rate, seconds=chosen.seconds, seed=chosen.seed)
    results: dict[str, Any] = {"versions": {}}
    if chosen.keep and KEPT.exists():
        results = json.loads(KEPT.read_text(encoding="utf-8"))
    code = 0
    for version in chosen.versions:
        told = play_version(version, plan)
        results["versions"][version] = told
        print(render({"versions": {version: told}}), flush=True)
        for problem in problems(told):
            code = 1
            print(f"  {version}: {problem}", file=sys.stderr, flush=True)
    if chosen.keep:
        KEPT.write_text(json.dumps(results) + "\n", encoding="utf-8")
        KEPT.with_suffix(".md").write_text(render(results), encoding="utf-8")
    return code


def play_version(version: str, plan: Plan) -> dict[str, Any]:
    """Once, on servers of its own."""
    installation = installation_for(version, choose_installations(find_installations(cache_folder())))
    if installation is None:
        sys.exit(f"RabbitMQ {version} is not here: run `python -m rig build {version}`")
    programs = find_programs()
    if programs is None:
        sys.exit(NOTHING)
    with ProcessGroup() as run, tempfile.TemporaryDirectory(prefix="redrive-two-") as folder:
        postgres = Postgres(run, programs, fsync=True)
        postgres.start()
        node = Node(run, installation)
        node.start()
        outcome = play(
            plan,
            amqp_url=node.amqp_url(),
            management_url=node.management_url,
            database=postgres.url(postgres.create_database("two")),
            folder=Path(folder),
        )
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": today, **summary(plan, outcome)}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.live.admin.two_instances", description=__doc__)
    parser.add_argument("--versions", choices=LABELS, nargs="+", default=["4.3"])
    parser.add_argument("--messages", type=int, default=Plan().messages)
    parser.add_argument("--rate", type=int, default=Plan().rate, help="requests a second, of both instances together")
    parser.add_argument("--seconds", type=int, default=Plan().seconds)
    parser.add_argument("--seed", type=int, default=Plan().seed)
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.name} and its table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
