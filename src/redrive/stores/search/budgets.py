"""How long a search that must be answered as a whole may take, and how many bytes of contents it may read.

What would take too long is refused: a part of an answer must never pass for all of it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from redrive.records import BodyTerm, Filter, HeaderTerm
from redrive.stores.database import Database
from redrive.stores.errors import FilterTooExpensive


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """How long something may take that must be answered as a whole, and how many bytes of contents it may read."""

    seconds: float
    content_bytes: int


VIEW_BUDGET = SearchBudget(seconds=10.0, content_bytes=1 << 30)
"""For counting, previews and pages."""
SELECT_BUDGET = SearchBudget(seconds=300.0, content_bytes=64 << 30)
"""For changing or sending dead letters."""

_TURNS: "WeakKeyDictionary[Database, dict[SearchBudget, asyncio.Semaphore]]" = WeakKeyDictionary()


def reads_contents(filter: Filter | None) -> bool:
    """Whether a filter asks for something that only a content answers."""
    return filter is not None and any(isinstance(term, BodyTerm | HeaderTerm) for term in filter.terms)


@asynccontextmanager
async def within_budget(budget: SearchBudget, database: Database, *filters: Filter | None) -> AsyncIterator[None]:
    """A block that answers filters as a whole, in time. Filters that read contents take turns, before they take a
    connection: they all wait for one thread, and other callers should not wait for their connections.

    Raises FilterTooExpensive.
    """
    try:
        async with asyncio.timeout(budget.seconds) as limit:
            if not any(map(reads_contents, filters)):
                yield
                return
            turns = _TURNS.setdefault(database, {})
            async with turns.setdefault(budget, asyncio.Semaphore(1)):
                yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise FilterTooExpensive(f"it takes longer than {budget.seconds:g} s to answer") from None
