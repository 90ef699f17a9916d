"""The rig from the command line.

python -m rig build [VERSION…]   install RabbitMQ versions (by default all, and PostgreSQL); quick if all are installed
python -m rig status             list the versions that are installed, and why others are not
python -m rig start VERSION      run a node in the foreground until Ctrl-C
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rig.available_brokers import NOTHING, discover
from rig.build import build
from rig.errors import NodeFailed
from rig.external_brokers import VARIABLE
from rig.node import Node
from rig.postgres import build_postgres
from rig.process_group import ProcessGroup
from rig.versions import LABELS, cache_folder, choose_installations, find_installations, installation_for


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 fine, 2 could not."""
    parser = argparse.ArgumentParser(prog="python -m rig", description="RabbitMQ nodes for the tests.")
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="install RabbitMQ versions (by default all, and PostgreSQL)")
    builder.add_argument("versions", nargs="*", metavar="VERSION", help=", ".join(LABELS))
    commands.add_parser("status", help="list the versions that are installed, and why others are not")
    starter = commands.add_parser("start", help="run a node in the foreground until Ctrl-C")
    starter.add_argument("version", metavar="VERSION", help=", ".join(LABELS))
    chosen = parser.parse_args(arguments)
    match chosen.command:
        case "build":
            unknown = [label for label in chosen.versions if label not in LABELS]
            if unknown:
                parser.error(f"the rig knows {', '.join(LABELS)}, not {', '.join(unknown)}")
            if not chosen.versions:
                build_postgres(_say)
            return build_versions(chosen.versions or LABELS)
        case "status":
            return show_status()
        case _:
            return run_node(chosen.version)


def build_versions(labels: Sequence[str]) -> int:
    if os.environ.get(VARIABLE, "").strip():
        return 0  # the tests run on the brokers that the variable names
    reasons: dict[str, list[str]] = {}
    for each in build(labels, cache=cache_folder(), say=_say):
        reasons.setdefault(each.reason, []).append(each.label)
    for reason, without in reasons.items():
        _say(f"!!! RabbitMQ {', '.join(without)} can't be had and will not be tested: {reason}")
    if find_installations(cache_folder()):
        return 0
    _say(NOTHING)
    return 2


def show_status() -> int:
    available = discover({key: value for key, value in os.environ.items() if key != VARIABLE})
    for source in available.sources:
        print(f"{source.label:<6} {source.version:<10} {getattr(source, 'root', '')}")
    for label, reason in available.missing.items():
        print(f"{label:<6} missing: {reason}")
    return 0 if available.sources else 2


def run_node(label: str) -> int:
    installation = installation_for(label, choose_installations(find_installations(cache_folder())))
    if installation is None:
        _say(f"RabbitMQ {label} is not here: run `python -m rig build {label}` first, or see `status`")
        return 2

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    try:
        with ProcessGroup() as group:
            node = Node(group, installation)
            node.start()
            print(f"RabbitMQ {node.version} runs until Ctrl-C (pid {node.pid}, files in {node.place.folder})")
            print(f"  {node.amqp_url()}\n  {node.management_url}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except NodeFailed as error:
        _say(str(error))
        return 2
    return 0


def _say(text: str) -> None:
    print(f"rig: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
