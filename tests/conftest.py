"""What every test may use: the rig's fixtures and mark (rig/pytest_plugin.py), our own plugin's `broker`, and
pytest's own pytester. And what keeps a run short: few examples where quick is asked for, little for the garbage
collector to walk through."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.examples import IS_MATRIX, examples

pytest_plugins = ("pytester", "redrive.testing", "rig.pytest_plugin")

# Without Hypothesis's deadline: on a machine busy with brokers, a pause of 200 ms says nothing of the code.
settings.register_profile("redrive", deadline=None, max_examples=examples(100), derandomize=not IS_MATRIX)
settings.load_profile("redrive")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The collected tests and their modules stay to the end, so what looks for garbage passes them by: the scenarios
    of `client` and `runtime` collect it after each test, to hear of every task that was forgotten."""
    _freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """So does what tests import and pytest keeps of them; and a server, or a command, that a test runs in this process
    leaves nothing frozen when it ends, which would make each later test pay for everything there is. To ask whether
    anything is frozen takes longer than to freeze."""
    result = yield
    _freeze()
    return result


def _freeze() -> None:
    gc.collect()  # else what is garbage now would stay, and nobody would hear of it
    gc.freeze()
