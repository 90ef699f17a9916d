"""Version 10: what happened over time is counted by the dead-letter queue too: by where letters were taken from.

Of older activity the queue is unknown: its name is empty, and only callers who see everything see it.
"""

from redrive.stores.schema.dialect import Dialect

_TABLE = """\
CREATE TABLE activity_by_dlq (
    at_ms {integer} NOT NULL,
    queue TEXT NOT NULL,
    dlq TEXT NOT NULL,
    dead {integer} NOT NULL,
    redriven {integer} NOT NULL,
    returned {integer} NOT NULL,
    resolved {integer} NOT NULL,
    PRIMARY KEY (at_ms, queue, dlq)
) {without_rowid}"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """The same in both dialects but for the types."""
    without_rowid = "WITHOUT ROWID" if dialect.kind == "sqlite" else ""
    return (
        _TABLE.format(integer=dialect.integer, without_rowid=without_rowid),
        "INSERT INTO activity_by_dlq (at_ms, queue, dlq, dead, redriven, returned, resolved) "
        "SELECT at_ms, queue, '', dead, redriven, returned, resolved FROM activity",
        "DROP TABLE activity",
        "ALTER TABLE activity_by_dlq RENAME TO activity",
    )
