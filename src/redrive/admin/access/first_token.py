"""The first token: made once, on the first start, by whichever instance comes first."""

from collections.abc import Callable
from dataclasses import dataclass, field

from redrive.records import Role, Token, mint_token
from redrive.stores import Store
from redrive.wiring import new_id, new_secret

FIRST_NAME = "admin"
_MAKER = "redrive serve"


EXPIRES_MS = 30 * 86_400_000
"""It is for making others: who lives on it for longer has an account that everybody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedToken:
    """An admin token that may become the first one."""

    token: Token
    text: str = field(repr=False)
    secret_hash: bytes = field(repr=False)


def mint_first(now_ms: int) -> MintedToken:
    """A token for whoever starts the first server; nothing is stored yet."""
    token = Token(
        id=new_id(),
        name=FIRST_NAME,
        role=Role.ADMIN,
        created_at_ms=now_ms,
        created_by=_MAKER,
        expires_at_ms=now_ms + EXPIRES_MS,
    )
    text, secret_hash = mint_token(token.id, new_secret())
    return MintedToken(token=token, text=text, secret_hash=secret_hash)


async def keep_first(store: Store, minted: MintedToken) -> bool:
    """Stores it if there was never a token; whether it was. Of any number of calls at the same time, on any number of
    machines, one does. Raises `StoreUnavailable`."""
    return await store.tokens.create_first(
        minted.token, secret_hash=minted.secret_hash, now_ms=minted.token.created_at_ms
    )


async def ensure_admin_token(store: Store, *, clock_ms: Callable[[], int] | None = None) -> str | None:
    """The text of an admin token if there was no token yet and this call has made one; None otherwise."""
    minted = mint_first(store.clock_ms() if clock_ms is None else clock_ms())
    return minted.text if await keep_first(store, minted) else None
