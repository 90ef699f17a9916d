"""The first token: made once, on the first start, by whichever instance comes first."""

from collections.abc import Callable

from redrive.dlq import Store, new_id, new_secret
from redrive.records import Role, Token, mint_token

FIRST_NAME = "admin"
_MAKER = "redrive serve"


async def ensure_admin_token(store: Store, *, clock_ms: Callable[[], int] | None = None) -> str | None:
    """The text of an admin token if there was no token yet and this call has made one; None otherwise.

    Of any number of calls at the same time, on any number of machines, one gets it. Raises `StoreUnavailable`.
    """
    made_ms = store.clock_ms() if clock_ms is None else clock_ms()
    token = Token(id=new_id(), name=FIRST_NAME, role=Role.ADMIN, created_at_ms=made_ms, created_by=_MAKER)
    text, secret_hash = mint_token(token.id, new_secret())
    is_made = await store.tokens.create_first(token, secret_hash=secret_hash, now_ms=made_ms)
    return text if is_made else None
