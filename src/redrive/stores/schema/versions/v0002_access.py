"""Version 2: who may use the admin API (tokens), what they don't see (redactions), answers kept for repeated requests.

`is_first` is 1 for the token that the first start has made and NULL for all others, so that only one can be made.
"""

from redrive.stores.schema.dialect import Dialect

_ACCESS = """
CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    queues TEXT NOT NULL,
    sees_payloads {integer} NOT NULL,
    secret_hash {blob} NOT NULL,
    created_at_ms {integer} NOT NULL,
    created_by TEXT NOT NULL,
    expires_at_ms {integer},
    revoked_at_ms {integer},
    is_first {integer} UNIQUE
);
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at_ms IS NULL;
CREATE TABLE redactions (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    hidden_from TEXT NOT NULL
);
CREATE UNIQUE INDEX redactions_path ON redactions (kind, path);
CREATE TABLE answers (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    request {blob} NOT NULL,
    at_ms {integer} NOT NULL,
    turn {integer} NOT NULL,
    status {integer},
    headers TEXT,
    body {blob},
    PRIMARY KEY (owner, key)
);
CREATE INDEX answers_at ON answers (at_ms);
"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """All of it, in one dialect."""
    text = _ACCESS.format(integer=dialect.integer, blob=dialect.blob)
    return tuple(part.strip() for part in text.split(";") if part.strip())
