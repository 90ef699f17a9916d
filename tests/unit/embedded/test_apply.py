"""`redrive apply` on `redrive broker`, both as processes: every example, on every version it is for."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from rig.management import Management

from redrive.topology import Topology, compile_declaration, read_declaration, read_definitions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EXAMPLES = ("bookly", "event-bus", "file-pipeline", "freeflow", "ladder", "native", "ratatoskr")
PROFILES = ("3.10", "4.0", "4.3")


class BrokerProcess:
    """A running `redrive broker` with its management API."""

    def __init__(self, profile: str) -> None:
        self.profile = profile
        command = ["broker", "--port", "0", "--management-port", "0", "--profile", profile]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        urls = [self._process.stderr.readline().split()[0] for _ in range(2)]
        self._amqp_url, management_url = sorted(urls)
        self.management = Management(management_url)

    def url_for(self, vhost: str) -> str:
        return self._amqp_url.removesuffix("%2F").removesuffix("/") + "/" + quote(vhost, safe="")

    def definitions(self, vhost: str) -> Topology:
        shown = json.dumps(self.management.get("definitions", vhost))
        return read_definitions(shown, vhost=vhost).only(vhost)

    def stop(self) -> None:
        assert self._process.stderr is not None
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(10) == 0
        self._process.stderr.close()


@pytest.fixture(scope="module", params=PROFILES)
def running(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(request.param)
    try:
        yield broker
    finally:
        broker.stop()


def redrive(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "NO_COLOR": "1"},
    )


def compiled(file: str, vhost: str) -> Topology:
    declaration = read_declaration((ROOT / file).read_text(encoding="utf-8"), file=file)
    return compile_declaration(declaration, vhost=vhost).topology.only(vhost)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_applied_read_back_equal_and_again_without_change(running: BrokerProcess, example: str) -> None:
    file = f"examples/{example}/redrive.yaml"
    running.management.put("vhosts", example)
    before = running.definitions(example)
    first = redrive("apply", file, "--url", running.url_for(example), "--yes")
    if example == "native" and running.profile != "4.3":
        assert (first.returncode, first.stdout) == (2, "")
        assert "x-delayed-retry-type is silently ignored by RabbitMQ" in first.stderr
        assert running.definitions(example) == before
        return
    assert (first.returncode, first.stderr) == (0, "")
    assert running.definitions(example) == compiled(file, example)
    second = redrive("apply", file, "--url", running.url_for(example), "--yes")
    assert (second.returncode, second.stderr) == (0, "")
    assert "no queue or exchange missing, " in second.stdout
    assert running.definitions(example) == compiled(file, example)


@pytest.mark.parametrize("option", ["--port", "--management-port"])
def test_a_taken_port_is_one_sentence_and_exit_code_2(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = redrive("broker", *(() if option == "--port" else ("--port", "0")), option, str(port))
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: can't listen on 127.0.0.1:{port}: address already in use; "
        "stop what runs there, or choose another port (0: any free one)\n"
    )
