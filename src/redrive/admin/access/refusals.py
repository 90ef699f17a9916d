"""Refusals in the audit: 401 and 403, each kind from each origin at most once a minute, with how many there were.

An entry is written at once; further ones within the minute are counted, and told with the next entry or by `flush`.
Memory is bounded: beyond `ORIGINS_MAX` the oldest is written and forgotten.
"""

from collections import OrderedDict
from dataclasses import dataclass

from redrive.admin.access.caller import Caller
from redrive.admin.access.slowing import origin_of
from redrive.admin.services import Services
from redrive.dlq import StoreUnavailable
from redrive.records import AuditEntry

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

    async def unauthenticated(self, address: str, reason: str, services: Services) -> None:
        """Somebody came without a token that counts. `reason` is ours: it never has what they sent."""
        await self._refused("access.unauthenticated", f"address {origin_of(address)}", "api", reason, services)

    async def forbade(self, caller: Caller, what: str, reason: str, services: Services) -> None:
        """Somebody asked for more than they may."""
        await self._refused("access.forbidden", caller.who, what, reason, services)

    async def flush(self, services: Services, *, all_of_them: bool = False) -> None:
        """Writes what was counted and not told for a minute, or all of it."""
        now_ms = services.clock_ms()
        for key, told in list(self._told.items()):
            if now_ms - told.at_ms < QUIET_MS and not all_of_them:
                continue
            if told.untold:
                await _write(told, services, now_ms)
            else:
                self._told.pop(key, None)

    async def _refused(self, action: str, who: str, subject: str, reason: str, services: Services) -> None:
        now_ms = services.clock_ms()
        key = (action, who, subject)
        told = self._told.get(key)
        if told is not None and now_ms - told.at_ms < QUIET_MS:
            told.untold += 1
            return
        entry = AuditEntry(at_ms=now_ms, who=who, action=action, subject=subject, count=1, why=reason)
        count = 1 if told is None else told.untold + 1
        self._told[key] = told = _Told(at_ms=now_ms, entry=entry, untold=count)
        self._told.move_to_end(key)
        while len(self._told) > ORIGINS_MAX:
            _, oldest = self._told.popitem(last=False)
            if oldest.untold:
                await _write(oldest, services, now_ms)
        await _write(told, services, now_ms)


async def _write(told: _Told, services: Services, now_ms: int) -> None:
    count, told.untold, told.at_ms = told.untold, 0, now_ms
    entry = told.entry
    services.observer.note(
        "admin.refused", action=entry.action, who=entry.who, subject=entry.subject, reason=entry.why, count=count
    )
    try:
        await services.store.audit.add(
            AuditEntry(
                at_ms=now_ms, who=entry.who, action=entry.action, subject=entry.subject, count=count, why=entry.why
            )
        )
    except StoreUnavailable:
        # The refusal stands all the same; it is told with the next one.
        told.untold += count
