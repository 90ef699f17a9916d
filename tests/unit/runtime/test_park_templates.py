"""A copy from a park template is the copy that would have been built without one, to the byte."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.client import Delivery
from redrive.core import (
    AckDelivery,
    Attempt,
    Command,
    Failure,
    Parked,
    ParkReason,
    PublishCopy,
    RejectDelivery,
    Report,
)
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.settlement.message_copies import properties_of_copy
from redrive.runtime.settlement.park_templates import ParkKind, ParkTemplates, can_use_template
from redrive.runtime.settlement.retry_state import RetryStates
from redrive.wire import Properties
from tests.examples import examples
from tests.unit.runtime.dead_deliveries import PLANS, SHAPES, x_deaths

NOW_MS = 1_794_737_507_364
LOOKS_LIKE_NOW = b"l" + NOW_MS.to_bytes(8, "big")

failures = st.none() | st.builds(
    Failure,
    type=st.just("ValueError"),
    message=st.sampled_from(["", "no", "nö", LOOKS_LIKE_NOW.decode("latin-1")]),
    stack=st.sampled_from(["", '  File "shop.py", line 1, in place\n']),
    status=st.sampled_from([None, 503, 10**12]),
)
theirs = st.fixed_dictionaries(
    {},
    optional={
        "x-death": x_deaths,
        "traceparent": st.just("00-1"),
        "x-request-id": st.just("ACC"),
        "x-delivery-count": st.integers(0, 3),
        "x-acquired-count": st.integers(0, 3),
    },
)
marked = st.sampled_from(
    [{"x-retry-count": 2}, {"x-original-exchange": "b"}, {"x-redrive-id": "given"}, {"CC": ["b"]}, {"BCC": ["b"]}]
)
tables = theirs | st.builds(lambda mine, more: {**mine, **more}, theirs, marked)
routes = st.sampled_from([("", "orders"), ("shop", "a.key"), ("other", "a.key"), ("shop", "orders.retry")])
properties = st.fixed_dictionaries(
    {"delivery_mode": st.sampled_from([2, 2, 2, 1, None]), "headers": tables},
    optional={
        "content_type": st.just("application/json"),
        "content_encoding": st.just("gzip"),
        "message_id": st.sampled_from(["m", "ö", "x-retry-CC"]),
        "cluster_id": st.just("c"),
    },
)


def delivery_of(route: tuple[str, str], **given_properties: Any) -> Delivery:
    return Delivery(1, "tag", 1, False, route, Properties.of(**given_properties).raw, b"body")


def commands_for(
    shape: str, delivery: Delivery, failure: Failure | None, now_ms: int
) -> tuple[ParkKind, tuple[Command, ...]]:
    """What a message leads to without any template, and its kind."""
    message = DeliveredMessage(delivery, PLANS[shape])
    state = RetryStates(PLANS[shape]).of(delivery)
    history = () if failure is None else (Attempt(number=state.retries + 1, at_ms=now_ms, error=failure.text),)
    report = Report(retries=state.retries, now_ms=now_ms, failure=failure, history=history)
    kind = ParkKind(delivery.route, state, ParkReason.ATTEMPTS.value, failure, failure is not None)
    return kind, PLANS[shape].commands(Parked(reason=ParkReason.ATTEMPTS), message, report)


@settings(max_examples=examples(150))
@given(st.sampled_from(SHAPES), st.lists(st.tuples(routes, properties, failures), min_size=1, max_size=8))
def test_a_copy_from_a_template_is_the_copy_that_would_have_been_built_without_one(
    shape: str, sent: list[tuple[tuple[str, str], dict[str, Any], Failure | None]]
) -> None:
    templates, states = ParkTemplates(), RetryStates(PLANS[shape])
    # All of them twice, the second time later: then there is a template of every kind that can have one.
    for number, (route, given_properties, failure) in enumerate([*sent, *sent]):
        now_ms = NOW_MS + 1000 * number
        delivery = delivery_of(route, **given_properties)
        if not can_use_template(delivery, states.of(delivery)):
            continue
        kind, commands = commands_for(shape, delivery, failure, now_ms)
        template = templates.find(kind) or templates.make(kind, commands, now_ms)
        if template is None:
            continue
        copy, settled = commands
        assert isinstance(copy, PublishCopy)
        assert isinstance(settled, AckDelivery)
        assert (template.copy.exchange, template.copy.routing_key) == (copy.exchange, copy.routing_key)
        message = DeliveredMessage(delivery, PLANS[shape])
        fill = template.fill(message, now_ms, lambda: "made-up")
        assert dict(fill.headers) == dict(properties_of_copy(message, copy, new_id=lambda: "made-up").headers)
        assert fill.edit(headers={}, drop=frozenset(fill.headers)) == properties_of_copy(
            message, copy, new_id=lambda: "made-up"
        ).edit(headers={}, drop=frozenset(fill.headers))


@pytest.mark.parametrize("shape", SHAPES)
def test_an_ordinary_dead_letter_uses_a_template(shape: str) -> None:
    delivery = delivery_of(("shop", "a.key"), delivery_mode=2, headers={"traceparent": "00-1"}, message_id="m")
    kind, commands = commands_for(shape, delivery, Failure(type="ValueError", message="no"), NOW_MS)
    templates = ParkTemplates()
    assert can_use_template(delivery, kind.state)
    assert templates.find(kind) is None
    assert templates.make(kind, commands, NOW_MS) is templates.find(kind) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"headers": {"x-retry-count": 1}},
        {"headers": {"x-final-error": "no"}},
        {"headers": {"x-original-queue": "orders"}},
        {"headers": {"x-redrive-history": []}},
        {"headers": {"CC": ["elsewhere"]}},
        {"headers": {"BCC": ["elsewhere"]}},
        {"headers": {"long": "x" * 40_000}},
        {"user_id": "guest"},
        {"expiration": "5000"},
        {"delivery_mode": 1},
        {"delivery_mode": None},
    ],
)
def test_a_message_with_headers_to_replace_or_strip_uses_no_template(changes: dict[str, Any]) -> None:
    delivery = delivery_of(("", "orders"), **{"delivery_mode": 2, **changes})
    assert not can_use_template(delivery, RetryStates(PLANS["quorum"]).of(delivery))


def test_an_error_whose_text_contains_the_time_uses_no_template() -> None:
    delivery = delivery_of(("", "orders"), delivery_mode=2)
    # As a text in the header has it: the moment's bytes, where UTF-8 allows them.
    now_ms = int.from_bytes(b"\0\0\1a bcd")
    failure = Failure(type="ValueError", message="l\0\0\1a bcd")
    kind, commands = commands_for("quorum", delivery, failure, now_ms)
    assert ParkTemplates().make(kind, commands, now_ms) is None


def test_commands_that_are_no_copy_and_ack_have_no_template() -> None:
    kind, _ = commands_for("quorum", delivery_of(("", "orders"), delivery_mode=2), None, NOW_MS)
    expiring = PublishCopy(exchange="", routing_key="q", expiration_ms=5)
    foreign = PublishCopy(exchange="", routing_key="q", set_headers={"mine": NOW_MS})
    for commands in ((RejectDelivery(),), (expiring, AckDelivery()), (foreign, AckDelivery())):
        assert ParkTemplates().make(kind, commands, NOW_MS) is None


def test_only_so_many_templates_are_kept() -> None:
    templates = ParkTemplates()
    delivery = delivery_of(("", "orders"), delivery_mode=2)
    kinds = []
    for number in range(200):
        kind, commands = commands_for("quorum", delivery, Failure(type="E", message=str(number)), NOW_MS)
        templates.make(kind, commands, NOW_MS)
        kinds.append(kind)
    assert 0 < sum(templates.find(kind) is not None for kind in kinds) <= 64
    assert templates.find(kinds[-1]) is not None
