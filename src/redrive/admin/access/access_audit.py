"""What the audit records about access: refusals (401, 403, 404 outside a token's queues), and payloads that were read.

Refusals that are alike (same caller, subject and reason) are written at most once a minute, with their number. The
first is written at once. Further ones within the minute are counted, and written as one entry, which has the time and
detail of the first of them, and the time of the last in `until`. Memory and entries are bounded: beyond `ORIGINS_MAX`
the oldest is written and forgotten. A reason may name what was asked for, so beyond `REASONS_MAX` reasons a minute for
the same caller and subject the reason is `OTHER_REASONS`.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redrive.admin.access.caller import Caller
from redrive.admin.access.request_origin import address_network
from redrive.core import Observer
from redrive.records import AuditEntry, View, moment_json
from redrive.stores import Store, StoreUnavailable

if TYPE_CHECKING:
    from redrive.admin.services import Services

ORIGINS_MAX = 2_000
REASONS_MAX = 5
QUIET_MS = 60_000
OTHER_REASONS = "for other reasons than those above; the caller was told them"

_Key = tuple[str, str, str, str]
"""Action, who with which token, subject, reason."""


@dataclass(slots=True)
class _Alike:
    """Refusals that are alike: when they were last written, and of those since then the first, the time of the last,
    and their number."""

    written_ms: int | None = None
    first: AuditEntry | None = None
    until_ms: int = 0
    unwritten: int = 0

    def add(self, first: AuditEntry, *, until_ms: int, count: int = 1) -> None:
        if self.first is None or first.at_ms < self.first.at_ms:
            self.first = first
        self.until_ms = max(self.until_ms, until_ms)
        self.unwritten += count

    def is_quiet(self, now_ms: int) -> bool:
        return self.written_ms is not None and now_ms - self.written_ms < QUIET_MS


class RefusalAudit:
    """Writes refusals to the audit and to the log."""

    def __init__(self, store: Store, *, observer: Observer, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._observer = observer
        self._clock_ms = clock_ms
        self._alike: OrderedDict[_Key, _Alike] = OrderedDict()

    async def record_unauthenticated(self, address: str, reason: str) -> None:
        """A request without a valid token. `reason` is our own text: it never contains what was sent."""
        who = f"address {address_network(address)}"
        await self._refused(
            AuditEntry(at_ms=0, who=who, action="access.unauthenticated", subject="api", count=1, why=reason)
        )

    async def record_forbidden(self, caller: Caller, what: str, reason: str) -> None:
        """A caller asked for more than they may."""
        await self._refused(_of(caller, "access.forbidden", what, reason))

    async def record_out_of_scope(self, caller: Caller, what: str, **where: Any) -> None:
        """A caller asked for something outside their token's queues, and got 404.

        Each kind (`what`) has one entry a minute, and `where` describes the first: a caller who tries every id does not
        fill the disk.
        """
        reason = f"the {what} is of a queue outside of the token's"
        await self._refused(_of(caller, "access.outside_scope", what, reason, where))

    async def flush(self, *, all_of_them: bool = False) -> None:
        """Writes the refusals that were counted and not written for a minute, or all of them."""
        now_ms = self._clock_ms()
        for key, alike in list(self._alike.items()):
            if alike.is_quiet(now_ms) and not all_of_them:
                continue
            if alike.unwritten:
                await self._write(alike, now_ms)
            else:
                self._alike.pop(key, None)

    async def _refused(self, refusal: AuditEntry) -> None:
        now_ms = self._clock_ms()
        entry = replace(refusal, at_ms=now_ms)
        alike = self._alike.get(_key(entry))
        if alike is None:
            if self._reasons(entry) >= REASONS_MAX:
                entry = replace(entry, why=OTHER_REASONS, detail={})
            alike = self._alike.setdefault(_key(entry), _Alike())
        alike.add(entry, until_ms=now_ms)
        if alike.is_quiet(now_ms):
            return
        self._alike.move_to_end(_key(entry))
        alike.written_ms = now_ms
        while len(self._alike) > ORIGINS_MAX:
            _, oldest = self._alike.popitem(last=False)
            if oldest.unwritten:
                await self._write(oldest, now_ms)
        await self._write(alike, now_ms)

    def _reasons(self, entry: AuditEntry) -> int:
        """How many reasons the same refusal had lately."""
        same = _key(entry)[:3]
        return sum(1 for key in self._alike if key[:3] == same)

    async def _write(self, alike: _Alike, now_ms: int) -> None:
        entry, until_ms, count = alike.first, alike.until_ms, alike.unwritten
        if entry is None:
            return  # another request has just written it
        alike.first, alike.unwritten, alike.until_ms, alike.written_ms = None, 0, 0, now_ms
        self._observer.note(
            "admin.refused", action=entry.action, who=entry.who, subject=entry.subject, reason=entry.why, count=count
        )
        detail = {**entry.detail, "until": moment_json(until_ms)} if count > 1 else entry.detail
        try:
            await self._store.audit.add(replace(entry, count=count, detail=detail))
        except StoreUnavailable:
            # The request is refused nevertheless; this is written with the next refusal.
            alike.add(entry, until_ms=until_ms, count=count)


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


async def audit_payload_read(services: "Services", caller: Caller, view: View, subject: str, queue: str) -> None:
    """Records who reads a payload, before it is shown, if `audit_reads` is set."""
    if not services.settings.audit_reads or not view.sees_payloads:
        return
    entry = AuditEntry(
        at_ms=services.clock_ms(),
        who=caller.who,
        action="payload.read",
        subject=subject,
        count=1,
        why="",
        detail={"queue": queue},
        token_id=caller.token_id,
    )
    await services.store.audit.add(entry)
