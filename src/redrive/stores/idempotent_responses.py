"""Responses of the admin API, kept for a day: a repeated request gets the stored response and is not done again.

A request with a key first reserves it. If its process dies, the reservation expires; the next process takes it over
with a higher turn, and a late response of the first is ignored.
"""

import json
from dataclasses import dataclass, field
from typing import TypeAlias

from redrive.records import storable
from redrive.stores.database import Database
from redrive.stores.errors import StoreUnavailable

KEPT_MS = 24 * 60 * 60_000
STALE_MS = 60_000
"""A reservation that is older belongs to nobody any more: no request takes so long."""
FORGETS_AFTER_MS = 60_000
"""How often a process looks for answers that are too old."""
_TRIES = 3

_FORGET = "DELETE FROM answers WHERE at_ms < $1"
_RESERVE = """
INSERT INTO answers (owner, key, request, at_ms, turn) VALUES ($1, $2, $3, $4, 1)
ON CONFLICT (owner, key) DO NOTHING
"""
_FIND = "SELECT request, at_ms, turn, status, headers, body FROM answers WHERE owner = $1 AND key = $2 FOR UPDATE"
_TAKE_OVER = "UPDATE answers SET turn = $3, at_ms = $4 WHERE owner = $1 AND key = $2"
_KEEP = """
UPDATE answers SET status = $4, headers = $5, body = $6 WHERE owner = $1 AND key = $2 AND turn = $3 AND status IS NULL
"""
_RELEASE = "DELETE FROM answers WHERE owner = $1 AND key = $2 AND turn = $3 AND status IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """What was answered; `headers` as pairs of name and value."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReservation:
    """The right to do what a key is for."""

    owner: str
    key: str
    turn: int


@dataclass(frozen=True, slots=True)
class RequestInProgress:
    """Somebody is at it."""


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key came before with another request."""


Reserved: TypeAlias = KeyReservation | StoredResponse | RequestInProgress | KeyReused


class IdempotentResponses:
    """Reserving keys and keeping answers. `owner` is whose key it is: a token's id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._forgets_at_ms = 0

    async def reserve(self, owner: str, key: str, request: bytes, *, now_ms: int) -> Reserved:
        """The right to do it, or why not; `request` is a hash of what is asked."""
        key = storable(key)
        async with self._database.write() as tx:
            if now_ms >= self._forgets_at_ms:
                self._forgets_at_ms = now_ms + FORGETS_AFTER_MS
                await tx.run(_FORGET, now_ms - KEPT_MS)
            for _ in range(_TRIES):
                if await tx.run(_RESERVE, owner, key, request, now_ms):
                    return KeyReservation(owner=owner, key=key, turn=1)
                row = await tx.row(_FIND, owner, key)
                if row is None:
                    continue  # released in between
                asked, at_ms, turn, status, headers, body = row
                if bytes(asked) != request:
                    return KeyReused()
                if status is not None:
                    pairs = tuple((name, value) for name, value in json.loads(headers))
                    return StoredResponse(status=status, headers=pairs, body=bytes(body))
                if now_ms - at_ms < STALE_MS:
                    return RequestInProgress()
                await tx.run(_TAKE_OVER, owner, key, turn + 1, now_ms)
                return KeyReservation(owner=owner, key=key, turn=turn + 1)
        raise StoreUnavailable(self._database.address, "the key is used by many at once", "try again")

    async def keep(self, reservation: KeyReservation, answer: StoredResponse) -> bool:
        """Keeps the answer; False where somebody else took the reservation over."""
        headers = json.dumps([list(pair) for pair in answer.headers])
        async with self._database.write() as tx:
            place = (reservation.owner, reservation.key, reservation.turn)
            return bool(await tx.run(_KEEP, *place, answer.status, headers, answer.body))

    async def release(self, reservation: KeyReservation) -> None:
        """Gives the key free: nothing was done, and the next one may do it."""
        async with self._database.write() as tx:
            await tx.run(_RELEASE, reservation.owner, reservation.key, reservation.turn)
