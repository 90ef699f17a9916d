"""What becomes of a message that expires in its main queue, as docs/reference/shapes.md says it."""

import pytest

from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import stage, until

SHAPES = {
    "ladder": ("retry: [1s]", "ready in orders.parked"),
    "tiered": ("retry: {shape: tiered, exchange: shop, delays: [1s]}", "ready in shop.dlq"),
    "requeue": ("retry: {shape: requeue, exchange: shop}", "ready in orders.dlq"),
    "per-queue": ("retry: {shape: per-queue, delays: [1s]}", None),
    "quorum": ("retry: {shape: quorum, delays: [1s]}", "orders.retry"),
}


@pytest.mark.parametrize("profile", [*(pytest.param(old, marks=pytest.mark.slow) for old in ("3.10", "4.0")), "4.3"])
@pytest.mark.parametrize("shape", SHAPES)
def test_where_a_message_is_that_expired_in_its_main_queue(shape: str, profile: str) -> None:
    options, place = SHAPES[shape]

    async def scenario() -> None:
        text = f"exchanges: {{shop: topic}}\nqueues:\n  orders: {{from: {{shop: ['orders.*']}}, {options}}}"
        async with stage(text, profile=profile, time="manual") as on:
            await on.publish("orders", message_id="a", expiration="100")
            for _ in range(20):
                await on.broker.advance(60)
            if place is None:
                await until(lambda: on.places("a") == [])
            else:
                await until(lambda: len(on.places("a")) == 1 and place in on.places("a")[0])

    run_scenario(scenario())
