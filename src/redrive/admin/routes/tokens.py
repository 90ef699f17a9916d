"""Tokens: who may use this API. The secret is in one answer, when a token is made, and nowhere else."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from redrive.admin.access.authorization import UnscopedAdminCaller
from redrive.admin.middleware.idempotency import keep_instead
from redrive.admin.problems import not_found
from redrive.admin.services import services_of
from redrive.records import Role, Token, check_token, clean_name, mint_token, token_json
from redrive.wiring import new_secret

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

TokenId = Annotated[str, Path(min_length=1, max_length=64, pattern="^[0-9a-z]+$", examples=["1hv7d2m9x0abcdef"])]
Why = Annotated[str, Query(max_length=2000, description="For the audit.")]


class NewToken(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "ada", "role": "operator", "queues": ["orders*"], "expires_in_days": 90}]
        },
    )
    name: str = Field(min_length=1, max_length=100, description="Who it is for: the audit's who.")
    role: Role
    queues: list[str] = Field(
        default_factory=list, max_length=50, description="Names of queues, with `*`; none: every queue."
    )
    payloads: bool = Field(default=False, description="Lets a viewer see payloads.")
    expires_in_days: int | None = Field(default=90, ge=1, le=3650, description="null: it does not expire.")
    why: str = Field(default="", max_length=2000)


class TokenShape(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    queues: list[str]
    payloads: bool
    state: Literal["valid", "expired", "revoked"]
    created_at: str | None
    created_by: str
    expires_at: str | None
    revoked_at: str | None


class MadeToken(TokenShape):
    """A token with its text, which is shown this once."""

    token: str | None = Field(description="`rd_…`, for `Authorization: Bearer`; null in a repeated answer.")


class TokenList(BaseModel):
    """All tokens, also those that are expired or revoked; the oldest first."""

    tokens: list[TokenShape]


@router.get("")
async def list_all(request: Request, caller: UnscopedAdminCaller) -> TokenList:
    """Every token, without its secret."""
    services = services_of(request)
    now_ms = services.clock_ms()
    return TokenList(tokens=[_shape(one, now_ms) for one in await services.store.tokens.all()])


@router.post("", status_code=201)
async def create(request: Request, response: Response, caller: UnscopedAdminCaller, new: NewToken) -> MadeToken:
    """Makes a token. Its text is in this answer and nowhere else, also not in the answer to a repeated request."""
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
    # What is kept for repeated requests is kept in the database, where no secret may be.
    keep_instead(request, made.model_copy(update={"token": None}).model_dump_json().encode())
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
    """Revokes a token: from now on it counts nowhere. It stays in the list."""
    services = services_of(request)
    now_ms = services.clock_ms()
    revoked = await services.store.tokens.revoke(token_id, who=caller.who, now_ms=now_ms, why=why)
    return _shape(revoked, now_ms)


def _shape(token: Token, now_ms: int) -> TokenShape:
    return TokenShape(**token_json(token, now_ms=now_ms))
