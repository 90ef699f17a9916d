"""pytest's side of the rig: the `live` mark, the fixtures with brokers, and the summary at the end.

    @pytest.mark.live                                        once on each of 3.10, 4.0 and 4.3
    @pytest.mark.live(versions=("4.3",))                     on 4.3 alone
    @pytest.mark.live(versions=("4.3",), matrix=("3.10",))   and with REDRIVE_MATRIX=1 (make matrix) on 3.10 too

    vhost        a clean vhost on the version's shared broker
    rabbit       that broker itself
    rabbit_node  the same, for tests that need rabbitmqctl; skipped on brokers of REDRIVE_TEST_URLS
    own_node     makes nodes and clusters for this test alone; skipped on brokers of REDRIVE_TEST_URLS

Without the mark, skipped where there is no PostgreSQL:
    postgres      a PostgreSQL server, shared by the run
    postgres_url  a fresh database on it
    own_postgres  makes servers for this test alone, to stop and kill

Nothing is started unless a test asks for it.

With xdist (xdist_groups.py) the controller runs no test and counts what the workers' reports say.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rig import available_brokers as available_brokers
from rig import postgres as postgres_rig
from rig import xdist_groups as workers
from rig.available_brokers import AvailableBrokers, Source
from rig.brokers import Broker, Vhost, clean_vhost
from rig.errors import TestUrlsRefused
from rig.external_brokers import VARIABLE
from rig.node import Node
from rig.node_pool import OwnNodes, SharedNodes
from rig.postgres import Postgres
from rig.version_summary import Verdict, VersionSummary, decide_verdict
from rig.versions import LABELS, Installation, version_numbers

MATRIX_VARIABLE = "REDRIVE_MATRIX"
RAN_ON = "redrive_live"
"""The attribute of a report that says where its test ran; workers send it to the controller."""
MARK = "live(versions=…, matrix=…): runs on a real RabbitMQ, once for each version named (all three by default)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingVersion:
    """Takes a source's place where there is none."""

    label: str


class LivePlugin:
    """The state of one test run: the available brokers, the nodes that run, the results."""

    def __init__(self) -> None:
        self.nodes = SharedNodes()
        self._summary = VersionSummary()
        self._available: AvailableBrokers | None = None
        self._refused: TestUrlsRefused | None = None
        self._versions: dict[str, set[str]] = {}
        self._wanted: set[str] = set()

    @property
    def available(self) -> AvailableBrokers:
        """Looked for once, when the first live test is collected. An error in it matters only if a live test is run."""
        if self._available is None:
            try:
                self._available = available_brokers.discover(os.environ)
            except TestUrlsRefused as refused:
                self._refused = refused
                self._available = AvailableBrokers(missing=dict.fromkeys(LABELS, str(refused)))
        return self._available

    @pytest.hookimpl
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if workers.is_grouping_controller(session.config):
            self._require_brokers()  # a worker that refuses to begin could not say why

    @pytest.hookimpl
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        mark = metafunc.definition.get_closest_marker("live")
        if mark is None:
            return
        if "live_source" not in metafunc.fixturenames:
            pytest.fail("a live test takes one of: vhost, rabbit, rabbit_node, own_node", pytrace=False)
        labels = wanted_labels(mark, matrix=os.environ.get(MATRIX_VARIABLE, "") not in ("", "0"))
        parameters = [parameter for label in labels for parameter in self._parameters(label, metafunc)]
        metafunc.parametrize("live_source", parameters, indirect=True)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        workers.write_groups(config, items)

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tests are selected: check that there are brokers for them."""
        sources = {item.nodeid: source for item in session.items if (source := _source_of(item)) is not None}
        if not sources or session.config.option.collectonly:
            return
        self._require_brokers()
        for nodeid, source in sources.items():
            self._expect(nodeid, *self._where(source))
        if not workers.is_worker(session.config):  # a worker runs the tests of some versions, it can't know which
            self.nodes.expect(source for source in sources.values() if isinstance(source, Installation))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        source = _source_of(item)
        if source is not None:
            setattr(report, RAN_ON, self._where(source))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        workers.forget_group(report)
        where = getattr(report, RAN_ON, None)
        if where is not None:
            self._expect(report.nodeid, *where)
            self._summary.record(report.nodeid, report.outcome)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and self._verdict().fails:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._summary.is_empty:
            return
        terminalreporter.section("RabbitMQ versions tested", bold=True)
        versions = {label: ", ".join(sorted(self._versions[label])) for label in self._versions}
        for line in self._summary.table(dict(sorted(versions.items(), key=lambda each: version_numbers(each[0])))):
            terminalreporter.line(line)
        for warning in self._verdict().warnings:
            terminalreporter.line(warning, red=True, bold=True)

    @pytest.hookimpl
    def pytest_unconfigure(self) -> None:
        self.nodes.close()

    def broker(self, source: Source) -> Broker:
        return self.nodes.node(source) if isinstance(source, Installation) else source

    def _parameters(self, label: str, metafunc: pytest.Metafunc) -> list[object]:
        sources = self.available.sources_for(label)
        if sources:
            marks = workers.group_marks(metafunc.config, metafunc.fixturenames, label=label)
            return [pytest.param(source, id=source.label, marks=marks) for source in sources]
        skip = pytest.mark.skip(reason=f"RabbitMQ {label} can't be had: {self.available.missing[label]}")
        return [pytest.param(MissingVersion(label=label), id=label, marks=skip)]

    def _require_brokers(self) -> None:
        sources = self.available.sources
        if self._refused is not None:
            raise pytest.UsageError(str(self._refused))
        if not sources:
            raise pytest.UsageError(available_brokers.NOTHING)

    def _where(self, source: Source | MissingVersion) -> tuple[str, str, str]:
        """Where a test ran, for its report: the label, the version, the known version that it stands for."""
        match source:
            case MissingVersion():
                return source.label, "-", source.label
            case Installation():
                return source.label, self.nodes.version(source), source.profile
            case _:
                return source.label, source.version, source.profile

    def _expect(self, nodeid: str, label: str, version: str, profile: str) -> None:
        self._summary.expect(nodeid, label=label)
        self._versions.setdefault(label, set()).add(version)
        self._wanted.add(profile)

    def _verdict(self) -> Verdict:
        wanted = self._wanted
        missing = (
            {label: reason for label, reason in self.available.missing.items() if label in wanted} if wanted else {}
        )
        return decide_verdict(missing, ci=os.environ.get("CI", ""))


LIVE = pytest.StashKey[LivePlugin]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    plugin = LivePlugin()
    config.stash[LIVE] = plugin
    config.pluginmanager.register(plugin, "redrive-live")


@pytest.fixture
def live_source(request: pytest.FixtureRequest) -> Source:
    """Where the test runs; every live fixture stands on it."""
    source = getattr(request, "param", None)
    if not isinstance(source, Source):
        pytest.fail(f"{request.node.name} needs a broker: mark it @pytest.mark.live", pytrace=False)
    return source


@pytest.fixture
def rabbit(live_source: Source, request: pytest.FixtureRequest) -> Broker:
    """The version's broker, shared with other tests: leave nothing on it outside a vhost of your own."""
    return request.config.stash[LIVE].broker(live_source)


