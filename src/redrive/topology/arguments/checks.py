"""What is wrong with one queue, exchange or policy by itself, on every version of RabbitMQ.

An error is what the broker refuses, or takes and then does not do; a warning is what it takes and ignores. What only
some versions refuse is in `version_checks`, and what only several objects together make wrong in `route_checks`.
"""

from functools import lru_cache

from redrive.core import Finding, Severity, did_you_mean
from redrive.topology.argument_table import Value
from redrive.topology.arguments.known_arguments import (
    APPLY_TO_SINCE,
    EXCHANGE_TYPES_SINCE,
    PLUGIN_POLICY_KEYS,
    POLICY_KEYS,
    QUEUE_ARGUMENTS,
    ArgumentRule,
)
from redrive.topology.arguments.value_rules import AnyText, shown
from redrive.topology.broker_versions import BrokerVersion
from redrive.topology.model import Exchange, ExchangeType, Policy, Queue, QueueType

_ARGUMENTS = {rule.name: rule for rule in QUEUE_ARGUMENTS}
_POLICY_KEYS = {rule.name: rule for rule in POLICY_KEYS}
_OPERATOR_KEYS = {rule.name: rule for rule in POLICY_KEYS if rule.operator_since is not None}
# The arguments that each queue type takes.
_OF_TYPE = {kind.value: {rule.name: rule for rule in QUEUE_ARGUMENTS if kind in rule.types} for kind in QueueType}
_BUILT_IN = frozenset(ExchangeType)
_ALTERNATE_EXCHANGE = "alternate-exchange"
# Arguments that people invent for something that RabbitMQ calls otherwise or does not have.
_INVENTED = {
    "x-max-retries": "a quorum queue's x-delivery-limit bounds failed deliveries",
    "x-retry-count": "that is a header of a message, not an argument of a queue",
    "x-retry-limit": "a quorum queue's x-delivery-limit bounds failed deliveries",
    "x-delay": "that is a header for the delayed message exchange plugin; use a wait queue with x-message-ttl",
    "x-ha-policy": "mirroring was by policy and is gone in 4.0; use x-queue-type: quorum",
    "x-priority": "that is a consumer's argument; a queue has x-max-priority",
}
_NOTHING: tuple[Finding, ...] = ()


def check_queue(queue: Queue) -> tuple[Finding, ...]:
    """What RabbitMQ refuses or ignores in one queue. Errors and warnings, in the order of its arguments."""
    arguments = queue.arguments
    known = _OF_TYPE.get(queue.type)
    if known is None:
        return (_bad_value(queue, _ARGUMENTS["x-queue-type"], arguments.get("x-queue-type")),)
    found: list[Finding] = []
    for name, value in arguments.items():
        rule = known.get(name)
        if rule is None:
            found.append(_unexpected_argument(queue, name, value))
        elif rule.value.problem(value) is not None:
            found.append(_bad_value(queue, rule, value))
    if queue.type != QueueType.CLASSIC:
        found.extend(_lasting(queue))
    if "x-dead-letter-routing-key" in arguments or "x-dead-letter-strategy" in arguments:
        found.extend(_dead_lettering(queue))
    if arguments.get("x-overflow") == "reject-publish-dlx" and queue.type == QueueType.QUORUM:
        found.append(
            _warning(
                queue,
                "overflow-ignored",
                "x-overflow reject-publish-dlx means drop-head on a quorum queue",
                "say reject-publish or drop-head",
            )
        )
    if ("x-delayed-retry-type" in arguments or "x-delayed-retry-max" in arguments) and queue.type == QueueType.QUORUM:
        found.extend(_delayed_retry(queue))
    if "type" in queue.extra and queue.extra["type"] != queue.type:
        wanted = shown(queue.extra["type"])
        found.append(
            _warning(
                queue,
                "type-ignored",
                f"says type {wanted}, which RabbitMQ ignores: the queue is {queue.type}",
                f"add the argument x-queue-type: {wanted}",
            )
        )
    return tuple(found) if found else _NOTHING


def check_exchange(exchange: Exchange) -> tuple[Finding, ...]:
    """What RabbitMQ refuses or ignores in one exchange. A plugin's type may have arguments of its own."""
    found: list[Finding] = []
    if exchange.type not in EXCHANGE_TYPES_SINCE:
        found.append(_unknown_exchange_type(exchange))
    for name, value in exchange.arguments.items():
        if name == _ALTERNATE_EXCHANGE:
            problem = AnyText().problem(value)
            if problem is not None:
                found.append(_error(exchange, "bad-argument", f"{name} {problem}", _refused(name)))
        elif value is None:
            found.append(_null(exchange, name))
        elif exchange.type in _BUILT_IN:
            found.append(_unknown_argument(exchange, name, _meant(name, (_ALTERNATE_EXCHANGE,))))
    return tuple(found) if found else _NOTHING


