"""A delivery's retry state is the same whether others like it came before or not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.client import Delivery
from redrive.core import count_retries, has_odd_deaths, own_deaths
from redrive.runtime.delivered_message import DeliveredMessage
from redrive.runtime.settlement.retry_state import RetryStates
from redrive.topology import QueuePlan
from redrive.wire import Properties, digest_of
from tests.examples import examples
from tests.unit.runtime.dead_deliveries import PLANS, SHAPES, died, x_deaths

forged = Properties.of(headers={"x-death": died(3, "rejected", "shop")}).raw
tables = st.fixed_dictionaries(
    {},
    optional={
        # The bytes of somebody else's x-death in a header of the publisher's own, before the broker's.
        "note": st.sampled_from([forged, forged.decode("latin-1"), "x-death"]),
        "x-death": x_deaths,
        "x-retry-count": st.integers(0, 3),
        "x-delivery-count": st.integers(0, 3),
        "x-request-id": st.sampled_from(["ACC", "1"]),
        "x-redrive-attempts-before": st.integers(0, 3),
        "x-original-queue": st.just("orders"),
        "x-original-routing-key": st.sampled_from(["b.key", 5]),
    },
)
routes = st.sampled_from([("", "orders"), ("shop", "a.key"), ("shop", "orders.retry")])


def delivery(
    route: tuple[str, str], table: dict[str, Any], message_id: str, *, body: bytes = b"", redelivered: bool = False
) -> Delivery:
    raw = Properties.of(headers=table, message_id=message_id).raw
    return Delivery(1, "tag", 1, redelivered, route, raw, body)


@settings(max_examples=examples(150))
@given(
    st.sampled_from(SHAPES),
    st.lists(
        st.tuples(routes, tables, st.sampled_from([None, b"", b"another"]), st.booleans()), min_size=1, max_size=8
    ),
)
def test_a_retry_state_is_the_same_whichever_delivery_came_before(
    shape: str, sent: list[tuple[tuple[str, str], dict[str, Any], bytes | None, bool]]
) -> None:
    """The digest, where there is one, is that of an empty body: the same bytes fit one message and not another."""
    plan = PLANS[shape]
    states = RetryStates(plan)
    digest = digest_of(Properties.of(), "orders", message_id="id", body=b"")
    for route, untold, body, redelivered in [*sent, *sent]:
        table = untold if body is None else {**untold, "x-redrive-digest": digest}
        one = delivery(route, table, "id", body=body or b"", redelivered=redelivered)
        message = DeliveredMessage(one, plan)
        is_odd = has_odd_deaths(table.get("x-death"))
        assert states.of(one) == (
            count_retries(message, plan.counted_by),
            plan.must_be_copied(message),
            own_deaths(message).route,
            plan.handler_routing_key(message),
            is_odd or any(name.startswith(("x-redrive-", "x-retry-", "x-original-")) for name in table),
            is_odd,
        )


@pytest.mark.parametrize("has_trace", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_deliveries_that_died_alike_are_read_once(count: int, has_trace: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def routing_key(_plan: QueuePlan, message: DeliveredMessage) -> str:
        read.append(message.queue)
        return "a.key"

    monkeypatch.setattr(QueuePlan, "handler_routing_key", routing_key)
    states = RetryStates(PLANS["quorum"])
    for number in range(5):
        own = {"traceparent": f"00-{number}"} if has_trace else {}
        one = delivery(("", "orders"), {**own, "x-death": died(count, "rejected", "shop")}, f"id{number}")
        assert states.of(one).retries == count
    assert read == ["orders"]
