"""The store of dead letters, opened for `redrive dlq`, `redrive collect` and the admin API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redrive.core import NULL_OBSERVER, Observer
from redrive.deadletters import DeadLetterService
from redrive.stores import Store, open_store
from redrive.wiring.connection_settings import ConnectionSettings


@asynccontextmanager
async def opened_store(
    connections: ConnectionSettings, *, observer: Observer = NULL_OBSERVER, creates: bool = True
) -> AsyncIterator[Store]:
    """The store while the block runs: migrated if necessary, and created if it is missing and `creates`.

    Raises `InvalidDatabaseUrl`, `StoreUnavailable`, `StoreTooNew`.
    """
    store = await open_store(connections.database.value, observer=observer, creates=creates)
    try:
        yield store
    finally:
        await store.close()


def dead_letter_service(store: Store) -> DeadLetterService:
    """The service by which people change dead letters."""
    return DeadLetterService(store, clock_ms=store.clock_ms)
