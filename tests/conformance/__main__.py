"""Runs the suites.

python -m tests.conformance [SUITE…]           on the embedded broker, compared with the kept results of the real one
python -m tests.conformance [SUITE…] --real    on both
"""

import argparse
import datetime
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rig import NodeFailed
from rig.ports import Ports
from rig.versions import LABELS

from tests.conformance import report
from tests.conformance.brokers import NoBroker, RunningBroker, embedded, real
from tests.conformance.docker_engine import docker_engine
from tests.conformance.results import Result, read_junit
from tests.conformance.sources import Checkout, NotFetched, cache_folder, fetch
from tests.conformance.suites import SUITES, Suite

PLUGINS = Path(__file__).parent / "plugins"
SUITE_S_MAX = 3600.0
TEST_S_MAX = 120
PUBLISHED = "3.10"


class SuiteFailed(Exception):
    """A suite could not be run to its end; the message says where its output is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 as good as promised, 1 worse, 2 could not."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Other people's test suites.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(suite.name for suite in SUITES))
    parser.add_argument(
        "--profile", choices=LABELS, default=PUBLISHED, help="the version to play (default: %(default)s)"
    )
    parser.add_argument("--real", action="store_true", help="run on a real node of that version too")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.suites) - {suite.name for suite in SUITES}
    if unknown:
        parser.error(f"there are {', '.join(suite.name for suite in SUITES)}; not {', '.join(sorted(unknown))}")
    suites = [suite for suite in SUITES if not chosen.suites or suite.name in chosen.suites]
    kept: report.Kept = {}
    failed = []
    for suite in suites:
        try:
            results = run_suite(suite, chosen.profile, is_real_wanted=chosen.real)
        except (NotFetched, NoBroker, NodeFailed, SuiteFailed) as error:
            _say(f"{suite.name}: {error}")
            failed.append(suite)
            continue
        # What is published is about one profile; another one's results are printed and not kept. Read anew each time:
        # another run may have kept something meanwhile.
        if chosen.profile == PUBLISHED:
            kept = report.load()
        report.keep(kept, suite, chosen.profile, results)
        if chosen.profile == PUBLISHED:
            report.save(kept)
    print(report.table({suite.name: kept[suite.name] for suite in suites if suite.name in kept}))
    if failed:
        return 2
    return int(any(_is_below(suite, report.side(kept, suite, "embedded")) for suite in suites))


def run_suite(suite: Suite, profile: str, *, is_real_wanted: bool) -> dict[str, Result]:
    """One suite, on one broker or both: its results by side."""
    _say(f"{suite.name} {suite.version}: fetching")
    checkout = fetch(suite, cache_folder())
    results = {}
    with embedded(profile) as broker:
        results["embedded"] = run_on(suite, checkout, broker, side="embedded")
    if is_real_wanted:
        with real(profile) as broker:
            results["real"] = run_on(suite, checkout, broker, side="real")
    return results


def run_on(suite: Suite, checkout: Checkout, broker: RunningBroker, *, side: str) -> Result:
    """The suite's tests, run against a broker by the suite's own Python. Raises SuiteFailed."""
    _say(f"{suite.name} {suite.version}: running on {side} {broker.version}")
    folder = checkout.source.parent.parent
    junit, log = folder / f"{side}.xml", folder / f"{side}.log"
    junit.unlink(missing_ok=True)
    command = [str(checkout.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_S_MAX}"]
    command += [f"--junit-xml={junit}", *suite.options, *suite.selection]
    if suite.plugin is not None:
        command += ["-p", suite.plugin]
    with ExitStack() as stack, log.open("wb") as output:
        environment = stack.enter_context(_Surroundings(suite, broker)).environment
        try:
            subprocess.run(
                command,
                cwd=checkout.source,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SuiteFailed(f"not done after {SUITE_S_MAX:.0f} s; see {log}") from None
    if not junit.exists():
        raise SuiteFailed(f"pytest left no report; see {log}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return read_junit(junit, broker=broker.version, date=today)


class _Surroundings(ExitStack):
    """What a suite finds around it: its environment variables, a Docker stand-in, a port nobody listens on."""

    def __init__(self, suite: Suite, broker: RunningBroker) -> None:
        super().__init__()
        ports = Ports()
        self.callback(ports.close)
        closed = ports.reserve()
        docker = self.enter_context(docker_engine({"5672/tcp": broker.port, "5671/tcp": closed}))
        places = {"host": "127.0.0.1", "port": broker.port, "closed_port": closed, "docker": docker}
        # Nothing of our own environment reaches their tests: neither our settings nor our packages.
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        wanted = {name: text.format(**places) for name, text in suite.environment.items()}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(PLUGINS),
            "PYTHONDONTWRITEBYTECODE": "1",
            **wanted,
        }


def _is_below(suite: Suite, result: Result | None) -> bool:
    return result is not None and result.passed < suite.passes_min


def _say(text: str) -> None:
    print(f"conformance: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
