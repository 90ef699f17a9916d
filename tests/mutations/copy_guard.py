"""A pytest plugin for the copies: refuses to run tests that would import the original instead of the copy.

Without it a mutant whose tests import the installed package would seem to survive, or a control to pass, for nothing.
"""

import importlib
import os
from pathlib import Path

import pytest

COPY = "REDRIVE_MUTANT_COPY"
"""The environment variable with the copy's root."""

_IMPORTED = ("redrive", "redrive.embedded.engine.queues", "tests.unit.embedded.engine_rig")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Exit code 4 unless everything comes from the copy."""
    copy = Path(os.environ[COPY]).resolve()
    for name in _IMPORTED:
        file = importlib.import_module(name).__file__
        if file is None or not Path(file).resolve().is_relative_to(copy):
            raise pytest.UsageError(f"{name} was imported from {file}, which is not in the copy {copy}")
