"""Version 1: dead letters with their contents and lives, groups, operations, rules, leases, audit, counts, full text.

Every table has a number of its own for keys between tables; ids that people see are texts beside it. Listings are read
by (when it died, number), alone or after one field, so each of these has an index; each costs time on every insert, and
there are no others.
"""

from redrive.stores.schema.dialect import Dialect

_LETTERS = """
CREATE TABLE letters (
    seq {sequence_key},
    id TEXT NOT NULL UNIQUE,
    version {integer} NOT NULL,
    status TEXT NOT NULL,
    vhost TEXT NOT NULL,
    dlq TEXT NOT NULL,
    dlq_exchange TEXT NOT NULL,
    dlq_routing_key TEXT NOT NULL,
    queue TEXT NOT NULL,
    exchange TEXT NOT NULL,
    routing_key TEXT NOT NULL,
    reason TEXT NOT NULL,
    told_by TEXT NOT NULL,
    error_type TEXT,
    error_message TEXT,
    status_code {integer},
    attempts {integer},
    message_id TEXT,
    correlation_id TEXT,
    type TEXT,
    service TEXT,
    group_seq {integer} NOT NULL,
    size_bytes {integer} NOT NULL,
    dead_at_ms {integer} NOT NULL,
    collected_at_ms {integer} NOT NULL,
    updated_at_ms {integer} NOT NULL,
    redrives {integer} NOT NULL,
    returns {integer} NOT NULL,
    is_poison {integer} NOT NULL,
    due_at_ms {integer},
    silent_at_ms {integer},
    status_reason TEXT,
    resolved_by TEXT,
    copy_of TEXT,
    operation_id TEXT,
    is_edited {integer} NOT NULL
) {room_to_grow}
"""

# The number is part of every index of SQLite's anyway; PostgreSQL is told to keep it.
_INDEXES = """
CREATE INDEX letters_dead ON letters (dead_at_ms, seq);
CREATE INDEX letters_status ON letters (status, dead_at_ms, seq);
CREATE INDEX letters_queue ON letters (queue, status, dead_at_ms, seq);
CREATE INDEX letters_dlq ON letters (dlq, status, dead_at_ms, seq);
CREATE INDEX letters_group ON letters (group_seq, dead_at_ms, seq);
CREATE INDEX letters_topic ON letters (routing_key, dead_at_ms, seq);
CREATE INDEX letters_service ON letters (service, dead_at_ms, seq) WHERE service IS NOT NULL;
CREATE INDEX letters_type ON letters (type, dead_at_ms, seq) WHERE type IS NOT NULL;
CREATE INDEX letters_message_id ON letters (message_id) WHERE message_id IS NOT NULL;
CREATE INDEX letters_correlation_id ON letters (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX letters_due ON letters (due_at_ms) WHERE due_at_ms IS NOT NULL;
"""

# `silences` is when to look at letters.silent_at_ms, which has no index: PostgreSQL writes an entry in every index of a
# table when a column of one of them changes, and a confirmation changes nothing else that has one.
# `body` is last: SQLite reads a row from its beginning and leaves the pages of a large body alone.
_ABOUT_LETTERS = """
CREATE TABLE contents (
    seq {integer} PRIMARY KEY,
    stack TEXT,
    history {blob},
    properties {blob} NOT NULL,
    body {blob} NOT NULL
);
CREATE TABLE past_contents (
    seq {sequence_key},
    letter_seq {integer} NOT NULL,
    at_ms {integer} NOT NULL,
    redrives {integer} NOT NULL,
    properties {blob} NOT NULL,
    body {blob} NOT NULL
);
CREATE INDEX past_contents_letter ON past_contents (letter_seq);
CREATE TABLE edits (
    seq {sequence_key},
    letter_seq {integer} NOT NULL,
    at_ms {integer} NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    diff TEXT NOT NULL,
    properties {blob} NOT NULL,
    body {blob} NOT NULL
);
CREATE INDEX edits_letter ON edits (letter_seq);
CREATE TABLE happenings (
    letter_seq {integer} NOT NULL,
    version {integer} NOT NULL,
    at_ms {integer} NOT NULL,
    event TEXT NOT NULL,
    who TEXT NOT NULL,
    detail TEXT NOT NULL,
    operation_id TEXT,
    PRIMARY KEY (letter_seq, version)
) {without_rowid};
CREATE TABLE silences (
    silent_at_ms {integer} NOT NULL,
    letter_seq {integer} NOT NULL,
    PRIMARY KEY (silent_at_ms, letter_seq)
) {without_rowid};
CREATE TABLE groups (
    seq {sequence_key},
    id TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    queue TEXT NOT NULL,
    error_type TEXT,
    state TEXT NOT NULL,
    first_seen_ms {integer} NOT NULL,
    last_seen_ms {integer} NOT NULL,
    letters {integer} NOT NULL,
    redriven {integer} NOT NULL,
    returned {integer} NOT NULL
);
CREATE INDEX groups_last_seen ON groups (last_seen_ms, seq);
CREATE INDEX groups_letters ON groups (letters, seq);
CREATE TABLE notes (
    seq {sequence_key},
    group_seq {integer} NOT NULL,
    at_ms {integer} NOT NULL,
    who TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX notes_group ON notes (group_seq);
CREATE TABLE tallies (
    dimension TEXT NOT NULL,
    key TEXT NOT NULL,
    status TEXT NOT NULL,
    n {integer} NOT NULL,
    PRIMARY KEY (dimension, key, status)
) {without_rowid};
CREATE TABLE activity (
    at_ms {integer} NOT NULL,
    queue TEXT NOT NULL,
    dead {integer} NOT NULL,
    redriven {integer} NOT NULL,
    returned {integer} NOT NULL,
    resolved {integer} NOT NULL,
    PRIMARY KEY (at_ms, queue)
) {without_rowid};
"""

