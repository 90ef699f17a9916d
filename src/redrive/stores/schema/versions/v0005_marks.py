"""Version 5: an operation's secret, with which its copies are marked. Those before have none until they run again."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """In one dialect."""
    return (f"ALTER TABLE operations ADD COLUMN secret {dialect.blob}",)
