"""Which operations a caller may see: those of which every dead letter is of the caller's queues.

One that also takes others' messages would tell of them, and must not be paused by somebody who may not touch them.
What an operation takes is frozen when it is made, so where its dead letters lay is read once and kept.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Request

from redrive.admin.access import Caller
from redrive.admin.problems import not_found
from redrive.admin.selecting import is_id
from redrive.admin.services import Services, services_of
from redrive.records import Operation, OperationState

KEPT_MAX = 5_000
LOOKED_AT_MAX = 1_000
"""So many operations a page of a limited caller looks at before it is given out as it is."""
_CHUNK = 100
_Places = frozenset[tuple[str, str | None]]


class OperationScope:
    """Remembers where the dead letters of operations lay. One for each app."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._kept: OrderedDict[str, _Places] = OrderedDict()

    async def find(self, caller: Caller, id: str) -> Operation:
        """The operation with this id. Raises `Problem` 404, also for one outside the scope."""
        found = await self._services.store.operations.get(id) if is_id(id) else None
        if found is None:
            raise not_found("redrive", id)
        if not await self.visible(caller, [found]):
            await self._services.refusals.outside(caller, "redrive", self._services, id=found.id)
            raise not_found("redrive", id)
        return found

    async def visible(self, caller: Caller, operations: Sequence[Operation]) -> list[Operation]:
        """Those that the caller may see, in their order."""
        if not caller.queues:
            return list(operations)
        places = {one.id: self._kept[one.id] for one in operations if one.id in self._kept}
        unknown = [one.id for one in operations if one.id not in places]
        if unknown:
            read = await self._services.store.operations.places(unknown)
            places.update(read)
            self._kept.update(read)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return [one for one in operations if _is_within(caller, one, places[one.id])]

    async def page(
        self, caller: Caller, limit: int, *, cursor: str | None, state: OperationState | None
    ) -> tuple[list[Operation], str | None]:
        """A page of what the caller may see, the newest first, and a cursor where there may be more.

        Raises `InvalidCursor`.
        """
        store = self._services.store.operations
        if not caller.queues:
            return await store.page(limit, cursor=cursor, state=state)
        found: list[Operation] = []
        for _ in range(LOOKED_AT_MAX // _CHUNK):
            begin = cursor
            batch, cursor = await store.page(_CHUNK, cursor=begin, state=state)
            seen = await self.visible(caller, batch)
            if len(found) + len(seen) >= limit:
                last = seen[limit - len(found) - 1]
                found += seen[: limit - len(found)]
                place = batch.index(last) + 1
                if place < len(batch):
                    # The page ends within the batch: its cursor is that of a batch which ends there.
                    _, cursor = await store.page(place, cursor=begin, state=state)
                break
            found += seen
            if cursor is None:
                break
        return found, cursor


async def operation_scope_of(request: Request) -> OperationScope:
    """The one of the app that a request came to. It waits for nothing, and is `async` so that no thread is asked."""
    state = request.app.state
    found = getattr(state, "operation_scope", None)
    if not isinstance(found, OperationScope):
        found = state.operation_scope = OperationScope(services_of(request))
    return found


CurrentScope = Annotated[OperationScope, Depends(operation_scope_of)]


def _is_within(caller: Caller, operation: Operation, places: _Places) -> bool:
    if not places:
        # It took nothing: there is nobody's queue in it, but the text of what was asked.
        return operation.who == caller.who
    if operation.token_id and operation.token_id == caller.token_id:
        return True  # also when its dead letters are gone
    return all(dlq is not None and caller.sees_dlq(dlq) for _, dlq in places)
