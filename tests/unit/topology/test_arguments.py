"""What RabbitMQ refuses or ignores is found without a broker: each case was declared on 3.10.8, 4.0.5 and 4.3.6."""

from typing import Any

import pytest
from hypothesis import given

from redrive.core import Severity
from redrive.topology import Arguments, Exchange, Policy, Queue, QueueType, Topology
from redrive.topology.arguments import (
    MESSAGE_TTL_MAX_MS,
    POLICY_KEYS,
    QUEUE_ARGUMENTS,
    check_exchange,
    check_policy,
    check_queue,
)
from redrive.topology.broker_versions import BrokerVersion
from tests.unit.topology.strategies import topologies

QUORUM = {"x-queue-type": "quorum"}
STREAM = {"x-queue-type": "stream"}


def queue(arguments: dict[str, Any], **fields: Any) -> Queue:
    return Queue(name="q", arguments=Arguments(arguments), **fields)


def errors(arguments: dict[str, Any], **fields: Any) -> list[str]:
    found = check_queue(queue(arguments, **fields))
    return [one.summary for one in found if one.severity is Severity.ERROR]


def warnings(arguments: dict[str, Any], **fields: Any) -> list[str]:
    found = check_queue(queue(arguments, **fields))
    return [one.summary for one in found if one.severity is Severity.WARNING]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"x-message-ttl": 0},
        {"x-message-ttl": MESSAGE_TTL_MAX_MS},
        {"x-expires": 1},
        {"x-expires": MESSAGE_TTL_MAX_MS},
        {"x-max-length": 0, "x-max-length-bytes": 2**63 - 1},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-overflow": "reject-publish-dlx"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""},
        {"x-single-active-consumer": False},
        {"x-queue-mode": "lazy", "x-queue-version": 2, "x-queue-master-locator": "min-masters"},
        {"x-queue-type": "classic", "x-queue-leader-locator": "balanced"},
        {**QUORUM, "x-delivery-limit": 0},
        {**QUORUM, "x-delivery-limit": -1},
        {**QUORUM, "x-dead-letter-strategy": "at-most-once"},
        {**QUORUM, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
        {**QUORUM, "x-quorum-initial-group-size": 1, "x-max-in-memory-length": 0, "x-consumer-timeout": 0},
        {**QUORUM, "x-delayed-retry-type": "failed", "x-delayed-retry-min": 300, "x-delayed-retry-max": 800},
        {**QUORUM, "x-delayed-retry-type": "disabled"},
        {**STREAM, "x-max-age": "7D", "x-stream-max-segment-size-bytes": 3_000_000_000},
        {**STREAM, "x-stream-filter-size-bytes": 16, "x-initial-cluster-size": 1, "x-max-length-bytes": 5},
    ],
)
def test_what_rabbitmq_takes_and_does_has_no_finding(arguments: dict[str, Any]) -> None:
    assert check_queue(queue(arguments)) == ()


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ({"x-message-ttl": -1}, "x-message-ttl must be a whole number from 0 to 315360000000, not -1"),
        (
            {"x-message-ttl": MESSAGE_TTL_MAX_MS + 1},
            "x-message-ttl must be a whole number from 0 to 315360000000, not 3",
        ),
        ({"x-message-ttl": "5000"}, 'x-message-ttl must be a whole number from 0 to 315360000000, not "5000"'),
        ({"x-message-ttl": 5000.0}, "x-message-ttl must be a whole number from 0 to 315360000000, not 5000.0"),
        ({"x-message-ttl": True}, "x-message-ttl must be a whole number from 0 to 315360000000, not true"),
        ({"x-message-ttl": 10**4000}, "x-message-ttl must be a whole number from 0 to 315360000000, not a number of"),
        ({"x-message-ttl": None}, "x-message-ttl is null"),
        ({"made-up": None}, "made-up is null"),
        ({"x-expires": 0}, "x-expires must be a whole number from 1 to"),
        ({"x-max-length": -1}, "x-max-length must be a whole number from 0, not -1"),
        ({"x-max-priority": 256}, "x-max-priority must be a whole number from 0 to 255, not 256"),
        ({"x-overflow": "block"}, "x-overflow must be one of drop-head, reject-publish, reject-publish-dlx, not"),
        ({"x-dead-letter-exchange": 5}, "x-dead-letter-exchange must be a text, not 5"),
        ({"x-single-active-consumer": 1}, "x-single-active-consumer must be true or false, not 1"),
        ({"x-queue-version": 3}, "x-queue-version must be one of 1, 2, not 3"),
        ({"x-queue-version": True}, "x-queue-version must be one of 1, 2, not true"),
        ({"x-queue-type": "CLASSIC"}, 'x-queue-type must be one of classic, quorum, stream, not "CLASSIC"'),
        ({"x-queue-type": 5}, "x-queue-type must be one of classic, quorum, stream, not 5"),
        (
            {**QUORUM, "x-dead-letter-strategy": "x"},
            "x-dead-letter-strategy must be one of at-most-once, at-least-once",
        ),
        (
            {**QUORUM, "x-quorum-initial-group-size": 0},
            "x-quorum-initial-group-size must be a whole number from 1, not 0",
        ),
        ({**QUORUM, "x-delivery-limit": "5"}, 'x-delivery-limit must be a whole number, not "5"'),
        (
            {**QUORUM, "x-delayed-retry-type": "x"},
            "x-delayed-retry-type must be one of disabled, all, failed, returned",
        ),
        (
            {**STREAM, "x-max-age": "D"},
            "x-max-age must be a number above 0 and one of Y, M, D, h, m, s, like 7D or 12h",
        ),
        ({**STREAM, "x-max-age": "0D"}, "x-max-age must be a number above 0"),
        ({**STREAM, "x-max-age": "7d"}, "x-max-age must be a number above 0"),
        (
            {**STREAM, "x-stream-filter-size-bytes": 15},
            "x-stream-filter-size-bytes must be a whole number from 16 to 255",
        ),
        (
            {**STREAM, "x-stream-max-segment-size-bytes": 3_000_000_001},
            "x-stream-max-segment-size-bytes must be a whole",
        ),
    ],
)
def test_a_value_rabbitmq_refuses_is_an_error(arguments: dict[str, Any], summary: str) -> None:
    (found,) = errors(arguments)
    assert found.startswith(summary)


