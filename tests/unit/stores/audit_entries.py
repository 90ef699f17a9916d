"""Audit entries for the tests of the audit."""

from redrive.records import AuditEntry
from tests.unit.stores.made_letters import NOW_MS


def entry(number: int, **fields: object) -> AuditEntry:
    """An entry; its count is the number, and a field is as it is given."""
    values = {"at_ms": NOW_MS, "who": "ann", "action": "letters.resolved", "subject": "x", "count": number, "why": ""}
    return AuditEntry(**{**values, **fields})  # type: ignore[arg-type]
