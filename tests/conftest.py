"""What every test may use: the rig's fixtures and mark (tests/rig/pytest_plugin.py), our own plugin's `broker`, and
pytest's own pytester. And what keeps a run short: few examples where quick is asked for, little for the garbage
collector to walk through."""

import gc

import pytest
from hypothesis import settings

from tests.examples import IS_MATRIX, examples

pytest_plugins = ("pytester", "redrive.testing", "tests.rig.pytest_plugin")

# Without Hypothesis's deadline: on a machine busy with brokers, a pause of 200 ms says nothing of the code.
settings.register_profile("redrive", deadline=None, max_examples=examples(100), derandomize=not IS_MATRIX)
settings.load_profile("redrive")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The collected tests and their modules stay to the end, so what looks for garbage passes them by: the scenarios
    of `client` and `runtime` collect it after each test, to hear of every task that was forgotten."""
    gc.collect()
    gc.freeze()
