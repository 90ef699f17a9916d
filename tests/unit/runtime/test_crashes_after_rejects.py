"""The crash cap where rejects are the retries: 4.0 counts them as deliveries, and on no version may one be taken for a
death, or a death for one."""

import asyncio
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from redrive import App
from redrive.core import Crashed
from redrive.runtime import Admission, AppRunner, LastRun, ReplaceByCopy, RunRecords
from redrive.runtime.run_records import read_crash_report
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

pytestmark = pytest.mark.slow

TEXT = "queues: {orders: {retry: {shape: quorum, attempts: 12}}}"


def die(runner: AppRunner) -> None:
    """As a killed process: both lines go, and nobody makes them anew."""
    for client in (runner._consuming, runner._publishing):
        client._connection.give_up("killed")  # type: ignore[union-attr]
        client._task.cancel()  # type: ignore[union-attr]


@pytest.mark.parametrize("profile", ["3.10", "4.0", "4.3"])
@pytest.mark.parametrize("rejects", [0, 2, 5])
@pytest.mark.parametrize(("seen", "deaths"), [("ended by itself", 3), ("killed", 5), ("unseen", 8)])
def test_a_message_that_crashes_after_some_failures_is_parked_after_its_exclusive_runs(
    profile: str, rejects: int, seen: str, deaths: int, tmp_path: Path
) -> None:
    records = None if seen == "unseen" else RunRecords(tmp_path)
    code = 1 if seen == "ended by itself" else -9

    async def scenario() -> None:
        async with stage(TEXT, profile=profile, time="automatic") as on:
            kills = failures = 0
            dying = asyncio.Event()
            await on.publish("orders", message_id="a")
            for _life in range(deaths):
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

                record = None if records is None else records.create({"orders": 100}, path=records.new_path())
                async with on.running(app, grace_s=0, records=records, record=record) as runner:
                    await dying.wait()
                    if record is not None:
                        # A process that is gone writes nothing more; this one goes on, so its record is put by.
                        kept = record.path.read_bytes()
                        record.close()
                        record.path.write_bytes(kept)
                        read_crash_report(record.path, code=code)
                    die(runner)
            async with on.running(app, grace_s=0, records=records):
                await until(lambda: on.decisions()["park"] == 1)
            assert (failures, kills) == (rejects, deaths)
            assert on.places("a") == ["ready in orders.dlq"]

    run_scenario(scenario(), timeout_s=30)


class Redelivered:
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
    ("message", "verdict"),
    [
        (Redelivered(), ReplaceByCopy(deliveries=1)),
        (Redelivered(x_delivery_count=1), ReplaceByCopy(deliveries=1)),
        # 4.0, back from its waits, nobody died
        (Redelivered(x_delivery_count=1, x_death=rejected(1)), None),
        (Redelivered(x_delivery_count=5, x_death=rejected(5)), None),
        # died after its rejects
        (Redelivered(x_delivery_count=1, x_death=rejected(5)), ReplaceByCopy(deliveries=1)),
        (Redelivered(x_delivery_count=6, x_death=rejected(5)), ReplaceByCopy(deliveries=1)),
        # died, for sure, once too often
        (Redelivered(x_delivery_count=1, x_redrive_deliveries=2, x_redrive_deaths_alone=5), Crashed(deliveries=3)),
        # died when it was to run alone, and nobody knows whether it had begun
        (Redelivered(x_delivery_count=1, x_redrive_deliveries=2), ReplaceByCopy(deliveries=3, weight=1)),
        (Redelivered(x_redrive_deliveries=5, x_redrive_deaths_alone=4), ReplaceByCopy(deliveries=6, weight=5)),
        # perhaps a line that was lost some rejects ago: a run alone before anything else
        (Redelivered(x_delivery_count=1, x_death=rejected(5), x_redrive_deliveries=2), ReplaceByCopy(deliveries=2)),
    ],
)
def test_a_redelivered_message_is_replaced_run_exclusively_or_parked_by_its_headers(message: Any, verdict: Any) -> None:
    admission = Admission(compiled(TEXT).queue("orders"), crashes_max=3, now_ms=lambda: 0)
    assert admission.judge(message, b"") == verdict


@pytest.mark.parametrize(
    ("last_run", "verdict"),
    [
        (LastRun.ITS_OWN, Crashed(deliveries=3)),
        (LastRun.STOPPED, ReplaceByCopy(deliveries=3, weight=2)),
        (LastRun.UNSEEN, ReplaceByCopy(deliveries=3, weight=1)),
        (LastRun.NOT_BEGUN, ReplaceByCopy(deliveries=2)),
    ],
)
def test_only_crashes_in_exclusive_runs_weigh(last_run: LastRun, verdict: Any) -> None:
    admission = Admission(compiled(TEXT).queue("orders"), crashes_max=3, now_ms=lambda: 0)
    twice: Any = Redelivered(x_redrive_deliveries=2)
    once: Any = Redelivered(x_redrive_deliveries=1)
    assert admission.judge(twice, b"", last_run=last_run) == verdict
    assert admission.judge(once, b"", last_run=last_run) == ReplaceByCopy(deliveries=2)
