"""Version 9: what senders are limited to: the queues and the token of operations, the queues of rules; and whose
a group is."""

from redrive.stores.schema.dialect import Dialect


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects."""
    return (
        "ALTER TABLE operations ADD COLUMN queues TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE operations ADD COLUMN token_id TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rules ADD COLUMN queues TEXT NOT NULL DEFAULT '[]'",
        "ALTER TABLE groups ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
        "UPDATE groups SET owner = queue",
    )
