"""Version 11: what somebody said last about a group, with the reason; before, only the audit had it."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The statements, in order."""
    return (
        "ALTER TABLE groups ADD COLUMN said TEXT",
        f"ALTER TABLE groups ADD COLUMN said_at_ms {dialect.integer}",
        "ALTER TABLE groups ADD COLUMN said_by TEXT",
        "ALTER TABLE groups ADD COLUMN said_why TEXT",
    )
