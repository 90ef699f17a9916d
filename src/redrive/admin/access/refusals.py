"""Refusals in the audit: 401, 403, and 404 for what is of other queues.

Each kind from each origin is told at most once a minute, with how many there were.
An entry is written at once; further ones within the minute are counted, and told with the next entry or by `flush`.
Memory is bounded: beyond `ORIGINS_MAX` the oldest is written and forgotten.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redrive.admin.access.caller import Caller
from redrive.admin.access.slowing import origin_of
from redrive.dlq import StoreUnavailable
from redrive.records import AuditEntry

if TYPE_CHECKING:
    from redrive.admin.services import Services

ORIGINS_MAX = 2_000
QUIET_MS = 60_000


@dataclass(slots=True)
class _Told:
    """What was told last of one kind from one origin, and how many came since."""

    at_ms: int
    entry: AuditEntry
    untold: int = 0


class Refusals:
    """Notes refusals in the audit, and to the observer."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str, str], _Told] = OrderedDict()

    async def unauthenticated(self, address: str, reason: str, services: "Services") -> None:
        """Somebody came without a token that counts. `reason` is ours: it never has what they sent."""
        who = f"address {origin_of(address)}"
        await self._refused(
            AuditEntry(at_ms=0, who=who, action="access.unauthenticated", subject="api", count=1, why=reason), services
        )

    async def forbade(self, caller: Caller, what: str, reason: str, services: "Services") -> None:
        """Somebody asked for more than they may."""
        await self._refused(_of(caller, "access.forbidden", what, reason), services)

    async def outside(self, caller: Caller, what: str, services: "Services", **where: Any) -> None:
        """Somebody asked about what is of other queues than their token's, and heard that it is not there.

        Of each kind (`what`) there is one entry a minute, and `where` tells of the first: who tries every id fills no
        disk.
        """
        reason = f"the {what} is of a queue outside of the token's"
        await self._refused(_of(caller, "access.outside_scope", what, reason, where), services)

    async def flush(self, services: "Services", *, all_of_them: bool = False) -> None:
        """Writes what was counted and not told for a minute, or all of it."""
        now_ms = services.clock_ms()
        for key, told in list(self._told.items()):
            if now_ms - told.at_ms < QUIET_MS and not all_of_them:
                continue
            if told.untold:
                await _write(told, services, now_ms)
            else:
                self._told.pop(key, None)

    async def _refused(self, refusal: AuditEntry, services: "Services") -> None:
        now_ms = services.clock_ms()
        key = (refusal.action, f"{refusal.token_id} {refusal.who}", refusal.subject)
        told = self._told.get(key)
        if told is not None and now_ms - told.at_ms < QUIET_MS:
            told.untold += 1
            return
        entry = replace(refusal, at_ms=now_ms)
        count = 1 if told is None else told.untold + 1
        self._told[key] = told = _Told(at_ms=now_ms, entry=entry, untold=count)
        self._told.move_to_end(key)
        while len(self._told) > ORIGINS_MAX:
            _, oldest = self._told.popitem(last=False)
            if oldest.untold:
                await _write(oldest, services, now_ms)
        await _write(told, services, now_ms)


def _of(caller: Caller, action: str, subject: str, why: str, detail: Mapping[str, Any] | None = None) -> AuditEntry:
    return AuditEntry(
        at_ms=0,
        who=caller.who,
        action=action,
        subject=subject,
        count=1,
        why=why,
        detail=dict(detail or {}),
        token_id=caller.token_id,
    )


async def _write(told: _Told, services: "Services", now_ms: int) -> None:
    count, told.untold, told.at_ms = told.untold, 0, now_ms
    entry = told.entry
    services.observer.note(
        "admin.refused", action=entry.action, who=entry.who, subject=entry.subject, reason=entry.why, count=count
    )
    try:
        await services.store.audit.add(replace(entry, at_ms=now_ms, count=count))
    except StoreUnavailable:
        # The refusal stands all the same; it is told with the next one.
        told.untold += count
