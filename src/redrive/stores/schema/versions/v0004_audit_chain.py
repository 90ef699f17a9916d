"""Version 4: the audit as a chain with one head, whose token each entry is, and names of tokens taken for ever.

`store` takes in older entries (`audit.adopt_older`) and names (`tokens.adopt_names`): SQL can't hash and fold them.
"""

from redrive.stores.schema.dialect import Dialect

_CHAIN = """
ALTER TABLE audit ADD COLUMN token_id TEXT NOT NULL DEFAULT '';
ALTER TABLE audit ADD COLUMN place {integer};
ALTER TABLE audit ADD COLUMN hash {blob};
CREATE UNIQUE INDEX audit_place ON audit (place);
CREATE TABLE audit_head (
    id {integer} NOT NULL PRIMARY KEY,
    place {integer} NOT NULL,
    hash {blob},
    is_adopted {integer} NOT NULL
);
INSERT INTO audit_head (id, place, hash, is_adopted) VALUES (1, 0, NULL, 0);
CREATE TABLE token_names (
    folded TEXT NOT NULL PRIMARY KEY,
    token_id TEXT NOT NULL
);
"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """All of it, in one dialect."""
    text = _CHAIN.format(integer=dialect.integer, blob=dialect.blob)
    return tuple(part.strip() for part in text.split(";") if part.strip())
