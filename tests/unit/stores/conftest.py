"""One suite for both stores: `store` is a new, empty one on SQLite and on PostgreSQL; `run` runs a scenario with it.

A store belongs to one event loop, so both fixtures share a runner.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.stores import Store, open_store
from tests.unit.conftest import Run as Run


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store may be, on each kind of database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'redrive.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(store_url: str, tmp_path: Path, empty_database: Path, run: Run) -> Iterator[Store]:
    """A new, empty store."""
    if store_url.startswith("sqlite:"):
        shutil.copy(empty_database, tmp_path / "redrive.db")
    opened: Store = run(open_store(store_url))
    yield opened
    run(opened.close())
