"""The `live` mark as a person meets it: pytest run on small test files, with brokers that are only named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rig import available_brokers as available_brokers
from rig.available_brokers import AvailableBrokers, list_available
from rig.errors import TestUrlsRefused
from rig.external_brokers import Address, ExternalBroker
from rig.management import Management
from rig.versions import LABELS

ON_ALL = """
import pytest

@pytest.mark.live
def test_something(live_source):
    assert live_source.label

def test_without_a_broker():
    pass
"""

ON_WORKERS = """
import os
import pytest

@pytest.mark.live
@pytest.mark.parametrize("number", range(6))
def test_something(rabbit, number):
    print("ran", rabbit.label, "on", os.environ["PYTEST_XDIST_WORKER"])

@pytest.mark.live
def test_alone(own_node):
    assert False
"""


def broker(version: str) -> ExternalBroker:
    url = "http://localhost:1"
    address = Address(scheme="amqp", host="localhost", port=1, user="u", password="p", management_url=url)
    return ExternalBroker(address=address, version=version, management=Management(url))


class Inner:
    """Runs pytest on a file, in a world with the given brokers."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self.monkeypatch = monkeypatch
        for variable in ("CI", "REDRIVE_MATRIX", "REDRIVE_TEST_URLS", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(variable, raising=False)
        # Plugins that happen to be installed have no part in this, and loading them costs more than the run itself.
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def available(self, *versions: str) -> None:
        made = list_available([broker(version) for version in versions], dict.fromkeys(LABELS, "the mirror is gone"))
        self.monkeypatch.setattr(available_brokers, "discover", lambda _environ: made)

    def run(self, file: str, *arguments: str) -> pytest.RunResult:
        self._pytester.makepyfile(file)
        return self._pytester.runpytest_inprocess(
            "-p", "rig.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", *arguments
        )

    def run_on_workers(self, file: str, *arguments: str) -> pytest.RunResult:
        """In processes of their own, which know of brokers only what REDRIVE_TEST_URLS says."""
        self._pytester.makepyfile(file)
        self.monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        plugins = ("-p", "xdist", "-p", "rig.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers")
        return self._pytester.runpytest_subprocess(*plugins, "-n", "3", "--dist", "loadgroup", *arguments, timeout=120)


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Inner:
    return Inner(pytester, monkeypatch)


def test_a_live_test_runs_once_on_each_version_and_the_summary_counts_them(inner: Inner) -> None:
    inner.available("3.10.8", "4.0.5", "4.3.6")
    result = inner.run(ON_ALL, "-v")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_something?3.10? PASSED*", "*?4.0? PASSED*", "*?4.3? PASSED*"])
    result.stdout.fnmatch_lines(
        [
            "*RabbitMQ versions tested*",
            "label  version  ran  passed  failed  skipped",
            "3.10   3.10.8     1       1       0        0",
            "4.0    4.0.5      1       1       0        0",
            "4.3    4.3.6      1       1       0        0",
        ]
    )
    result.stdout.no_fnmatch_line("*WAS NOT TESTED*")


def test_a_missing_version_is_skipped_with_its_reason_and_named_in_the_summary(inner: Inner) -> None:
    inner.available("3.10.8", "4.0.5")
    result = inner.run(ON_ALL, "-rs")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "4.3    -          0       0       0        1",
            "RabbitMQ 4.3 WAS NOT TESTED: the mirror is gone",
            "SKIPPED*RabbitMQ 4.3 can't be had: the mirror is gone",
        ]
    )


def test_a_missing_version_fails_the_run_in_ci(inner: Inner) -> None:
    inner.available("3.10.8", "4.0.5")
    inner.monkeypatch.setenv("CI", "true")
    result = inner.run(ON_ALL)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["RabbitMQ 4.3 WAS NOT TESTED*", "CI=true: a missing version fails the run."])


def test_a_version_no_selected_test_asks_for_is_not_missed(inner: Inner) -> None:
    inner.available("4.0.5")
    inner.monkeypatch.setenv("CI", "true")
    result = inner.run(ON_ALL.replace("mark.live", 'mark.live(versions=("4.0",))'))
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*WAS NOT TESTED*")


def test_another_version_stands_in_under_its_own_name_and_is_not_taken_for_the_real_one(inner: Inner) -> None:
    inner.available("3.12.1", "4.0.5", "4.3.6")
    inner.monkeypatch.setenv("CI", "true")
    result = inner.run(ON_ALL, "-v")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "*test_something?3.12? PASSED*",
            "3.12   3.12.1*",
            "RabbitMQ 3.10 WAS NOT TESTED: the mirror is gone (3.12.1 stands in for it)",
        ]
    )