@pytest.mark.parametrize(
    ("kind", "argument", "value", "for_types"),
    [
        ("quorum", "x-max-priority", 5, "classic"),
        ("quorum", "x-queue-mode", "lazy", "classic"),
        ("quorum", "x-queue-master-locator", "random", "classic"),
        ("quorum", "x-max-age", "1D", "stream"),
        ("classic", "x-dead-letter-strategy", "at-least-once", "quorum"),
        ("classic", "x-delivery-limit", 5, "quorum"),
        ("classic", "x-delayed-retry-min", 5, "quorum"),
        ("stream", "x-message-ttl", 5, "classic and quorum"),
        ("stream", "x-dead-letter-exchange", "", "classic and quorum"),
        ("stream", "x-single-active-consumer", True, "classic and quorum"),
    ],
)
def test_an_argument_of_another_queue_type_is_an_error(kind: str, argument: str, value: Any, for_types: str) -> None:
    assert errors({"x-queue-type": kind, argument: value}) == [
        f"{argument} is for {for_types} queues, and this one is {kind}"
    ]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_dead_letter_routing_key_without_an_exchange_is_an_error(kind: str) -> None:
    (found,) = check_queue(queue({"x-queue-type": kind, "x-dead-letter-routing-key": "k"}))
    assert (found.severity, found.code) == (Severity.ERROR, "routing-key-without-exchange")
    assert "406 routing_key_but_no_dlx_defined" in found.hint


@pytest.mark.parametrize("kind", [QUORUM, STREAM])
def test_quorum_queues_and_streams_are_durable_and_stay(kind: dict[str, Any]) -> None:
    assert len(errors(kind, durable=False, auto_delete=True)) == 2
    assert errors({}, durable=False, auto_delete=True) == []


