"""`/api/v1/rules`: the rules of auto-retry.

A caller who is limited to some queues sees the rule for everything, because it applies to them too, but may not change
it, nor a rule of a file or of a caller with more queues. Their own rules apply to dead letters that were collected for
their queues, whatever other letters say about themselves.
"""

from typing import Any

from fastapi import APIRouter, Path, Request, Response

from redrive.admin.access.authorization import OperatorCaller, ViewerCaller, audit_forbidden
from redrive.admin.access.caller import Caller
from redrive.admin.problems import invalid, not_found
from redrive.admin.schemas import rules as schemas
from redrive.admin.scope import find_group
from redrive.admin.services import Services, services_of
from redrive.records import RetryRule, rule_json
from redrive.stores import RuleOutsideScope

router = APIRouter(prefix="/api/v1/rules", tags=["rules"])

_PATIENCE_S = 5.0
"""A rule is applied for so long; the worker does the rest."""
_EVERYTHING = "*"
_SCOPE = Path(
    max_length=300,
    description="`*` for everything, `queue:NAME` for a failed queue, `group:ID` for a group.",
    examples=["queue:orders"],
)


@router.get("", response_model=schemas.Rules)
async def list_all(request: Request, caller: ViewerCaller) -> dict[str, Any]:
    """Every rule. The most specific applies: the group's, else the queue's, else `*`; without one auto-retry is off."""
    services = services_of(request)
    rules = [one for one in await services.store.rules.all() if await _is_within(services, caller, one.scope)]
    return {"rules": [rule_json(one) for one in rules]}


@router.put("/{scope:path}", response_model=schemas.Rule)
async def replace(
    request: Request, caller: OperatorCaller, asked: schemas.RuleRequest, scope: str = _SCOPE
) -> dict[str, Any]:
    """Creates or replaces a rule, and computes again when the pending dead letters of its scope are due. With
    millions of them, the last are computed in the background, before the next of them are sent."""
    services = services_of(request)
    await _check(request, services, caller, scope)
    rule = RetryRule(
        scope=scope,
        enabled=asked.enabled,
        attempts=asked.attempts,
        first_ms=asked.first_ms,
        ceiling_ms=asked.max_ms,
        settle_ms=asked.settle_ms,
        queues=caller.queues,
    )
    try:
        await services.store.rules.set(
            rule, who=caller.who, why=asked.why, now_ms=services.clock_ms(), patience_s=_PATIENCE_S
        )
    except RuleOutsideScope as error:
        raise await audit_forbidden(request, caller, str(error)) from None
    return rule_json(rule)


@router.delete("/{scope:path}", status_code=204, response_class=Response)
async def remove(request: Request, caller: OperatorCaller, scope: str = _SCOPE) -> Response:
    """Removes a rule; the next wider one applies instead."""
    services = services_of(request)
    await _check(request, services, caller, scope)
    if all(one.scope != scope for one in await services.store.rules.all()):
        raise not_found("rule", scope)
    try:
        await services.store.rules.remove(
            scope, who=caller.who, queues=caller.queues, now_ms=services.clock_ms(), patience_s=_PATIENCE_S
        )
    except RuleOutsideScope as error:
        raise await audit_forbidden(request, caller, str(error)) from None
    return Response(status_code=204)


async def _check(request: Request, services: Services, caller: Caller, scope: str) -> None:
    """Raises `HttpProblem`: 422 for what is no scope, 403 for everything by a limited token, 404 outside of its
    queues."""
    kind, colon, name = scope.partition(":")
    if scope != _EVERYTHING and not (colon and kind in ("queue", "group") and name and name.isprintable()):
        raise invalid("a rule's scope is `*`, `queue:NAME` or `group:ID`")
    if kind == "group":
        await find_group(services, caller, name)
    elif scope == _EVERYTHING and caller.queues:
        raise await audit_forbidden(request, caller, "this rule is about every queue, and the token is limited to some")
    elif kind == "queue" and not caller.may_use(name):
        raise not_found("queue", name)


async def _is_within(services: Services, caller: Caller, scope: str) -> bool:
    kind, _, name = scope.partition(":")
    if not caller.queues or scope == _EVERYTHING:
        return True
    if kind == "queue":
        return caller.may_use(name)
    group = await services.store.groups.get(name)
    return group is not None and caller.may_use(group.owner)
