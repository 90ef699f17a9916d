"""Version 7: a person's redrive begins the budget of auto-retry anew, and a rule knows whether a file declares it.

`forgiven` are the returns of a dead letter that auto-retry does not count: all up to that of the copy which a person
sent last.
"""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects, but for their words for a number."""
    integer = dialect.integer
    return (
        f"ALTER TABLE letters ADD COLUMN forgiven {integer} NOT NULL DEFAULT 0",
        f"ALTER TABLE rules ADD COLUMN is_declared {integer} NOT NULL DEFAULT 0",
    )