@pytest.fixture
def vhost(rabbit: Broker, request: pytest.FixtureRequest) -> Iterator[Vhost]:
    """A clean vhost on the version's shared broker, deleted after the test."""
    with clean_vhost(rabbit, purpose=re.sub(r"[^A-Za-z0-9.]+", "-", request.node.name).strip("-")) as made:
        yield made


@pytest.fixture
def rabbit_node(live_source: Source, request: pytest.FixtureRequest) -> Node:
    """The version's shared broker as a node of the rig: with rabbitmqctl and a log."""
    return request.config.stash[LIVE].nodes.node(_of_the_rig(live_source))


@pytest.fixture
def own_node(live_source: Source, request: pytest.FixtureRequest) -> Iterator[OwnNodes]:
    """Makes nodes and clusters of the version for this test alone."""
    made = OwnNodes(request.config.stash[LIVE].nodes.group, _of_the_rig(live_source))
    try:
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """The run's PostgreSQL, up: leave nothing on it outside a database of your own."""
    made = Postgres(request.config.stash[LIVE].nodes.group, _postgres_programs())
    made.start()
    yield made
    made.kill()


@pytest.fixture
def postgres_url(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database on the run's PostgreSQL, removed after the test."""
    with postgres.fresh_database(request.node.name) as url:
        yield url


@pytest.fixture
def own_postgres(request: pytest.FixtureRequest) -> Iterator[Callable[[], Postgres]]:
    """Makes servers for this test alone, up and with fsync; all are ended after the test."""
    group, programs = request.config.stash[LIVE].nodes.group, _postgres_programs()
    made: list[Postgres] = []

    def make() -> Postgres:
        made.append(Postgres(group, programs, fsync=True))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.kill()


def wanted_labels(mark: pytest.Mark, *, matrix: bool) -> list[str]:
    """The versions a `live` mark asks for. Fails the collection of its test on words the mark does not know."""
    unknown = set(mark.kwargs) - {"versions", "matrix"}
    if mark.args or unknown:
        pytest.fail("live takes versions=(…) and matrix=(…), nothing else", pytrace=False)
    versions: Iterable[str] = mark.kwargs.get("versions", LABELS)
    more: Iterable[str] = mark.kwargs.get("matrix", ()) if matrix else ()
    wanted = list(dict.fromkeys((*versions, *more)))
    for label in wanted:
        if label not in LABELS:
            near = difflib.get_close_matches(label, LABELS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            pytest.fail(f"live knows the versions {', '.join(LABELS)}, not {label!r}{hint}", pytrace=False)
    return wanted


def _source_of(item: pytest.Item) -> Source | MissingVersion | None:
    callspec = getattr(item, "callspec", None)
    source = None if callspec is None else callspec.params.get("live_source")
    return source if isinstance(source, Source | MissingVersion) else None


def _of_the_rig(source: Source) -> Installation:
    if not isinstance(source, Installation):
        pytest.skip(f"it needs a node of the rig, which {VARIABLE} can't give")
    return source


def _postgres_programs() -> Path:
    programs = postgres_rig.find_programs()
    if programs is None:
        pytest.skip(postgres_rig.NOTHING)
    return programs
