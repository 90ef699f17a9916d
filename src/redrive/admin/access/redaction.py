"""The view of whoever asks: by their role, their grant, and the redactions in the store (`redrive.records.View`)."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access.caller import Caller
from redrive.admin.access.guard import REDACTIONS, caller_of
from redrive.admin.services import services_of
from redrive.records import Redaction, View
from redrive.stores import Store


class Redactor:
    """Makes views, by the redactions in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def for_caller(self, caller: Caller, known: Iterable[Redaction] | None = None) -> View:
        """What this caller sees now. `known`: the redactions, where they were just read. Raises `StoreUnavailable`."""
        rules: Iterable[Redaction] = ()
        if caller.sees_payloads:
            rules = await self._store.redactions.all() if known is None else known
        return View.of_role(caller.role, sees_payloads=caller.sees_payloads, redactions=rules)


async def _view_of(request: Request) -> View:
    known = request.scope.get(REDACTIONS)
    return await Redactor(services_of(request).store).for_caller(caller_of(request), known)


CurrentView = Annotated[View, Depends(_view_of)]
"""What the caller of a request sees."""
