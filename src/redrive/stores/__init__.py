"""Where dead letters are kept: SQLite or PostgreSQL behind one API.

`store` opens a database; `database` is the port, `sqlite` and `postgres` are its adapters, `schema/` has the tables.
`letters/` stores, reads and changes dead letters, `search/` finds them by a filter, `operations/` sends them back.
`retry_rules` says when auto-retry is due, `leases` who may do something alone. `groups`, `statistics` and `audit` are
what people look at; `tokens`, `redactions`, `body_redaction` and `idempotent_responses` serve the admin API.
Why SQL and no library for it: docs/decisions/0007-sql-of-our-own.md.
"""

from redrive.stores.audit import acting_as
from redrive.stores.body_redaction import redact_body
from redrive.stores.cursors import InvalidCursor
from redrive.stores.database_clock import OFF_MS as CLOCK_OFF_MS
from redrive.stores.errors import (
    FilterTooExpensive,
    IdempotencyConflict,
    InvalidDatabaseUrl,
    LeaseLost,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    UnknownOperation,
    VersionConflict,
)
from redrive.stores.groups import UnknownGroup
from redrive.stores.idempotent_responses import KeyReservation, KeyReused, RequestInProgress, StoredResponse
from redrive.stores.leases import Lease
from redrive.stores.letters.changes import ChangeResult, LetterBusy, UnknownLetter
from redrive.stores.letters.exports import EarlierContent, ExportedEdit, ExportedLetter, ImportResult
from redrive.stores.letters.letters import LetterPage, WholeLetter
from redrive.stores.letters.stored_batches import BatchResult, StoredBatch
from redrive.stores.message_contents import unwrap_envelope
from redrive.stores.redactions import UnknownRedaction
from redrive.stores.retry_rules import InvalidScope, RuleOutsideScope
from redrive.stores.statistics import ActivityBucket, LetterStats
from redrive.stores.store import Store, exposed_mode, open_store
from redrive.stores.tokens import TokenNameTaken, UnknownToken

__all__ = [
    "CLOCK_OFF_MS",
    "ActivityBucket",
    "BatchResult",
    "ChangeResult",
    "EarlierContent",
    "ExportedEdit",
    "ExportedLetter",
    "FilterTooExpensive",
    "IdempotencyConflict",
    "ImportResult",
    "InvalidCursor",
    "InvalidDatabaseUrl",
    "InvalidScope",
    "KeyReservation",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "LetterBusy",
    "LetterPage",
    "LetterStats",
    "RequestInProgress",
    "RuleOutsideScope",
    "Store",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "StoredBatch",
    "StoredResponse",
    "TokenNameTaken",
    "UnknownGroup",
    "UnknownLetter",
    "UnknownOperation",
    "UnknownRedaction",
    "UnknownToken",
    "VersionConflict",
    "WholeLetter",
    "acting_as",
    "exposed_mode",
    "open_store",
    "redact_body",
    "unwrap_envelope",
]
