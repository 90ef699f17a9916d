"""Scope: which dead letters, groups and operations a caller may reach. Always those of the caller's queues.

An id outside them is answered as if it did not exist. A filter gets the scope's terms added, so that the store's index
finds only what the caller may see.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access.authorization import audit_forbidden
from redrive.admin.access.caller import Caller
from redrive.admin.problems import not_found
from redrive.admin.services import Services, services_of
from redrive.records import (
    DeadLetter,
    Filter,
    Group,
    NameTerm,
    Operation,
    OperationState,
    Selection,
    Term,
    View,
    format_filter,
    parse_filter,
)

GONE = "there is no such dead letter"
OPERATIONS_KEPT_MAX = 5_000
OPERATIONS_READ_MAX = 1_000
"""A page for a limited caller reads so many operations before it is returned as it is."""
_CHUNK = 100
_IDS_PER_QUERY = 1_000
_ID_CHARACTERS_MAX = 64
_NO_LETTER = "-"
"""An id that no dead letter has: the selection of a caller who may see none of what was named."""
_Places = frozenset[tuple[str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which dead letters a request names: the `ids`, or else those that match `q` and `terms`."""

    ids: Sequence[str] | None
    q: str
    limit: int | None
    include_in_doubt: bool = False
    terms: Sequence[Term] = ()
    hidden_terms: Sequence[Term] = ()
    """They apply too, but are not in the selection's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedSelection:
    """A selection within the caller's scope, and the ids that were left out of it."""

    selection: Selection
    outside: tuple[str, ...] = ()


def is_id(text: str) -> bool:
    """Whether a text could be an id at all. The store is not asked about any other."""
    return text.isascii() and text.isalnum() and len(text) <= _ID_CHARACTERS_MAX


async def find_letter(services: Services, caller: Caller, id: str) -> DeadLetter:
    """The dead letter with this id. Raises `HttpProblem` 404, also for one of another queue, which the audit
    records."""
    letter = await services.store.letters.get(id) if is_id(id) else None
    if letter is None:
        raise not_found("dead letter", id)
    await check_in_scope(services, caller, letter)
    return letter


async def check_in_scope(services: Services, caller: Caller, letter: DeadLetter) -> None:
    """Raises `HttpProblem` 404 for a dead letter outside the caller's queues."""
    if not caller.sees(letter):
        await services.refusal_audit.record_out_of_scope(caller, "dead letter", id=letter.id, queue=letter.queue)
        raise not_found("dead letter", letter.id)


async def find_group(services: Services, caller: Caller, id: str) -> Group:
    """The group with this id. Raises `HttpProblem` 404, also for one of another failed queue."""
    group = await services.store.groups.get(id) if is_id(id) else None
    if group is None:
        raise not_found("group", id)
    if not caller.may_use(group.owner):
        await services.refusal_audit.record_out_of_scope(caller, "group", id=group.id, queue=group.queue)
        raise not_found("group", id)
    return group


async def scoped_filter(request: Request, caller: Caller, view: View, q: str, *, terms: Sequence[Term] = ()) -> Filter:
    """The filter of a text and further `terms`, within the caller's scope. Raises `InvalidFilter`, and `HttpProblem`
    403 for a filter on values that the caller may not see."""
    asked = parse_filter(q, now_ms=services_of(request).clock_ms())
    reason = view.forbids(asked)
    if reason is not None:
        raise await audit_forbidden(request, caller, reason)
    return Filter((*caller.scope_terms(), *terms, *asked.terms))


async def select_letters(request: Request, caller: Caller, view: View, query: LetterQuery) -> ScopedSelection:
    """The selection that a request means, within the caller's scope. Raises as `scoped_filter` does."""
    if query.ids is not None:
        named = tuple(dict.fromkeys(query.ids))
        seen = await _visible(services_of(request), caller, named)
        outside = tuple(id for id in named if id not in seen)
        await _audit_outside(services_of(request), caller, outside)
        kept = tuple(id for id in named if id in seen)
        return ScopedSelection(selection=Selection(ids=kept or (_NO_LETTER,), limit=query.limit), outside=outside)
    asked = await scoped_filter(request, caller, view, query.q, terms=(*query.terms, *query.hidden_terms))
    # By the token's queues: its dead-letter queues may change, and the text of the request must stay the same.
    scope = (NameTerm(field="queue", values=caller.queues),) if caller.queues else ()
    prefix = format_filter(Filter((*scope, *query.terms)))
    text = f"{prefix} {query.q.strip()}".strip()
    return ScopedSelection(
        selection=Selection(
            filter=asked, filter_text=text or "all", limit=query.limit, includes_in_doubt=query.include_in_doubt
        )
    )


