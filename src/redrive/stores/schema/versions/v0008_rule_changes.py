"""Version 8: how far a changed rule has been applied to the dead letters that were there (`rules`)."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """In one dialect."""
    integer = dialect.integer
    return (
        f"""
CREATE TABLE rule_changes (
    scope TEXT NOT NULL PRIMARY KEY,
    after_seq {integer} NOT NULL,
    until_seq {integer} NOT NULL,
    changed {integer} NOT NULL,
    at_ms {integer} NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL
)
""",
    )