def test_without_any_broker_the_run_fails_with_one_sentence(inner: Inner) -> None:
    inner.available()
    result = inner.run(ON_ALL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [f"ERROR: {available_brokers.NOTHING}"]
    result.stdout.no_fnmatch_line("*WAS NOT TESTED*")


@pytest.mark.parametrize("arguments", [("-m", "not live"), ("--collect-only",)])
def test_without_any_broker_what_runs_on_none_still_runs(inner: Inner, arguments: tuple[str, ...]) -> None:
    inner.available()
    result = inner.run(ON_ALL, *arguments)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*RabbitMQ versions tested*")


def test_brokers_that_can_not_be_used_fail_the_run_only_if_a_live_test_is_selected(inner: Inner) -> None:
    def refuse(_environ: Mapping[str, str]) -> AvailableBrokers:
        raise TestUrlsRefused(entry="localhost", reason="is no URL", hint="write amqp://")

    inner.monkeypatch.setattr(available_brokers, "discover", refuse)
    result = inner.run(ON_ALL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line] == [
        "ERROR: REDRIVE_TEST_URLS: 'localhost' is no URL; write amqp://"
    ]
    result.stdout.no_fnmatch_line("*WAS NOT TESTED*")
    assert inner.run(ON_ALL, "-m", "not live").ret == pytest.ExitCode.OK


def test_a_test_without_the_mark_is_told_to_take_it(inner: Inner) -> None:
    inner.available("4.0.5")
    result = inner.run("def test_something(vhost): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_something needs a broker: mark it @pytest.mark.live*"])


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('live(versions=("3.1",))', "*live knows the versions 3.10, 4.0, 4.3, not '3.1'; did you mean '3.10'?*"),
        ('live("4.0")', "*live takes versions=(…) and matrix=(…), nothing else*"),
        ('live(version="4.0")', "*live takes versions=(…) and matrix=(…), nothing else*"),
    ],
)
def test_a_wrong_mark_is_an_error_that_says_what_is_right(inner: Inner, mark: str, said: str) -> None:
    inner.available("4.0.5")
    result = inner.run(ON_ALL.replace("mark.live", f"mark.{mark}"))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


def test_a_live_test_that_takes_no_broker_is_an_error(inner: Inner) -> None:
    inner.available("4.0.5")
    result = inner.run(ON_ALL.replace("(live_source)", "()").replace("live_source.label", "True"))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*a live test takes one of: vhost, rabbit, rabbit_node, own_node*"])


def test_the_versions_of_the_matrix_are_for_the_matrix(inner: Inner) -> None:
    inner.available("3.10.8", "4.0.5", "4.3.6")
    file = ON_ALL.replace("mark.live", 'mark.live(versions=("4.3",), matrix=("3.10", "4.3"))')
    inner.run(file).assert_outcomes(passed=2)
    inner.monkeypatch.setenv("REDRIVE_MATRIX", "1")
    inner.run(file).assert_outcomes(passed=3)


@pytest.mark.parametrize("fixture", ["own_node", "rabbit_node"])
def test_a_test_that_needs_a_node_of_the_rig_is_skipped_on_a_named_broker(inner: Inner, fixture: str) -> None:
    inner.available("3.10.8", "4.0.5", "4.3.6")
    result = inner.run(f"import pytest\n@pytest.mark.live\ndef test_something({fixture}): assert False", "-rs")
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*it needs a node of the rig, which REDRIVE_TEST_URLS can't give"])


@pytest.fixture
def named_brokers() -> Iterator[str]:
    """REDRIVE_TEST_URLS with a 4.0 and a 4.3, of which there is no more than what says so."""
    with ExitStack() as stack:
        servers = [stack.enter_context(says_version(version)) for version in ("4.0.5", "4.3.6")]
        yield " ".join(f"amqp://localhost:1/|http://127.0.0.1:{server.server_port}" for server in servers)


@contextmanager
def says_version(version: str) -> Iterator[HTTPServer]:
    class Overview(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"rabbitmq_version": version}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Overview) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.slow
def test_on_several_workers_each_shared_broker_has_one_of_them_and_the_summary_counts_all(
    inner: Inner, named_brokers: str
) -> None:
    inner.monkeypatch.setenv("REDRIVE_TEST_URLS", named_brokers)
    result = inner.run_on_workers(ON_WORKERS, "-rA")
    result.assert_outcomes(passed=12, skipped=9)
    ran = {line for line in result.outlines if line.startswith("ran ")}
    assert len(ran) == 2, "a label met two workers"
    assert {line.split()[1] for line in ran} == {"4.0", "4.3"}
    result.stdout.fnmatch_lines(
        [
            "label  version  ran  passed  failed  skipped",
            "3.10   -          0       0       0        7",
            "4.0    4.0.5      6       6       0        1",
            "4.3    4.3.6      6       6       0        1",
            "RabbitMQ 3.10 WAS NOT TESTED: REDRIVE_TEST_URLS names no such broker",
        ]
    )
    result.stdout.fnmatch_lines(["PASSED *::test_something?4.3-5?"])


@pytest.mark.slow
def test_on_several_workers_a_broker_that_can_not_be_used_is_told_in_one_sentence(inner: Inner) -> None:
    inner.monkeypatch.setenv("REDRIVE_TEST_URLS", "localhost")
    result = inner.run_on_workers(ON_WORKERS)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line[:40] for line in result.errlines if line] == ["ERROR: REDRIVE_TEST_URLS: 'localhost' is"]
