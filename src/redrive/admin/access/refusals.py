"""Refusals in the audit: 401, 403, and 404 for what is of other queues.

What is alike (who, what for, for which reason) is told at most once a minute, with how many there were. The first is
written at once; further ones within the minute are counted, and told in one entry, which has the first one's time and
detail, and the last one's time in `until`. Memory and entries are bounded: beyond `ORIGINS_MAX` the oldest is written
and forgotten, and who is refused one thing for more than `REASONS_MAX` reasons a minute, because a reason may name what
was asked for, is told of as that.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redrive.admin.access.caller import Caller
from redrive.admin.senders import origin_of
from redrive.records import AuditEntry, moment_json
from redrive.stores import StoreUnavailable

if TYPE_CHECKING:
    from redrive.admin.services import Services

ORIGINS_MAX = 2_000
REASONS_MAX = 5
QUIET_MS = 60_000
OTHER_REASONS = "for other reasons than those told before; whoever asked was told them"

_Key = tuple[str, str, str, str]
"""Action, who with which token, subject, reason."""


@dataclass(slots=True)
class _Alike:
    """Refusals that are alike: when they were told last, and those since: the first, the last one's time, how many."""

    told_ms: int | None = None
    first: AuditEntry | None = None
    until_ms: int = 0
    untold: int = 0

    def add(self, first: AuditEntry, *, until_ms: int, count: int = 1) -> None:
        if self.first is None or first.at_ms < self.first.at_ms:
            self.first = first
        self.until_ms = max(self.until_ms, until_ms)
        self.untold += count

    def is_quiet(self, now_ms: int) -> bool:
        return self.told_ms is not None and now_ms - self.told_ms < QUIET_MS


class Refusals:
    """Notes refusals in the audit, and to the observer."""

    def __init__(self) -> None:
        self._told: OrderedDict[_Key, _Alike] = OrderedDict()

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

        Of each kind (`what`) there is one entry a minute, and `where` tells of the first in it: who tries every id
        fills no disk.
        """
        reason = f"the {what} is of a queue outside of the token's"
        await self._refused(_of(caller, "access.outside_scope", what, reason, where), services)

    async def flush(self, services: "Services", *, all_of_them: bool = False) -> None:
        """Writes what was counted and not told for a minute, or all of it."""
        now_ms = services.clock_ms()
        for key, alike in list(self._told.items()):
            if alike.is_quiet(now_ms) and not all_of_them:
                continue
            if alike.untold:
                await _write(alike, services, now_ms)
            else:
                self._told.pop(key, None)

    async def _refused(self, refusal: AuditEntry, services: "Services") -> None:
        now_ms = services.clock_ms()
        entry = replace(refusal, at_ms=now_ms)
        alike = self._told.get(_key(entry))
        if alike is None:
            if self._reasons(entry) >= REASONS_MAX:
                entry = replace(entry, why=OTHER_REASONS, detail={})
            alike = self._told.setdefault(_key(entry), _Alike())
        alike.add(entry, until_ms=now_ms)
        if alike.is_quiet(now_ms):
            return
        self._told.move_to_end(_key(entry))
        alike.told_ms = now_ms
        while len(self._told) > ORIGINS_MAX:
            _, oldest = self._told.popitem(last=False)
            if oldest.untold:
                await _write(oldest, services, now_ms)
        await _write(alike, services, now_ms)

    def _reasons(self, entry: AuditEntry) -> int:
        """For how many reasons the same was refused lately."""
        same = _key(entry)[:3]
        return sum(1 for key in self._told if key[:3] == same)


def _key(entry: AuditEntry) -> _Key:
    return entry.action, f"{entry.token_id} {entry.who}", entry.subject, entry.why


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


async def _write(alike: _Alike, services: "Services", now_ms: int) -> None:
    entry, until_ms, count = alike.first, alike.until_ms, alike.untold
    if entry is None:
        return  # somebody else has just written it
    alike.first, alike.untold, alike.until_ms, alike.told_ms = None, 0, 0, now_ms
    services.observer.note(
        "admin.refused", action=entry.action, who=entry.who, subject=entry.subject, reason=entry.why, count=count
    )
    detail = {**entry.detail, "until": moment_json(until_ms)} if count > 1 else entry.detail
    try:
        await services.store.audit.add(replace(entry, count=count, detail=detail))
    except StoreUnavailable:
        # The refusal stands all the same; it is told with the next one.
        alike.add(entry, until_ms=until_ms, count=count)