_WORK = """
CREATE TABLE leases (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    fence {integer} NOT NULL,
    until_ms {integer} NOT NULL
);
CREATE TABLE batches (
    id TEXT NOT NULL PRIMARY KEY,
    vhost TEXT NOT NULL,
    dlq TEXT NOT NULL,
    owner TEXT NOT NULL,
    at_ms {integer} NOT NULL,
    entries {blob} NOT NULL,
    outcome {blob} NOT NULL
);
CREATE INDEX batches_queue ON batches (vhost, dlq);
CREATE TABLE stopped_queues (
    vhost TEXT NOT NULL,
    dlq TEXT NOT NULL,
    reason TEXT NOT NULL,
    at_ms {integer} NOT NULL,
    PRIMARY KEY (vhost, dlq)
);
CREATE TABLE operations (
    seq {sequence_key},
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    selection_text TEXT NOT NULL,
    target_exchange TEXT,
    target_routing_key TEXT,
    rate_per_s {real},
    keep_attempts {integer} NOT NULL,
    ramp TEXT NOT NULL,
    settle_s {real} NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    includes_in_doubt {integer} NOT NULL,
    idempotency_key TEXT UNIQUE,
    request TEXT NOT NULL,
    total {integer} NOT NULL,
    sending {integer} NOT NULL,
    sent {integer} NOT NULL,
    refused {integer} NOT NULL,
    in_doubt {integer} NOT NULL,
    skipped {integer} NOT NULL,
    created_at_ms {integer} NOT NULL,
    started_at_ms {integer},
    ended_at_ms {integer},
    note TEXT NOT NULL
);
CREATE INDEX operations_open ON operations (state) WHERE ended_at_ms IS NULL;
CREATE TABLE items (
    operation_seq {integer} NOT NULL,
    place {integer} NOT NULL,
    letter_seq {integer} NOT NULL,
    letter_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    at_ms {integer},
    fence {integer} NOT NULL,
    turn {integer} NOT NULL,
    redrives {integer} NOT NULL,
    was_in_doubt {integer} NOT NULL,
    PRIMARY KEY (operation_seq, place)
) {without_rowid};
CREATE INDEX items_queued ON items (operation_seq, place) WHERE state = 'queued';
CREATE INDEX items_sending ON items (operation_seq, place) WHERE state = 'sending';
CREATE INDEX items_letters ON items (letter_seq) WHERE state = 'queued';
CREATE TABLE rules (
    scope TEXT NOT NULL PRIMARY KEY,
    enabled {integer} NOT NULL,
    attempts {integer} NOT NULL,
    first_ms {integer} NOT NULL,
    ceiling_ms {integer} NOT NULL,
    settle_ms {integer} NOT NULL
);
CREATE TABLE audit (
    seq {sequence_key},
    at_ms {integer} NOT NULL,
    who TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    n {integer} NOT NULL,
    why TEXT NOT NULL,
    detail TEXT NOT NULL
);
"""

# An index without content can only forget words it is told again, so SQLite keeps them. PostgreSQL's rows go by
# their number. Accents are kept in both, and both are given words that Python has cut (`words`).
_SEARCH_SQLITE = """
CREATE VIRTUAL TABLE letter_words USING fts5 (
    words, content = '', columnsize = 0, tokenize = 'unicode61 remove_diacritics 0'
);
CREATE TABLE search_texts (seq INTEGER PRIMARY KEY, words BLOB NOT NULL);
"""
_SEARCH_POSTGRESQL = """
CREATE TABLE letter_words (seq BIGINT PRIMARY KEY, words TSVECTOR NOT NULL);
CREATE INDEX letter_words_words ON letter_words USING gin (words);
"""


def statements(dialect: Dialect) -> tuple[str, ...]:
    """All of it, in one dialect."""
    is_sqlite = dialect.kind == "sqlite"
    search = _SEARCH_SQLITE if is_sqlite else _SEARCH_POSTGRESQL
    text = ";".join((_LETTERS, _INDEXES, _ABOUT_LETTERS, _WORK)).format(
        sequence_key=dialect.sequence_key,
        integer=dialect.integer,
        real=dialect.real,
        blob=dialect.blob,
        without_rowid="WITHOUT ROWID" if is_sqlite else "",
        room_to_grow="" if is_sqlite else "WITH (fillfactor = 85)",
    )
    return tuple(part.strip() for part in f"{text};{search}".split(";") if part.strip())