async def _audit_outside(services: Services, caller: Caller, outside: Sequence[str]) -> None:
    """Records the first of the ids that names a dead letter of other queues."""
    able = tuple(id for id in outside if is_id(id))[:_IDS_PER_QUERY]
    if not caller.queues or not able:
        return
    asked = Filter((NameTerm(field="id", values=able),))
    page = await services.store.letters.page(asked, limit=1, now_ms=services.clock_ms())
    for letter in page.letters:
        await services.refusal_audit.record_out_of_scope(caller, "dead letter", id=letter.id, queue=letter.queue)


async def _visible(services: Services, caller: Caller, ids: Sequence[str]) -> frozenset[str]:
    """The ids that name a dead letter of the caller's queues; for an unlimited caller everything that may be an id."""
    able = [id for id in ids if is_id(id)]
    if not caller.queues:
        return frozenset(able)
    seen: set[str] = set()
    for start in range(0, len(able), _IDS_PER_QUERY):
        chunk = tuple(able[start : start + _IDS_PER_QUERY])
        asked = Filter((NameTerm(field="id", values=chunk), *caller.scope_terms()))
        cursor = None
        while True:
            page = await services.store.letters.page(
                asked, limit=_IDS_PER_QUERY, cursor=cursor, now_ms=services.clock_ms()
            )
            seen.update(letter.id for letter in page.letters)
            cursor = page.next_cursor
            if cursor is None:
                break
    return frozenset(seen)


class OperationScope:
    """Which operations a caller may see: those whose every dead letter is of the caller's queues. One per app.

    An operation that also takes others' messages would reveal them, and a caller who may not touch those must not pause
    it. An operation's letters are fixed when it is made, so the queues they lay in are read once and kept.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: OrderedDict[str, _Places] = OrderedDict()

    async def find(self, caller: Caller, id: str) -> Operation:
        """The operation with this id. Raises `HttpProblem` 404, also for one outside the scope."""
        found = await self._services.store.operations.get(id) if is_id(id) else None
        if found is None:
            raise not_found("redrive", id)
        if not await self.visible(caller, [found]):
            await self._services.refusal_audit.record_out_of_scope(caller, "redrive", id=found.id)
            raise not_found("redrive", id)
        return found

    async def visible(self, caller: Caller, operations: Sequence[Operation]) -> list[Operation]:
        """Those that the caller may see, in the same order."""
        if not caller.queues:
            return list(operations)
        places = {one.id: self._kept[one.id] for one in operations if one.id in self._kept}
        unknown = [one.id for one in operations if one.id not in places]
        if unknown:
            read = await self._services.store.operations.places(unknown)
            places.update(read)
            self._kept.update(read)
            while len(self._kept) > OPERATIONS_KEPT_MAX:
                self._kept.popitem(last=False)
        return [one for one in operations if _is_within(caller, one, places[one.id])]

    async def page(
        self, caller: Caller, limit: int, *, cursor: str | None, state: OperationState | None
    ) -> tuple[list[Operation], str | None]:
        """A page of the operations the caller may see, newest first, and a cursor if there may be more.

        Raises `InvalidCursor`.
        """
        store = self._services.store.operations
        if not caller.queues:
            return await store.page(limit, cursor=cursor, state=state)
        found: list[Operation] = []
        for _ in range(OPERATIONS_READ_MAX // _CHUNK):
            begin = cursor
            batch, cursor = await store.page(_CHUNK, cursor=begin, state=state)
            seen = await self.visible(caller, batch)
            if len(found) + len(seen) >= limit:
                last = seen[limit - len(found) - 1]
                found += seen[: limit - len(found)]
                place = batch.index(last) + 1
                if place < len(batch):
                    # The page ends inside this batch: take the cursor of a batch that ends at the same place.
                    _, cursor = await store.page(place, cursor=begin, state=state)
                break
            found += seen
            if cursor is None:
                break
        return found, cursor


async def operation_scope_of(request: Request) -> OperationScope:
    """The operation scope of the app that handles a request. It awaits nothing: `async` keeps FastAPI from using a
    thread for it."""
    state = request.app.state
    found = getattr(state, "operation_scope", None)
    if not isinstance(found, OperationScope):
        found = state.operation_scope = OperationScope(services_of(request))
    return found


CurrentScope = Annotated[OperationScope, Depends(operation_scope_of)]


def _is_within(caller: Caller, operation: Operation, places: _Places) -> bool:
    if not places:
        # It selected nothing, so it reveals no queue, but its selection text is its author's.
        return operation.who == caller.who
    if operation.token_id and operation.token_id == caller.token_id:
        return True  # also if its dead letters are gone
    return all(dlq is not None and caller.sees_dlq(dlq) for _, dlq in places)
