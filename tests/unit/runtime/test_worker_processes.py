"""Workers that are started, watched and stopped together."""

import asyncio
import sys

import pytest

from redrive.runtime.worker_processes import COULD_NOT, WorkerProcesses
from tests.unit.client.scenario import Notes, run_scenario
from tests.unit.runtime.stage import until


@pytest.mark.slow
def test_a_worker_that_finds_no_broker_after_it_had_begun_does_not_end_the_others() -> None:
    async def scenario() -> None:
        notes = Notes()
        codes = iter((1, COULD_NOT, COULD_NOT))

        def command(number: int) -> list[str]:
            code = next(codes, None)
            script = "import time; time.sleep(60)" if code is None else f"raise SystemExit({code})"
            return [sys.executable, "-c", script]

        fleet = WorkerProcesses(command, 1, grace_s=1, observer=notes)
        running = asyncio.create_task(fleet.run())
        await until(lambda: sum(name == "runtime.worker_started" for name, _ in notes.heard) == 4)
        fleet.stop()
        assert await running == 0

    run_scenario(scenario())