@pytest.mark.parametrize("overflow", [{}, {"x-overflow": "drop-head"}])
def test_at_least_once_that_rabbitmq_silently_drops_is_a_warning(overflow: dict[str, Any]) -> None:
    (found,) = warnings({**QUORUM, "x-dead-letter-strategy": "at-least-once", **overflow})
    assert found.endswith("which RabbitMQ silently makes at-most-once")


def test_an_overflow_that_a_quorum_queue_does_not_do_is_a_warning() -> None:
    (found,) = warnings({**QUORUM, "x-overflow": "reject-publish-dlx"})
    assert found == "x-overflow reject-publish-dlx means drop-head on a quorum queue"


@pytest.mark.parametrize(
    "arguments",
    [{"x-delayed-retry-type": "failed"}, {"x-delayed-retry-min": 800, "x-delayed-retry-max": 300}],
)
def test_a_delayed_retry_that_would_not_be_one_is_an_error(arguments: dict[str, Any]) -> None:
    assert len(errors({**QUORUM, **arguments})) == 1


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("queue-mode", "did you mean `x-queue-mode`?"),
        ("x-mesage-ttl", "did you mean `x-message-ttl`?"),
        ("x-max-retries", "a quorum queue's x-delivery-limit bounds failed deliveries"),
        ("zzz", ""),
    ],
)
def test_an_unknown_argument_is_a_warning_and_what_was_meant_is_named(argument: str, hint: str) -> None:
    (found,) = check_queue(queue({argument: 5}))
    assert (found.severity, found.code, found.hint) == (Severity.WARNING, "unknown-argument", hint)
    assert "it ignores it" in found.summary


def test_a_type_beside_the_arguments_is_ignored_by_rabbitmq_and_warned_of() -> None:
    (found,) = check_queue(Queue(name="q", extra=Arguments({"type": "quorum"})))
    assert found.summary == 'says type "quorum", which RabbitMQ ignores: the queue is classic'
    assert check_queue(Queue(name="q", extra=Arguments({"type": "classic"}))) == ()


@pytest.mark.parametrize(
    ("kind", "arguments", "severity", "code"),
    [
        ("topic", {"alternate-exchange": 5}, Severity.ERROR, "bad-argument"),
        ("topic", {"x-delayed-type": "direct"}, Severity.WARNING, "unknown-argument"),
        ("topic", {"x": None}, Severity.ERROR, "null-argument"),
        ("x-delayed-message", {"x-delayed-type": "direct"}, Severity.WARNING, "unknown-exchange-type"),
        ("tpoic", {}, Severity.ERROR, "unknown-exchange-type"),
    ],
)
def test_an_exchange_rabbitmq_would_refuse_or_not_understand(
    kind: str, arguments: dict[str, Any], severity: Severity, code: str
) -> None:
    (found,) = check_exchange(Exchange(name="e", type=kind, arguments=Arguments(arguments)))
    assert (found.severity, found.code) == (severity, code)


def test_an_alternate_exchange_is_fine() -> None:
    assert check_exchange(Exchange(name="e", type="topic", arguments=Arguments({"alternate-exchange": "x"}))) == ()


def policy(definition: dict[str, Any], **fields: Any) -> Policy:
    return Policy(name="p", pattern="^x", definition=Arguments(definition), **fields)


@pytest.mark.parametrize(
    "definition",
    [
        {"message-ttl": MESSAGE_TTL_MAX_MS + 1},
        {"dead-letter-routing-key": "alone"},
        {"delivery-limit": -1},
        {"ha-mode": "all", "ha-sync-mode": "automatic"},
        {"federation-upstream-set": "all"},
        {"delayed-retry-type": "failed", "delayed-retry-min": 5},
    ],
)
def test_a_policy_some_rabbitmq_takes_has_no_finding(definition: dict[str, Any]) -> None:
    assert check_policy(policy(definition)) == ()


