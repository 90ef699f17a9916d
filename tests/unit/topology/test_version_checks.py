"""What each version refuses or ignores, as measured, is reported before it sees the topology."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Severity
from redrive.topology import Arguments, Exchange, Policy, Queue, Topology, Vhost
from redrive.topology.version_checks import BrokerVersion, check_for
from tests.unit.topology.strategies import topologies

V3_10, V4_0, V4_3 = BrokerVersion
SAFE = {"x-queue-type": "quorum", "x-dead-letter-exchange": ""}

Verdict = tuple[str, str] | None
"""Severity and code, or None for silence."""


def verdicts(topology: Topology) -> list[Verdict]:
    """The only finding on 3.10, 4.0 and 4.3."""
    found: list[Verdict] = []
    for version in BrokerVersion:
        findings = check_for(topology, version)
        assert len(findings) <= 1
        found.append((findings[0].severity, findings[0].code) if findings else None)
    return found


def of_queue(arguments: dict[str, Any], **fields: Any) -> list[Verdict]:
    return verdicts(Topology(queues=(Queue(name="q", arguments=Arguments(arguments), **fields),)))


def of_policy(definition: dict[str, Any], **fields: Any) -> list[Verdict]:
    return verdicts(Topology(policies=(Policy(name="p", pattern="", definition=Arguments(definition), **fields),)))


def test_versions_are_ordered_by_age() -> None:
    assert V3_10 < V4_0 < V4_3
    assert V4_3 >= V4_3 > V3_10
    assert [str(one) for one in BrokerVersion] == ["3.10", "4.0", "4.3"]
    assert BrokerVersion("4.0") is V4_0


@pytest.mark.parametrize("argument", ["x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"])
def test_delayed_retry_is_an_error_below_4_3_where_it_is_silently_no_delay(argument: str) -> None:
    refused = (Severity.ERROR, "no-delayed-retry")
    assert of_queue({**SAFE, argument: 5}) == [refused, refused, None]


def test_a_negative_delivery_limit_destroys_messages_on_3_10() -> None:
    limit = {"x-queue-type": "quorum", "x-delivery-limit": -1}
    assert of_queue(limit) == [(Severity.ERROR, "delivery-limit-destroys"), None, None]
    assert of_policy({"delivery-limit": -1}) == [(Severity.ERROR, "policy-value-refused"), None, None]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            {"x-queue-mode": "lazy"},
            [None, (Severity.WARNING, "argument-without-effect"), (Severity.WARNING, "argument-without-effect")],
        ),
        ({"x-queue-version": 1}, [None, None, (Severity.ERROR, "argument-refused")]),
        ({"x-queue-version": 2}, [None, None, None]),
        ({"x-queue-master-locator": "min-masters"}, [None, None, (Severity.ERROR, "argument-refused")]),
        ({"x-queue-leader-locator": "balanced"}, [(Severity.ERROR, "argument-refused"), None, None]),
        ({**SAFE, "x-queue-leader-locator": "balanced"}, [None, None, None]),
        ({**SAFE, "x-queue-leader-locator": "min-masters"}, [(Severity.ERROR, "argument-refused"), None, None]),
        (
            {**SAFE, "x-consumer-timeout": 5},
            [(Severity.WARNING, "argument-without-effect"), (Severity.WARNING, "argument-without-effect"), None],
        ),
        (
            {"x-queue-type": "stream", "x-stream-filter-size-bytes": 16},
            [(Severity.WARNING, "argument-without-effect"), None, None],
        ),
    ],
)
def test_arguments_that_only_some_versions_take(arguments: dict[str, Any], expected: list[Verdict]) -> None:
    assert of_queue(arguments) == expected


def test_a_quorum_queue_without_limit_and_dead_letters_drops_messages_on_4() -> None:
    drops = (Severity.WARNING, "default-delivery-limit")
    assert of_queue({"x-queue-type": "quorum"}) == [None, drops, drops]
    assert of_queue({"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}) == [None, None, None]
    assert of_queue(SAFE) == [None, None, None]
    assert of_queue({}) == [None, None, None]


@pytest.mark.parametrize(
    ("pattern", "apply_to", "vhost", "covered"),
    [
        ("^q", "queues", "/", True),
        ("", "all", "/", True),
        ("^other", "queues", "/", False),
        ("^q", "exchanges", "/", False),
        ("^q", "queues", "elsewhere", False),
        ("(?<broken", "queues", "/", True),  # Python can't read it; better silent than wrong
        ("[[:alpha:]]", "queues", "/", True),
    ],
)
def test_a_policy_may_give_a_quorum_queue_its_limit_or_dead_letters(
    pattern: str, apply_to: str, vhost: str, covered: bool
) -> None:
    given_policy = Policy(
        name="p", pattern=pattern, apply_to=apply_to, vhost=vhost, definition=Arguments({"dead-letter-exchange": ""})
    )
    queue = Queue(name="q", arguments=Arguments({"x-queue-type": "quorum"}))
    assert (check_for(Topology(queues=(queue,), policies=(given_policy,)), V4_0) == ()) is covered


def test_a_transient_queue_is_doubtful_on_4_3() -> None:
    assert of_queue({}, durable=False) == [None, None, (Severity.WARNING, "transient-queue")]


@pytest.mark.parametrize(
    ("definition", "operator", "refused_by"),
    [
        ({"ha-mode": "all"}, False, [V4_0, V4_3]),
        ({"queue-master-locator": "random"}, False, [V4_3]),
        ({"queue-master-locator": "random"}, True, [V3_10, V4_3]),
        ({"consumer-timeout": 5}, False, [V3_10]),
        ({"consumer-disconnected-timeout": 5}, False, [V3_10, V4_0]),
        ({"target-group-size": 3}, False, [V3_10]),
        ({"stream-filter-size-bytes": 16}, False, [V3_10]),
        ({"delayed-retry-min": 5}, False, [V3_10, V4_0]),
        ({"overflow": "drop-head"}, False, []),
        ({"overflow": "drop-head"}, True, [V3_10]),
        ({"message-ttl": 5}, True, []),
        ({"made-up": 5}, False, []),  # wrong everywhere, and said elsewhere
    ],
)
def test_policy_keys_that_a_version_refuses_abort_an_import(
    definition: dict[str, Any], operator: bool, refused_by: list[BrokerVersion]
) -> None:
    refused = (Severity.ERROR, "policy-key-refused")
    expected = [refused if version in refused_by else None for version in BrokerVersion]
    assert of_policy(definition, operator=operator) == expected


@pytest.mark.parametrize("apply_to", ["classic_queues", "quorum_queues", "streams"])
def test_a_policy_for_one_queue_type_is_refused_by_3_10(apply_to: str) -> None:
    assert of_policy({"max-length": 5}, apply_to=apply_to) == [(Severity.ERROR, "apply-to-refused"), None, None]


def test_a_default_queue_type_is_ignored_by_3_10() -> None:
    wanted = Topology(vhosts=(Vhost(name="v", default_queue_type="quorum"),))
    assert verdicts(wanted) == [(Severity.WARNING, "default-queue-type-ignored"), None, None]


@pytest.mark.parametrize(
    ("kind", "refused_by"), [("topic", []), ("x-local-random", [V3_10]), ("x-modulus-hash", [V3_10, V4_0])]
)
def test_exchange_types_that_came_later_are_refused_before(kind: str, refused_by: list[BrokerVersion]) -> None:
    refused = (Severity.ERROR, "unknown-exchange-type")
    expected = [refused if version in refused_by else None for version in BrokerVersion]
    assert verdicts(Topology(exchanges=(Exchange(name="e", type=kind),))) == expected


@given(topology=topologies(), version=st.sampled_from(BrokerVersion))
def test_any_topology_can_be_checked_for_any_version(topology: Topology, version: BrokerVersion) -> None:
    assert all(one.text for one in check_for(topology, version))