def check_policy(policy: Policy) -> tuple[Finding, ...]:
    """What RabbitMQ refuses in one policy or operator policy; each aborts a whole import."""
    found: list[Finding] = []
    if policy.apply_to not in APPLY_TO_SINCE:
        summary = f"can't apply to {shown(policy.apply_to)}"
        found.append(_error(policy, "bad-apply-to", summary, did_you_mean(policy.apply_to, APPLY_TO_SINCE)))
    if not policy.definition:
        found.append(_error(policy, "empty-policy", "sets nothing", "RabbitMQ refuses a policy without a definition"))
    keys = _OPERATOR_KEYS if policy.operator else _POLICY_KEYS
    for name, value in policy.definition.items():
        rule = keys.get(name)
        if rule is None:
            found.extend(_unexpected_key(policy, name))
        elif (problem := rule.value.problem(value)) is not None:
            found.append(_error(policy, "bad-policy-value", f"{name} {problem}", "RabbitMQ refuses the policy (400)"))
    found.extend(_key_combinations(policy))
    return tuple(found) if found else _NOTHING


def _unexpected_argument(queue: Queue, name: str, value: Value) -> Finding:
    if value is None:
        return _null(queue, name)
    rule = _ARGUMENTS.get(name)
    if rule is None:
        return _unknown_argument(queue, name, _meant(name, tuple(_ARGUMENTS)))
    summary = f"{name} is for {_types(rule)} queues, and this one is {queue.type}"
    if name == "x-quorum-target-group-size":  # the one that no version minds anywhere
        return _warning(queue, "wrong-queue-type", summary, "RabbitMQ ignores it")
    refusal = f"refuses the queue (406 invalid arg '{name}' of queue type rabbit_{queue.type}_queue)"
    # 4.0 already knows the stream filter and still takes it on other types.
    everywhere = rule.since is BrokerVersion.V3_10
    hint = f"RabbitMQ {refusal}" if everywhere else f"RabbitMQ 4.3 {refusal}, older ones ignore it"
    return _error(queue, "wrong-queue-type", summary, hint)


def _bad_value(queue: Queue, rule: ArgumentRule, value: Value) -> Finding:
    if value is None:
        return _null(queue, rule.name)
    hint = "RabbitMQ accepts it silently and ignores it" if rule.unchecked else _refused(rule.name)
    return _error(queue, "bad-argument", f"{rule.name} {rule.value.problem(value)}", hint)


def _lasting(queue: Queue) -> list[Finding]:
    found = []
    if not queue.durable:
        summary = f"is a {queue.type} queue and not durable"
        found.append(_error(queue, "not-durable", summary, "RabbitMQ refuses it (406 invalid property 'non-durable')"))
    if queue.auto_delete:
        summary = f"is a {queue.type} queue and deletes itself"
        found.append(_error(queue, "auto-delete", summary, "RabbitMQ refuses it (406 invalid property 'auto-delete')"))
    return found


def _dead_lettering(queue: Queue) -> list[Finding]:
    found = []
    arguments = queue.arguments
    no_exchange = "x-dead-letter-exchange" not in arguments
    if no_exchange and "x-dead-letter-routing-key" in arguments and queue.type in (QueueType.CLASSIC, QueueType.QUORUM):
        summary = "has x-dead-letter-routing-key without x-dead-letter-exchange"
        hint = "RabbitMQ refuses it (406 routing_key_but_no_dlx_defined), even if a policy gives the exchange"
        found.append(_error(queue, "routing-key-without-exchange", summary, hint))
    if arguments.get("x-dead-letter-strategy") == "at-least-once" and queue.type == QueueType.QUORUM:
        overflow = arguments.get("x-overflow")
        if overflow != "reject-publish":
            said = "no x-overflow" if overflow is None else f"x-overflow {shown(overflow)}"
            summary = f"dead-letters at-least-once with {said}, which RabbitMQ silently makes at-most-once"
            found.append(_warning(queue, "strategy-ignored", summary, "add x-overflow: reject-publish"))
    return found


