"""Which values of messages are hidden from which roles. One entry for each path: setting it again changes the role."""

from redrive.records import AuditEntry, Redaction, Role, storable
from redrive.stores.audit import write_audit
from redrive.stores.database import Database
from redrive.stores.errors import StoreError

_ALL = "SELECT id, kind, path, hidden_from FROM redactions ORDER BY kind, path"
_SET = """
INSERT INTO redactions (id, kind, path, hidden_from) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, path) DO UPDATE SET hidden_from = excluded.hidden_from RETURNING id
"""
_REMOVE = "DELETE FROM redactions WHERE id = $1 RETURNING kind, path, hidden_from"


class UnknownRedaction(StoreError):
    """There is no redaction with this id."""

    def __init__(self, redaction_id: str) -> None:
        self.redaction_id = redaction_id
        super().__init__(f"there is no redaction {redaction_id}; list them to see which there are")


class Redactions:
    """Reading and changing the redactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> tuple[Redaction, ...]:
        """Every redaction, by kind and path."""
        async with self._database.autocommit() as tx:
            rows = await tx.rows(_ALL)
        return tuple(
            Redaction(id=id, kind=kind, path=path, hidden_from=Role(hidden_from))
            for id, kind, path, hidden_from in rows
        )

    async def set(self, redaction: Redaction, *, who: str, now_ms: int, why: str = "") -> Redaction:
        """Hides a value; the redaction as it is stored, with the id it had if the path was hidden before."""
        path = storable(redaction.path)
        async with self._database.write() as tx:
            row = await tx.row(_SET, redaction.id, redaction.kind, path, str(redaction.hidden_from))
            assert row is not None
            stored = Redaction(id=row[0], kind=redaction.kind, path=path, hidden_from=redaction.hidden_from)
            await write_audit(tx, _entry(stored, "redaction.set", who, why, now_ms))
            return stored

    async def remove(self, redaction_id: str, *, who: str, now_ms: int, why: str = "") -> None:
        """Shows the value again. Raises `UnknownRedaction`."""
        async with self._database.write() as tx:
            row = await tx.row(_REMOVE, storable(redaction_id))
            if row is None:
                raise UnknownRedaction(redaction_id)
            kind, path, hidden_from = row
            removed = Redaction(id=redaction_id, kind=kind, path=path, hidden_from=Role(hidden_from))
            await write_audit(tx, _entry(removed, "redaction.removed", who, why, now_ms))


def _entry(redaction: Redaction, action: str, who: str, why: str, now_ms: int) -> AuditEntry:
    subject = f"{redaction.kind}.{redaction.path}"
    detail = {"id": redaction.id, "hidden_from": str(redaction.hidden_from)}
    return AuditEntry(at_ms=now_ms, who=who, action=action, subject=subject, count=1, why=why, detail=detail)
