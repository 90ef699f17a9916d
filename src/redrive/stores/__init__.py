"""Where dead letters are kept: SQLite or PostgreSQL behind one API.

`database` is the port, `sqlite` and `postgres` its adapters; `dialect` lets one SQL text serve both. `transitions` is
the only way a status changes, `tallies` keeps the counts beside it. `collecting`, `operations`, `rules` and `leases`
are what machines do; `letters`, `groups`, `stats` and `audit` are what people look at; `tokens`, `redactions` and
`answers` are the admin API's.
Why SQL and no library for it: docs/decisions/0007-sql-of-our-own.md.
"""

from redrive.stores.answers import Answer, InFlight, KeyReused, Reservation
from redrive.stores.audit import acting_as
from redrive.stores.changing import Changed, LetterBusy, UnknownLetter
from redrive.stores.clock import OFF_MS as CLOCK_OFF_MS
from redrive.stores.collecting import Batch, Stored
from redrive.stores.cursors import InvalidCursor
from redrive.stores.errors import (
    FilterTooDear,
    IdempotencyConflict,
    InvalidDatabaseUrl,
    LeaseLost,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
    UnknownOperation,
    VersionConflict,
)
from redrive.stores.exporting import Edit, Exported, Imported, PastContent
from redrive.stores.groups import UnknownGroup
from redrive.stores.leases import Lease
from redrive.stores.letters import Page, WholeLetter
from redrive.stores.opening import opened
from redrive.stores.redactions import UnknownRedaction
from redrive.stores.rules import InvalidScope, WiderRule
from redrive.stores.showing import body_as_seen
from redrive.stores.stats import Bucket, Stats
from redrive.stores.store import Store, exposed_mode, open_store
from redrive.stores.tokens import TokenNameTaken, UnknownToken

__all__ = [
    "CLOCK_OFF_MS",
    "Answer",
    "Batch",
    "Bucket",
    "Changed",
    "Edit",
    "Exported",
    "FilterTooDear",
    "IdempotencyConflict",
    "Imported",
    "InFlight",
    "InvalidCursor",
    "InvalidDatabaseUrl",
    "InvalidScope",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "LetterBusy",
    "Page",
    "PastContent",
    "Reservation",
    "Stats",
    "Store",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "Stored",
    "TokenNameTaken",
    "UnknownGroup",
    "UnknownLetter",
    "UnknownOperation",
    "UnknownRedaction",
    "UnknownToken",
    "VersionConflict",
    "WholeLetter",
    "WiderRule",
    "acting_as",
    "body_as_seen",
    "exposed_mode",
    "open_store",
    "opened",
]
