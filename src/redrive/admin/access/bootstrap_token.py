"""The first admin token: stored once, on the first start, by whichever instance comes first."""

from dataclasses import dataclass, field

from redrive.records import Role, Token, mint_token
from redrive.stores import Store
from redrive.wiring import new_id, new_secret

FIRST_NAME = "admin"
_MAKER = "redrive serve"


EXPIRES_MS = 30 * 86_400_000
"""It is for making other tokens: used for longer, it would be an account that everybody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MintedToken:
    """An admin token that may become the first one."""

    token: Token
    text: str = field(repr=False)
    secret_hash: bytes = field(repr=False)


def mint_first_token(now_ms: int) -> MintedToken:
    """A new admin token, not stored yet."""
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


async def store_first_token(store: Store, minted: MintedToken) -> bool:
    """Stores the token if there was never any, and returns whether it did. Of any number of concurrent calls, on any
    number of machines, one does. Raises `StoreUnavailable`."""
    return await store.tokens.create_first(
        minted.token, secret_hash=minted.secret_hash, now_ms=minted.token.created_at_ms
    )
