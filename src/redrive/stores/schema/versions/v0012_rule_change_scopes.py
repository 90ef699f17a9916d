"""Version 12: for whose dead letters a changed rule is applied (`retry_rules`)."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects. One that is being applied goes on for all of them."""
    return ("ALTER TABLE rule_changes ADD COLUMN queues TEXT NOT NULL DEFAULT '[]'",)
