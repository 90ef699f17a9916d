"""What a suite runs against: `redrive broker` in a process of its own, or a real node of the rig."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from rig.node import Node
from rig.ports import Ports
from rig.process_group import ProcessGroup
from rig.versions import (
    cache_folder,
    choose_installations,
    find_installations,
    installation_for,
)

START_S_MAX = 20.0
STOP_S_MAX = 10.0


class NoBroker(Exception):
    """A broker can't be had; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """Where it listens, for guest/guest on the vhost `/`; and what it calls itself."""

    port: int
    version: str


@contextmanager
def embedded(profile: str) -> Iterator[RunningBroker]:
    """`redrive broker` of a profile. Raises NoBroker."""
    with closing(Ports()) as ports:
        port = ports.reserve()
        command = [sys.executable, "-m", "redrive", "broker", "--port", str(port), "--profile", profile]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_listening(process, port)
            yield RunningBroker(port=port, version=profile)
            if process.poll() is not None:
                raise NoBroker(f"the embedded broker ended with {process.returncode} while a suite ran")
        finally:
            process.terminate()
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S_MAX)


@contextmanager
def real(profile: str) -> Iterator[RunningBroker]:
    """A fresh RabbitMQ of that version. Raises NoBroker, NodeFailed."""
    installation = installation_for(profile, choose_installations(find_installations(cache_folder())))
    if installation is None:
        raise NoBroker(f"RabbitMQ {profile} is not here: run `python -m rig build {profile}` first")
    with ProcessGroup() as run:
        node = Node(run, installation)
        node.start()
        yield RunningBroker(port=node.place.amqp_port, version=node.version)


def _wait_listening(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise NoBroker("`redrive broker` did not begin to listen; what it says is above")
