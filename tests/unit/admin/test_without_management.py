"""A broker whose management API does not answer, and a worker that waits: what is shown, and what is said about it."""

from dataclasses import replace

import pytest
from fastapi import FastAPI

from redrive.admin import Services, SharedBroker, WorkerActivity, WorkerState
from redrive.admin.problems import management_unavailable
from redrive.deadletters import PeekResult
from redrive.records import Role
from redrive.wiring import KnownQueue, KnownQueues
from tests.unit.admin.conftest import ClientFor, PutLetter, Run, app_on

DLQ = "orders.parked"
PEEK = f"/admin/dlq/queues/{DLQ}/messages"
COLLECTING = WorkerState(activity=WorkerActivity.COLLECTING, queues={DLQ: ""})
AWAY = WorkerState(activity=WorkerActivity.WAITING, reason="for the broker: no connection", queues={DLQ: ""})


class WithoutManagement(SharedBroker):
    """The broker answers, its management API does not."""

    async def queues(self) -> KnownQueues:
        return KnownQueues(address="here", queues=(KnownQueue(vhost="/", dlq=DLQ, known_queue="orders"),))

    async def peek(self, queue: str, limit: int) -> PeekResult:
        raise management_unavailable("the management API does not answer at http://here:15672")


@pytest.fixture
def doing() -> list[WorkerState]:
    """What the worker does; the last one counts."""
    return [WorkerState(activity=WorkerActivity.OFF)]


@pytest.fixture
def app(services: Services, doing: list[WorkerState]) -> FastAPI:
    broker = WithoutManagement(services.connections, services.store, patience_s=0.1)
    return app_on(replace(services, broker=broker, workers=lambda: doing[-1]))


def test_without_a_management_api_what_is_stored_is_shown_and_why_no_more(
    run: Run, client_for: ClientFor, put_letter: PutLetter, doing: list[WorkerState]
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        refused = await client.get(PEEK)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:redrive:problem:management-unavailable")
        assert refused.json()["title"] == "The broker's management API can't be asked"
        assert refused.headers["retry-after"]
        # What is collected here is stored: nothing stored is an answer.
        doing.append(COLLECTING)
        empty = await client.get(PEEK)
        assert (empty.status_code, empty.json()["messages"]) == (200, [])
        assert "http://here:15672" in empty.json()["note"]
        # But not while nothing is collected.
        doing.append(AWAY)
        assert (await client.get(PEEK)).status_code == 503
        letter = await put_letter()
        told = (await client.get(PEEK)).json()
        assert [one["id"] for one in told["messages"]] == [letter.id]
        assert (told["left"], "http://here:15672" in told["note"]) == (None, True)

    run(scenario())


def test_a_queue_is_not_said_to_be_collected_while_the_worker_waits(
    run: Run, client_for: ClientFor, doing: list[WorkerState]
) -> None:
    async def scenario() -> None:
        client = await client_for(Role.ADMIN)
        found = []
        for state in (COLLECTING, AWAY, WorkerState(activity=WorkerActivity.OFF)):
            doing.append(state)
            pipeline = (await client.get("/admin/dlq/queues")).json()
            ours = (await client.get("/api/v1/queues")).json()
            found.append((pipeline["queues"][0]["collecting"], ours["queues"][0]["collecting"], pipeline["worker"]))
        waiting = "waiting: for the broker: no connection"
        assert found == [(True, "yes", "collecting"), (False, waiting, waiting), (False, None, "off")]

    run(scenario())
