"""Searches that no index answers: one per token at a time, and a few in all.

They read dead letters one by one, which occupies one of the database's few connections for long.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request

from redrive.admin.access.caller import Caller
from redrive.admin.services import services_of
from redrive.records import BodyTerm, ErrorTerm, Filter, HeaderTerm, NameTerm, Term, WordsTerm

_FEW_NAMES = 50
"""Up to so many names are looked up in an index."""


@asynccontextmanager
async def search_slot(request: Request, caller: Caller, filter: Filter | None) -> AsyncIterator[None]:
    """Runs the block when the caller may search with this filter: at once if an index answers it.

    Raises `HttpProblem` 429.
    """
    scope = caller.scope_terms()  # in every filter, and not the caller's choice
    terms = [] if filter is None else [term for term in filter.terms if term not in scope]
    if not any(isinstance(term, BodyTerm | HeaderTerm | ErrorTerm | WordsTerm) or _is_wide(term) for term in terms):
        yield
        return
    async with services_of(request).quotas.searching(caller.token_id):
        yield


def _is_wide(term: Term) -> bool:
    """Whether its names must be compared with all names there are."""
    return isinstance(term, NameTerm) and (len(term.values) > _FEW_NAMES or any("*" in one for one in term.values))
