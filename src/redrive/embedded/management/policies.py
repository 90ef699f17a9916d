"""Policies and operator policies: list, set, remove; and which one applies to a queue or an exchange."""

import re

from redrive.embedded.engine.vhosts import Vhost
from redrive.embedded.management.json_values import to_json
from redrive.embedded.management.pagination import chosen, listed
from redrive.embedded.management.policy_validation import check_policy
from redrive.embedded.management.replies import (
    JSON,
    Reply,
    bad_request,
    done,
    found,
    key_missing,
    made,
    object_not_found,
)
from redrive.embedded.management.routes import Request, Routes
from redrive.topology import Arguments, Policy

_KINDS_OF = {
    "exchange": ("all", "exchanges"),
    "classic": ("all", "queues", "classic_queues"),
    "quorum": ("all", "queues", "quorum_queues"),
}


def add_routes(routes: Routes) -> None:
    """The routes of policies, and of parameters, which operator policies are to RabbitMQ."""
    for word, operator in (("policies", False), ("operator-policies", True)):
        some = _Policies(operator)
        routes.add(word, get=some.list_all)
        routes.add(f"{word}/{{vhost}}", get=some.list_one)
        routes.add(f"{word}/{{vhost}}/{{policy}}", get=some.get, put=some.put, delete=some.delete)
    routes.add("parameters", get=_list_parameters)
    routes.add("parameters/{component}", get=_list_parameters)
    routes.add("parameters/{component}/{vhost}", get=_list_parameters)
    routes.add("global-parameters", get=lambda _request: found([]))


def policy_name(vhost: Vhost, name: str, kind: str, *, operator: bool) -> str | None:
    """The policy that applies to a thing; `kind` is exchange, classic or quorum."""
    fitting = [
        policy
        for policy in vhost.policies.all()
        if policy.operator is operator and policy.apply_to in _KINDS_OF[kind] and re.search(policy.pattern, name)
    ]
    # Of equals the later name, as the engine has it.
    return max(fitting, key=lambda policy: (policy.priority, policy.name)).name if fitting else None


def settings(policy: Policy) -> dict[str, JSON]:
    """What a policy says, as an operator policy's parameter holds it."""
    return {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition.thaw(),
        "priority": policy.priority,
    }


def _show(policy: Policy) -> dict[str, JSON]:
    return {"vhost": policy.vhost, "name": policy.name, **settings(policy)}


class _Policies:
    """The routes of one of the two kinds."""

    def __init__(self, operator: bool) -> None:
        self._operator = operator

    def list_all(self, request: Request) -> Reply:
        vhosts = request.view.engine.vhosts
        return listed([_show(one) for name in sorted(vhosts) for one in self._of(vhosts[name])], request.query)

    def list_one(self, request: Request, vhost: str) -> Reply:
        return listed([_show(one) for one in self._of(request.view.vhost(vhost))], request.query)

    def get(self, request: Request, vhost: str, policy: str) -> Reply:
        return found(chosen(_show(self._one(request.view.vhost(vhost), policy)), request.query))

    def put(self, request: Request, vhost: str, policy: str) -> Reply:
        engine_vhost = request.view.vhost_for_command(vhost)
        is_new = all(one.name != policy for one in self._of(engine_vhost))
        engine_vhost.set_policy(self._read(request, vhost, policy))
        return made(new=is_new)

    def delete(self, request: Request, vhost: str, policy: str) -> Reply:
        engine_vhost = request.view.vhost(vhost)
        engine_vhost.remove_policy(self._one(engine_vhost, policy).name, operator=self._operator)
        return done()

    def _read(self, request: Request, vhost: str, name: str) -> Policy:
        fields = request.fields()
        for needed in ("pattern", "definition"):
            if needed not in fields:
                raise key_missing(needed)
        definition = fields["definition"]
        if not isinstance(definition, dict):
            raise bad_request("Validation failed\n\ndefinition should be an object\n")
        pattern, priority = fields["pattern"], fields.get("priority", 0)
        apply_to = fields.get("apply-to", "all")
        problem = check_policy(
            request.view.engine.profile.version,
            request.view.api_profile,
            pattern=pattern,
            apply_to=apply_to,
            priority=priority,
            definition=definition,
            operator=self._operator,
        )
        if problem is not None:
            raise bad_request(f"Validation failed\n\n{problem}\n")
        return Policy(
            name=name,
            pattern=pattern,
            definition=Arguments(definition),
            apply_to=apply_to,
            priority=priority,
            operator=self._operator,
            vhost=vhost,
        )

    def _of(self, vhost: Vhost) -> list[Policy]:
        return sorted((one for one in vhost.policies.all() if one.operator is self._operator), key=lambda one: one.name)

    def _one(self, vhost: Vhost, name: str) -> Policy:
        for one in self._of(vhost):
            if one.name == name:
                return one
        raise object_not_found()


def _list_parameters(request: Request, component: str = "operator_policy", vhost: str | None = None) -> Reply:
    view = request.view
    vhosts = [view.vhost(vhost)] if vhost is not None else list(view.engine.vhosts.values())
    if component != "operator_policy":
        return found([])
    shown = [
        {"value": to_json(settings(one)), "vhost": each.name, "component": component, "name": one.name}
        for each in vhosts
        for one in each.policies.all()
        if one.operator
    ]
    return listed(shown, request.query)