def _delayed_retry(queue: Queue) -> list[Finding]:
    """Delayed-retry arguments that 4.3 refuses in a policy but takes on a queue, where it then delays otherwise or
    not."""
    kind = queue.arguments.get("x-delayed-retry-type")
    least, most = queue.arguments.get("x-delayed-retry-min"), queue.arguments.get("x-delayed-retry-max")
    if kind in ("all", "failed", "returned") and least is None:
        summary = f"has x-delayed-retry-type {kind} without x-delayed-retry-min, which leaves the delay off"
        return [_error(queue, "no-delay", summary, "add x-delayed-retry-min in milliseconds")]
    if type(least) is int and type(most) is int and most < least:
        summary = f"has x-delayed-retry-max {most} below x-delayed-retry-min {least}"
        return [_error(queue, "no-delay", summary, "the maximum bounds every wait; raise it")]
    return []


def _unexpected_key(policy: Policy, name: str) -> list[Finding]:
    if name in PLUGIN_POLICY_KEYS and not policy.operator:
        return []
    if policy.operator and name in _POLICY_KEYS:
        return [_error(policy, "unknown-policy-key", f"{name} is no key of an operator policy", _aborts())]
    hint = _meant(name, tuple(_POLICY_KEYS))
    return [_error(policy, "unknown-policy-key", f"{name} is not known to RabbitMQ", hint or _aborts())]


def _key_combinations(policy: Policy) -> list[Finding]:
    definition = policy.definition
    if "ha-mode" not in definition and any(name.startswith("ha-") for name in definition):
        return [_error(policy, "bad-policy-value", "has ha- keys without ha-mode", "RabbitMQ refuses the policy (400)")]
    kind = definition.get("delayed-retry-type")
    least, most = definition.get("delayed-retry-min"), definition.get("delayed-retry-max")
    if kind in ("all", "failed", "returned") and least is None:
        summary = f"has delayed-retry-type {kind} without delayed-retry-min"
        return [_error(policy, "bad-policy-value", summary, "RabbitMQ refuses the policy (400)")]
    if type(least) is int and type(most) is int and most < least:
        summary = f"has delayed-retry-max {most} below delayed-retry-min {least}"
        return [_error(policy, "bad-policy-value", summary, "RabbitMQ refuses the policy (400)")]
    return []


def _unknown_exchange_type(exchange: Exchange) -> Finding:
    summary = f"has the type {shown(exchange.type)}, which RabbitMQ knows only from a plugin"
    if exchange.type.startswith("x-"):
        return _warning(exchange, "unknown-exchange-type", summary, "enable that plugin before importing")
    return _error(exchange, "unknown-exchange-type", summary, did_you_mean(exchange.type, EXCHANGE_TYPES_SINCE))


def _unknown_argument(about: Queue | Exchange, name: str, meant: str) -> Finding:
    return _warning(about, "unknown-argument", f"{shown(name)} is no argument RabbitMQ knows; it ignores it", meant)


@lru_cache(maxsize=4096)
def _meant(name: str, known: tuple[str, ...]) -> str:
    """The hint for an unknown name; cached, because a file repeats its mistakes for every queue."""
    if name in _INVENTED:
        return _INVENTED[name]
    # `queue-mode` for `x-queue-mode` and `x-message-ttl` for `message-ttl` are nearer than their spelling.
    for other in (f"x-{name}", name.removeprefix("x-")):
        if other in known:
            return f"did you mean `{other}`?"
    hint = did_you_mean(name, known)
    return hint if hint.startswith("did you mean") else ""


def _null(about: Queue | Exchange, name: str) -> Finding:
    return _error(about, "null-argument", f"{name} is null", "RabbitMQ refuses null in arguments; leave the key out")


def _types(rule: ArgumentRule) -> str:
    return " and ".join(kind.value for kind in QueueType if kind in rule.types)


def _refused(name: str) -> str:
    return f"RabbitMQ refuses it (406 invalid arg '{name}')"


def _aborts() -> str:
    return "RabbitMQ refuses the policy (400 not recognised policy settings) and with it the whole import"


def _error(about: Queue | Exchange | Policy, code: str, summary: str, hint: str) -> Finding:
    return Finding(code=code, address=about.address, summary=summary, hint=hint)


def _warning(about: Queue | Exchange | Policy, code: str, summary: str, hint: str) -> Finding:
    return Finding(code=code, severity=Severity.WARNING, address=about.address, summary=summary, hint=hint)
