"""Plans of one queue in each retry shape, and the `x-death` headers of deliveries that died in it."""

from typing import Any

from hypothesis import strategies as st

from redrive.topology import QueuePlan
from tests.unit.runtime.stage import compiled

SHAPES = ("quorum", "ladder", "requeue", "native")


def plan_of(shape: str) -> QueuePlan:
    """The plan of the queue `orders` with this retry shape."""
    return compiled(
        f"exchanges: {{shop: topic}}\nqueues: {{orders: {{from: {{shop: ['#']}}, retry: {{shape: {shape}}}}}}}"
    ).queue("orders")


PLANS = {shape: plan_of(shape) for shape in SHAPES}


def died(count: int, reason: str, exchange: str) -> list[dict[str, Any]]:
    """The `x-death` of a delivery that died so often in `orders` and as often in its wait queue."""
    return [
        {"queue": "orders", "reason": reason, "count": count, "exchange": exchange, "routing-keys": ["a.key"]},
        {
            "queue": "orders.retry",
            "reason": "expired",
            "count": count,
            "exchange": "",
            "routing-keys": ["orders.retry"],
        },
    ]


x_deaths = st.builds(died, st.integers(1, 3), st.sampled_from(["rejected", "expired"]), st.sampled_from(["", "shop"]))