@pytest.mark.parametrize(
    ("given_policy", "code"),
    [
        (policy({}), "empty-policy"),
        (policy({"max-length": 1}, apply_to="quorum-queues"), "bad-apply-to"),
        (policy({"max-length": -1}), "bad-policy-value"),
        (policy({"expires": 0}), "bad-policy-value"),
        (policy({"ha-sync-mode": "automatic"}), "bad-policy-value"),
        (policy({"delayed-retry-type": "failed"}), "bad-policy-value"),
        (policy({"delayed-retry-min": 9, "delayed-retry-max": 5}), "bad-policy-value"),
        (policy({"queue-leader-locator": "min-masters"}), "bad-policy-value"),
        (policy({"x-message-ttl": 5}), "unknown-policy-key"),
        (policy({"max-priority": 5}), "unknown-policy-key"),
        (policy({"dead-letter-exchange": ""}, operator=True), "unknown-policy-key"),
        (policy({"federation-upstream-set": "all"}, operator=True), "unknown-policy-key"),
    ],
)
def test_a_policy_rabbitmq_refuses_is_an_error(given_policy: Policy, code: str) -> None:
    (found,) = check_policy(given_policy)
    assert (found.severity, found.code) == (Severity.ERROR, code)


def test_an_argument_in_place_of_a_policy_key_is_recognised() -> None:
    (found,) = check_policy(policy({"x-message-ttl": 5}))
    assert found.hint == "did you mean `message-ttl`?"


def test_the_table_of_arguments_names_everything_once_and_every_policy_key_it_mentions() -> None:
    names = [one.name for one in QUEUE_ARGUMENTS]
    keys = [one.name for one in POLICY_KEYS]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert {one.policy_key for one in QUEUE_ARGUMENTS if one.policy_key is not None} <= set(keys)
    assert all(one.types and one.meaning and not one.meaning.endswith(".") for one in QUEUE_ARGUMENTS)


# What each broker says of itself: the `queue_arguments` of rabbit_*_queue:capabilities().
CAPABILITIES = {
    (BrokerVersion.V3_10, QueueType.CLASSIC): 13,
    (BrokerVersion.V3_10, QueueType.QUORUM): 15,
    (BrokerVersion.V3_10, QueueType.STREAM): 6,
    (BrokerVersion.V4_0, QueueType.CLASSIC): 14,
    (BrokerVersion.V4_0, QueueType.QUORUM): 15,
    (BrokerVersion.V4_0, QueueType.STREAM): 6 + 1,  # 4.0 knows the stream filter and forgets to list it
    (BrokerVersion.V4_3, QueueType.CLASSIC): 14,
    (BrokerVersion.V4_3, QueueType.QUORUM): 20,
    (BrokerVersion.V4_3, QueueType.STREAM): 7,
}
# What no broker lists: it is taken on every type with every value.
UNLISTED = "x-quorum-target-group-size"


@pytest.mark.parametrize(("version", "kind"), CAPABILITIES)
def test_the_table_has_as_many_arguments_as_the_brokers(version: BrokerVersion, kind: QueueType) -> None:
    mine = [
        one.name
        for one in QUEUE_ARGUMENTS
        if kind in one.types and one.since_on.get(kind, one.since) <= version and one.name != UNLISTED
    ]
    assert len(mine) == CAPABILITIES[version, kind]


# The registered policy_validator and operator_policy_validator keys of each broker.
VALIDATORS = {BrokerVersion.V3_10: (25, 7), BrokerVersion.V4_0: (22, 11), BrokerVersion.V4_3: (25, 13)}


@pytest.mark.parametrize("version", BrokerVersion)
def test_the_table_has_as_many_policy_keys_as_the_brokers(version: BrokerVersion) -> None:
    there = [one for one in POLICY_KEYS if one.removed_in is None or version < one.removed_in]
    keys = [one for one in there if one.since <= version]
    operator_keys = [one for one in there if one.operator_since is not None and one.operator_since <= version]
    # 4.3 still lists queue-master-locator twice, and refuses it.
    assert (len(keys), len(operator_keys)) == VALIDATORS[version]


@given(topology=topologies())
def test_any_object_can_be_checked(topology: Topology) -> None:
    for one in topology.queues:
        assert all(finding.text for finding in check_queue(one))
    for exchange in topology.exchanges:
        assert all(finding.text for finding in check_exchange(exchange))
    for given_policy in topology.policies:
        assert all(finding.text for finding in check_policy(given_policy))
