"""The API's connection to the broker: nobody waits long for one that is away, and one that comes back is found."""

import asyncio
import socket
from dataclasses import replace

import pytest

from redrive.admin import Services, SharedBroker, WorkerActivity, WorkerState
from redrive.admin.problems import HttpProblem
from redrive.embedded import EmbeddedBroker
from redrive.wiring import Setting
from tests.unit.admin.conftest import Run


def test_many_requests_learn_at_once_that_the_broker_is_away(run: Run, services: Services) -> None:
    async def scenario() -> None:
        tried = await asyncio.gather(*(services.broker.get() for _ in range(50)), return_exceptions=True)
        for problem in tried:
            assert isinstance(problem, HttpProblem)
            assert (problem.status, problem.name, problem.headers) == (503, "broker-unavailable", {"Retry-After": "5"})
        with pytest.raises(HttpProblem):
            await services.broker.peek("orders.dlq", 1)
        queues = await services.broker.queues()
        assert queues.queues == ()
        assert queues.problem is not None

    run(scenario())


@pytest.mark.slow
def test_a_host_that_does_not_answer_holds_nobody_up(run: Run, services: Services) -> None:
    async def scenario(port: int) -> None:
        url, management = (
            Setting(value=f"{scheme}://guest:guest@127.0.0.1:{port}/", source="test") for scheme in ("amqp", "http")
        )
        place = replace(services.connections, url=url, management_url=management)
        shared = SharedBroker(place, services.store, patience_s=0.2)
        with pytest.raises(HttpProblem) as caught:
            await shared.get()
        assert "no answer" in caught.value.detail
        # A request right after one that waited in vain fails at once; a second later it is tried again.
        loop = asyncio.get_running_loop()
        for least_s, most_s in ((0.0, 0.15), (0.0, 0.15), (0.2, 5.0)):
            if least_s:
                await asyncio.sleep(1.1)
            began_s = loop.time()
            with pytest.raises(HttpProblem):
                await shared.get()
            assert least_s <= loop.time() - began_s < most_s
        assert (await shared.queues()).problem is not None
        await shared.close()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(scenario(silent.getsockname()[1]))


@pytest.mark.slow
def test_a_broker_that_was_away_is_found_by_a_later_request(run: Run, services: Services) -> None:
    async def scenario() -> None:
        async with EmbeddedBroker() as broker:
            good = Setting(value=broker.url, source="test")
        # It is gone again, and so is its port.
        shared = SharedBroker(replace(services.connections, url=good), services.store, patience_s=5.0)
        with pytest.raises(HttpProblem):
            await shared.get()
        port = int(good.value.rpartition(":")[2].partition("/")[0])
        async with EmbeddedBroker(port=port):
            while True:
                try:
                    found = await shared.get()
                    break
                except HttpProblem:
                    await asyncio.sleep(0.05)
            assert await found.messages_ready("nothing") is None
            assert await shared.get() is found
            await shared.close()

    run(scenario())


def test_what_a_worker_does_is_told_in_words() -> None:
    assert WorkerState(activity=WorkerActivity.COLLECTING).text == "collecting"
    waiting = WorkerState(activity=WorkerActivity.WAITING, reason="for the broker: nobody answers")
    assert (waiting.text, waiting.is_ready) == ("waiting: for the broker: nobody answers", False)
