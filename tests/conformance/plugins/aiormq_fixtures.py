"""The two fixtures aiormq's tests take from a conftest.py that its source distribution does not carry.

A pytest plugin that runs in the suite's own environment, so it imports nothing of this project.
"""

import importlib
import os
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="session")
def rabbitmq_container() -> SimpleNamespace:
    """Where the broker's ports are, as a container's would be."""
    ports = {"5672/tcp": int(os.environ["CONFORMANCE_PORT"]), "5671/tcp": int(os.environ["CONFORMANCE_TLS_PORT"])}
    return SimpleNamespace(host=os.environ["CONFORMANCE_HOST"], ports=ports)


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container: SimpleNamespace) -> Any:
    """The broker's URL."""
    host, port = rabbitmq_container.host, rabbitmq_container.ports["5672/tcp"]
    return importlib.import_module("yarl").URL(f"amqp://guest:guest@{host}:{port}//")
