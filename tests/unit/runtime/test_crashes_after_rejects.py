"""The crash cap where rejects are the retries: 4.0 counts them as deliveries, and on no version may one be taken for a
death, or a death for one."""

import asyncio
from types import MappingProxyType
from typing import Any

import pytest

from redrive import App
from redrive.core import Crashed
from redrive.runtime import Admission, Runner
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

TEXT = "queues: {orders: {retry: {shape: quorum, attempts: 12}}}"


def die(runner: Runner) -> None:
    """As a killed process: both lines go, and nobody makes them anew."""
    for client in (runner._consuming, runner._publishing):
        client._connection.give_up("killed")  # type: ignore[union-attr]
        client._task.cancel()  # type: ignore[union-attr]


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("rejects", [0, 2, 5])
def test_a_message_that_kills_after_some_failures_kills_three_times(profile: str, rejects: int) -> None:
    async def scenario() -> None:
        async with stage(TEXT, profile=profile, time="automatic") as on:
            kills = failures = 0
            dying = asyncio.Event()
            await on.publish("orders", message_id="a")
            for _life in range(3):
                dying.clear()
                app = App(compiled(TEXT))

                @app.consumer("orders")
                async def handle(_body: bytes) -> None:
                    nonlocal kills, failures
                    if failures < rejects:
                        failures += 1
                        raise ValueError("no")
                    kills += 1
                    dying.set()
                    await asyncio.sleep(60)

                async with on.running(app, grace_s=0) as runner:
                    await dying.wait()
                    die(runner)
            async with on.running(app, grace_s=0):
                await until(lambda: on.decisions()["park"] == 1)
            assert (failures, kills) == (rejects, 3)
            assert on.places("a") == ["ready in orders.dlq"]

    run_scenario(scenario(), timeout_s=30)


class Letter:
    """A delivery of `orders` with these headers."""

    queue, exchange, routing_key = "orders", "", "orders"
    has_anothers_headers = False

    def __init__(self, **headers: Any) -> None:
        self.headers = MappingProxyType({name.replace("_", "-"): value for name, value in headers.items()})
        self.redelivered = True

    def header(self, name: str) -> Any:
        return self.headers.get(name)


def rejected(times: int) -> list[dict[str, Any]]:
    return [{"queue": "orders", "reason": "rejected", "count": times, "exchange": "", "routing-keys": ["orders"]}]


@pytest.mark.parametrize(
    ("letter", "verdict"),
    [
        (Letter(), Admission.Replace(deliveries=1)),
        (Letter(x_delivery_count=1), Admission.Replace(deliveries=1)),
        # 4.0, back from its waits, nobody died
        (Letter(x_delivery_count=1, x_death=rejected(1)), None),
        (Letter(x_delivery_count=5, x_death=rejected(5)), None),
        # died after its rejects
        (Letter(x_delivery_count=1, x_death=rejected(5)), Admission.Replace(deliveries=1)),
        (Letter(x_delivery_count=6, x_death=rejected(5)), Admission.Replace(deliveries=1)),
        # died, for sure, once too often
        (Letter(x_delivery_count=1, x_redrive_deliveries=2), Crashed(deliveries=3)),
        # perhaps a line that was lost some rejects ago: a run alone before anything else
        (Letter(x_delivery_count=1, x_death=rejected(5), x_redrive_deliveries=2), Admission.Replace(deliveries=2)),
    ],
)
def test_what_a_redelivered_message_tells(letter: Any, verdict: Any) -> None:
    admission = Admission(compiled(TEXT).queue("orders"), crashes_max=3, now_ms=lambda: 0)
    assert admission.judge(letter, b"") == verdict
