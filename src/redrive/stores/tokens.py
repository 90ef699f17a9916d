"""Tokens of the admin API. Only the hash of a secret is stored. A revoked token stays, for the audit."""

import json

from redrive.records import AuditEntry, Redaction, Role, Token, fold_name, moment_json, storable
from redrive.stores.audit import write_audit
from redrive.stores.database import Database, Row, WriteTransaction
from redrive.stores.errors import StoreError
from redrive.stores.search.filter_sql import sql

_COLUMNS = "id, name, role, queues, sees_payloads, created_at_ms, created_by, expires_at_ms, revoked_at_ms"
_CREATE = """
INSERT INTO tokens (id, name, role, queues, sees_payloads, secret_hash, created_at_ms, created_by, expires_at_ms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_TAKE_NAME = "INSERT INTO token_names (folded, token_id) VALUES ($1, $2) ON CONFLICT (folded) DO NOTHING"
_NAMES = "SELECT name, id FROM tokens ORDER BY created_at_ms, id"
# Two processes that see no token at the same time collide at `is_first`: one waits for the other, then does nothing.
_CREATE_FIRST = """
INSERT INTO tokens
    (id, name, role, queues, sees_payloads, secret_hash, created_at_ms, created_by, expires_at_ms, is_first)
SELECT $1, $2, $3, $4, CAST($5 AS BIGINT), $6, CAST($7 AS BIGINT), $8, CAST($9 AS BIGINT), 1
WHERE NOT EXISTS (SELECT 1 FROM tokens) ON CONFLICT DO NOTHING
"""
_FIND = sql("SELECT secret_hash,", _COLUMNS, "FROM tokens WHERE id = $1")
# A row for each redaction; one without where there are none.
_ADMIT = sql(
    "SELECT t.secret_hash,",
    ", ".join(f"t.{column.strip()}" for column in _COLUMNS.split(",")),
    ", r.id, r.kind, r.path, r.hidden_from FROM tokens AS t LEFT JOIN redactions AS r ON 1 = 1 WHERE t.id = $1",
    "ORDER BY r.kind, r.path",
)
_ALL = sql("SELECT", _COLUMNS, "FROM tokens ORDER BY created_at_ms, id")
_REVOKE = "UPDATE tokens SET revoked_at_ms = $2 WHERE id = $1 AND revoked_at_ms IS NULL"


class UnknownToken(StoreError):
    """There is no token with this id."""

    def __init__(self, token_id: str) -> None:
        self.token_id = token_id
        super().__init__(f"there is no token {token_id}; list them to see which there are")


class TokenNameTaken(StoreError):
    """A token, perhaps a revoked one, has the name already. The audit names people by it, so no two ever share one."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is or was a token named {name} already; choose another name, such as {name}-2")


class Tokens:
    """Making, finding and revoking tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, token: Token, *, secret_hash: bytes, now_ms: int, why: str = "") -> None:
        """A new token, made by `token.created_by`. Raises `TokenNameTaken`."""
        async with self._database.write() as tx:
            if not await tx.run(_TAKE_NAME, fold_name(storable(token.name)), token.id):
                raise TokenNameTaken(token.name)
            await tx.run(_CREATE, *_values(token, secret_hash))
            await _note(tx, token, "token.created", token.created_by, why, now_ms)

    async def create_first(self, token: Token, *, secret_hash: bytes, now_ms: int) -> bool:
        """The token if there has never been one; whether it was made. Of many at once, one is."""
        async with self._database.write() as tx:
            is_made = bool(await tx.run(_CREATE_FIRST, *_values(token, secret_hash)))
            if is_made:
                await tx.run(_TAKE_NAME, fold_name(storable(token.name)), token.id)
                await _note(tx, token, "token.created", token.created_by, "the first start", now_ms)
            return is_made

    async def find(self, token_id: str) -> tuple[Token, bytes] | None:
        """A token, valid or not, and the hash of its secret."""
        async with self._database.autocommit() as tx:
            row = await tx.row(_FIND, token_id)
        if row is None:
            return None
        secret_hash, *others = row
        return _token(tuple(others)), bytes(secret_hash)

    async def admit(self, token_id: str) -> tuple[Token, bytes, tuple[Redaction, ...]] | None:
        """The same with every redaction, in one query: each request asks it before anything else."""
        async with self._database.autocommit() as tx:
            rows = await tx.rows(_ADMIT, token_id)
        if not rows:
            return None
        secret_hash, *others = rows[0]
        redactions = [
            Redaction(id=id, kind=kind, path=path, hidden_from=Role(hidden_from))
            for id, kind, path, hidden_from in (tuple(row)[-4:] for row in rows)
            if id is not None
        ]
        return _token(tuple(others[:-4])), bytes(secret_hash), tuple(redactions)

    async def all(self) -> tuple[Token, ...]:
        """Every token there ever was, the oldest first."""
        async with self._database.read() as tx:
            return tuple(_token(row) for row in await tx.rows(_ALL))

    async def revoke(self, token_id: str, *, who: str, now_ms: int, why: str = "") -> Token:
        """Makes a token invalid; one that was revoked stays as it is. Raises `UnknownToken`."""
        async with self._database.write() as tx:
            is_changed = await tx.run(_REVOKE, token_id, now_ms)
            row = await tx.row(_FIND, token_id)
            if row is None:
                raise UnknownToken(token_id)
            token = _token(tuple(row)[1:])
            if is_changed:
                await _note(tx, token, "token.revoked", who, why, now_ms)
            return token


async def adopt_names(tx: WriteTransaction) -> None:
    """Reserves the names of tokens that are older than the table of names; of two alike the older token keeps it."""
    for name, id in await tx.rows(_NAMES):
        await tx.run(_TAKE_NAME, fold_name(name), id)


async def _note(tx: WriteTransaction, token: Token, action: str, who: str, why: str, now_ms: int) -> None:
    """Audits all that was granted: the audit must show what somebody could do, also when the token is long gone."""
    detail = {
        "name": token.name,
        "role": str(token.role),
        "queues": list(token.queues),
        "every_queue": not token.queues,
        "payloads": token.shows_payloads,
        "expires_at": None if token.expires_at_ms is None else moment_json(token.expires_at_ms),
    }
    await write_audit(
        tx, AuditEntry(at_ms=now_ms, who=who, action=action, subject=token.id, count=1, why=why, detail=detail)
    )


def _values(token: Token, secret_hash: bytes) -> Row:
    return (
        token.id,
        storable(token.name),
        str(token.role),
        json.dumps([storable(queue) for queue in token.queues]),
        int(token.sees_payloads),
        secret_hash,
        token.created_at_ms,
        storable(token.created_by),
        token.expires_at_ms,
    )


def _token(row: Row) -> Token:
    id, name, role, queues, sees_payloads, created_at_ms, created_by, expires_at_ms, revoked_at_ms = row
    return Token(
        id=id,
        name=name,
        role=Role(role),
        queues=tuple(json.loads(queues)),
        sees_payloads=bool(sees_payloads),
        created_at_ms=created_at_ms,
        created_by=created_by,
        expires_at_ms=expires_at_ms,
        revoked_at_ms=revoked_at_ms,
    )
