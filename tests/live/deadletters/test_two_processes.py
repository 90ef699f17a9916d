"""Two collectors, two redrivers on one operation, two auto-retriers, in processes of their own, on one database: no
message in two rows, none sent twice. Also when one of them sleeps over its lease and wakes up."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rig import Vhost

from redrive.records import Filter, NewOperation, OperationKind, RetryRule, Selection, Status, make_id
from redrive.stores import open_store
from tests.examples import IS_MATRIX
from tests.live.deadletters.kills.cells import STORES, Flow
from tests.live.deadletters.kills.stage import Stage, content_of
from tests.live.deadletters.kills.worker import Job, work
from tests.live.worker_processes import make_pipe, said, start_worker, wait_exit

PATIENCE_S = 90.0
MESSAGES = 90
LEASE_S = 0.6
ON_ONE_DATABASE = pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A dead-letter queue and a database, for several workers."""

    stage: Stage
    database_url: str
    folder: Path

    def job(self, flow: Flow, *, operation_id: str = "") -> Job:
        """A worker's job, which others do as well."""
        return Job(
            flow=flow,
            amqp_url=self.stage.url,
            database_url=self.database_url,
            dlq=self.stage.dlq,
            main=self.stage.main,
            queue_type=self.stage.queue_type,
            folder=self.folder,
            operation_id=operation_id,
            shares=True,
        )

    async def run_all(self, *jobs: Job) -> None:
        """All at once, each in a process, to their ends."""
        processes = []
        for job in jobs:
            _, theirs = make_pipe()
            processes.append(start_worker(work, job, theirs))
            theirs.close()
        for process in processes:
            assert await wait_exit(process, patience_s=PATIENCE_S) == 0, said(self.folder)

    async def run_past_sleeper(self, job: Job, step: str) -> None:
        """One falls asleep at a step, as a machine that is suspended; another takes over; then the first wakes up."""
        pipe, theirs = make_pipe()
        sleeper = start_worker(work, replace(job, gates=((step, 1),), lease_s=LEASE_S), theirs)
        theirs.close()
        assert await asyncio.to_thread(pipe.poll, PATIENCE_S), said(self.folder)
        assert pipe.recv() == step
        os.kill(sleeper.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * LEASE_S)
            other = start_worker(work, replace(job, lease_s=LEASE_S), make_pipe()[1])
            await asyncio.sleep(4 * LEASE_S)
            pipe.send("go on")
        finally:
            os.kill(sleeper.pid, signal.SIGCONT)
        assert await wait_exit(sleeper, patience_s=PATIENCE_S) == 0, said(self.folder)
        assert await wait_exit(other, patience_s=PATIENCE_S) == 0, said(self.folder)

    async def stored(self) -> tuple[Counter[str], Counter[Status]]:
        """What is in the store, by content and by status."""
        contents: Counter[str] = Counter()
        statuses: Counter[Status] = Counter()
        async with await open_store(self.database_url) as store:
            page = await store.letters.page(Filter(), limit=200, now_ms=now_ms())
            for letter in page.letters:
                content = await store.letters.content(letter.id)
                assert content is not None
                assert letter.copy_of is None
                contents[content_of(content.body)] += 1
                statuses[letter.status] += 1
        return contents, statuses

    async def sent(self) -> Counter[tuple[str, int]]:
        """The copies on the broker, by dead letter and by which redrive made them."""
        return Counter((copy.redriven_id, copy.count) for copy in await self.stage.copies())

    async def ask(self) -> str:
        """An operation for everything."""
        asked = NewOperation(kind=OperationKind.REDRIVE, selection=Selection(filter=Filter()), who="tests")
        async with await open_store(self.database_url) as store:
            made = await store.operations.create(asked, id=make_id(now_ms(), random.getrandbits(64)), now_ms=now_ms())
        return made.id

    async def set_rule(self) -> None:
        """Everything is due at once."""
        async with await open_store(self.database_url) as store:
            await store.rules.set(RetryRule(scope="*", first_ms=1, ceiling_ms=1), now_ms=now_ms())


