"""`/api/v1/tokens`: who may use this API. A token's secret is only in the response that creates it."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from redrive.admin.access.authorization import UnscopedAdminCaller
from redrive.admin.middleware.idempotency import store_body_instead
from redrive.admin.problems import not_found
from redrive.admin.schemas.tokens import MadeToken, NewToken, TokenList, TokenShape
from redrive.admin.services import services_of
from redrive.records import Token, check_token, clean_name, mint_token, token_json
from redrive.wiring import new_secret

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(min_length=1, max_length=64, pattern="^[0-9a-z]+$", examples=["1hv7d2m9x0abcdef"])]
Why = Annotated[str, Query(max_length=2000, description="For the audit.")]


@router.get("")
async def list_all(request: Request, caller: UnscopedAdminCaller) -> TokenList:
    """Every token, without its secret."""
    services = services_of(request)
    now_ms = services.clock_ms()
    return TokenList(tokens=[_shape(one, now_ms) for one in await services.store.tokens.all()])


@router.post("", status_code=201)
async def create(request: Request, response: Response, caller: UnscopedAdminCaller, new: NewToken) -> MadeToken:
    """Creates a token. Its text is only in this response, not even in the response to a repeated request."""
    services = services_of(request)
    now_ms = services.clock_ms()
    token = check_token(
        Token(
            id=services.new_id(),
            name=clean_name(new.name),
            role=new.role,
            queues=tuple(new.queues),
            sees_payloads=new.payloads,
            created_at_ms=now_ms,
            created_by=caller.who,
            expires_at_ms=None if new.expires_in_days is None else now_ms + new.expires_in_days * 86_400_000,
        ),
        now_ms=now_ms,
    )
    text, secret_hash = mint_token(token.id, new_secret())
    await services.store.tokens.create(token, secret_hash=secret_hash, now_ms=now_ms, why=new.why)
    response.headers["Location"] = f"/api/v1/tokens/{token.id}"
    made = MadeToken(**token_json(token, now_ms=now_ms), token=text)
    # The response for repeated requests is stored in the database, where no secret may be.
    store_body_instead(request, made.model_copy(update={"token": None}).model_dump_json().encode())
    return made


@router.get("/{token_id}")
async def show(request: Request, caller: UnscopedAdminCaller, token_id: TokenId) -> TokenShape:
    """One token, without its secret."""
    services = services_of(request)
    found = await services.store.tokens.find(token_id)
    if found is None:
        raise not_found("token", token_id)
    return _shape(found[0], services.clock_ms())


@router.delete("/{token_id}")
async def revoke(request: Request, caller: UnscopedAdminCaller, token_id: TokenId, why: Why = "") -> TokenShape:
    """Revokes a token: from now on every instance refuses it. It stays in the list."""
    services = services_of(request)
    now_ms = services.clock_ms()
    revoked = await services.store.tokens.revoke(token_id, who=caller.who, now_ms=now_ms, why=why)
    return _shape(revoked, now_ms)


def _shape(token: Token, now_ms: int) -> TokenShape:
    return TokenShape(**token_json(token, now_ms=now_ms))
