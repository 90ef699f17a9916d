"""How long one that wants to be alone waits for the others."""

import asyncio

from redrive.runtime.exclusive_run import WAIT_S_MAX, ExclusiveRuns
from tests.unit.client.scenario import run_scenario


class Busy:
    """Takes deliveries, and has so many at work."""

    can_step_aside = True

    def __init__(self) -> None:
        self.at_work = 2

    async def stop_consuming(self) -> None: ...
    async def start_consuming(self) -> None: ...
    async def flush(self) -> None: ...
    def wake(self) -> None: ...


def test_each_time_the_others_do_not_end_it_waits_twice_as_long() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        exclusive_runs, busy = ExclusiveRuns(wait_s_first=0.05), Busy()
        exclusive_runs.members.append(busy)
        waited_s = []
        for _ in range(3):
            began_s = loop.time()
            async with exclusive_runs.exclusive() as is_exclusive:
                assert not is_exclusive
            waited_s.append(loop.time() - began_s)
        assert waited_s[0] >= 0.05
        assert waited_s[1] >= 0.10
        assert waited_s[2] >= 0.20
        busy.at_work = 1
        async with exclusive_runs.exclusive() as is_exclusive:
            assert is_exclusive
        assert exclusive_runs._wait_s == 0.05

    run_scenario(scenario())


def test_it_never_waits_as_long_as_the_broker_does() -> None:
    assert WAIT_S_MAX < 30 * 60 / 1.5


def test_who_is_cancelled_while_others_stop_lets_go_only_of_those_it_has_stopped() -> None:
    class Stubborn(Busy):
        can_step_aside = False

        def __init__(self) -> None:
            super().__init__()
            self.holds = 0

        async def stop_consuming(self) -> None:
            self.holds += 1
            await asyncio.sleep(60)

        async def start_consuming(self) -> None:
            self.holds -= 1

    async def scenario() -> None:
        exclusive_runs = ExclusiveRuns()
        members = [Stubborn(), Stubborn()]
        exclusive_runs.members.extend(members)

        async def want() -> None:
            async with exclusive_runs.exclusive():
                raise AssertionError

        task = asyncio.create_task(want())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.01)
        assert [one.holds for one in members] == [0, 0]

    run_scenario(scenario())