@pytest.fixture(params=STORES)
def together(request: pytest.FixtureRequest, vhost: Vhost, tmp_path: Path) -> Together:
    url = f"sqlite:///{tmp_path}/letters.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    # Quorum queues let in a second consumer that wants to be alone: nothing but the lease keeps it out.
    return Together(
        stage=Stage(url=vhost.amqp_url, name="together", queue_type="quorum"), database_url=url, folder=tmp_path
    )


@ON_ONE_DATABASE
def test_two_collectors_make_one_row_of_every_message(together: Together) -> None:
    async def scenario() -> None:
        published = await together.stage.set_up(messages=MESSAGES)
        await together.run_all(together.job(Flow.COLLECT), together.job(Flow.COLLECT))
        assert (await together.stored())[0] == published
        assert await together.stage.contents(together.stage.dlq) == []

    asyncio.run(scenario())


@ON_ONE_DATABASE
@pytest.mark.parametrize("step", ["stored", *(["taken", "acked", "barrier"] if IS_MATRIX else [])])
def test_a_collector_that_slept_over_its_lease_makes_no_second_row(together: Together, step: str) -> None:
    async def scenario() -> None:
        published = await together.stage.set_up(messages=MESSAGES)
        await together.run_past_sleeper(together.job(Flow.COLLECT), step)
        assert (await together.stored())[0] == published
        assert await together.stage.contents(together.stage.dlq) == []

    asyncio.run(scenario())


@ON_ONE_DATABASE
def test_two_redrivers_of_one_operation_send_every_message_once(together: Together) -> None:
    async def scenario() -> None:
        await together.stage.set_up(messages=MESSAGES)
        await together.run_all(together.job(Flow.COLLECT))
        job = together.job(Flow.REDRIVE, operation_id=await together.ask())
        await together.run_all(job, job)
        sent = await together.sent()
        assert (len(sent), set(sent.values())) == (MESSAGES, {1})
        assert (await together.stored())[1] == {Status.RETRYING: MESSAGES}

    asyncio.run(scenario())


@ON_ONE_DATABASE
@pytest.mark.parametrize("step", ["taken", *(["claimed", "published", "confirmed"] if IS_MATRIX else [])])
def test_a_redriver_that_slept_over_its_lease_sends_nothing_twice(together: Together, step: str) -> None:
    async def scenario() -> None:
        await together.stage.set_up(messages=MESSAGES)
        await together.run_all(together.job(Flow.COLLECT))
        job = together.job(Flow.REDRIVE, operation_id=await together.ask())
        await together.run_past_sleeper(job, step)
        sent = await together.sent()
        assert set(sent.values()) == {1}
        # What the sleeper had taken is in doubt: whether its copies arrived, nobody claims to know.
        statuses = (await together.stored())[1]
        assert set(statuses) <= {Status.RETRYING, Status.IN_DOUBT}
        assert statuses.total() == MESSAGES
        assert statuses[Status.RETRYING] <= len(sent)

    asyncio.run(scenario())


@ON_ONE_DATABASE
def test_two_auto_retriers_send_every_message_once(together: Together) -> None:
    async def scenario() -> None:
        await together.stage.set_up(messages=MESSAGES)
        await together.run_all(together.job(Flow.COLLECT))
        await together.set_rule()
        job = replace(together.job(Flow.AUTO_RETRY), rounds=10)
        await together.run_all(job, job)
        sent = await together.sent()
        assert (len(sent), set(sent.values())) == (MESSAGES, {1})
        assert (await together.stored())[1] == {Status.RETRYING: MESSAGES}

    asyncio.run(scenario())


def now_ms() -> int:
    """Of the wall clock, as the workers have it."""
    return round(time.time() * 1000)
