"""One cell played: set up, killed in its window, taken over by a fresh process, and where every message is then."""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redrive.records import (
    Filter,
    NewOperation,
    OperationKind,
    OperationState,
    RetryRule,
    Selection,
    Status,
    make_id,
)
from redrive.stores import Store, open_store
from tests.live.deadletters.kills.attackers import NARROW, NarrowOperator, forged_headers, forged_of_stored
from tests.live.deadletters.kills.cells import STEPS, Cell, Flow, Victim
from tests.live.deadletters.kills.crashes import BUSY_TIMEOUT_MS, LOCKED_S, Party, locked
from tests.live.deadletters.kills.ledger import Account, Row, account_resolved, account_sent, account_stored
from tests.live.deadletters.kills.stage import Stage, content_of, has_id
from tests.live.deadletters.kills.worker import LEASE_S, Job, work
from tests.live.worker_processes import make_pipe, said, start_worker, wait_exit

PATIENCE_S = 90.0
DAY_MS = 86_400_000
WHO = "matrix"
FORGED = 3
"""So many dead letters have forged headers from the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a cell is played: its broker, and the URL of an empty database of its own."""

    amqp_url: str
    database_url: str
    name: str


class Play:
    """One cell in one place."""

    def __init__(self, cell: Cell, place: Place, folder: Path, crash: Party | None) -> None:
        self._cell = cell
        self._place = place
        self._folder = folder
        self._crash = crash
        self._stage = Stage(url=place.amqp_url, name=place.name, queue_type=cell.queue_type, parks=cell.kills_broker)
        self._account = Account(cell=cell, published=0)
        self._narrow = NarrowOperator(
            amqp_url=place.amqp_url,
            database_url=place.database_url,
            main=self._stage.main,
            dlq=self._stage.dlq,
            seed=str(cell),
        )
        self._ahead_ms = round(LEASE_S * 1000) + 1_000
        if cell.victim is Victim.MACHINE:
            self._ahead_ms += 3_600_000

    async def play(self) -> Account:
        """The account of the cell."""
        flow = self._cell.flow
        forged = [forged_headers(self._stage.main, is_sent=flow is not Flow.COLLECT)] * FORGED
        if flow is Flow.COLLECT_TWINS:
            forged = []
        published = await self._stage.set_up(twins_only=flow is Flow.COLLECT_TWINS, forged=forged)
        self._account.forged = len(forged)
        match self._cell.flow:
            case Flow.COLLECT | Flow.COLLECT_TWINS:
                await self._kill_and_recover(self._job(Flow.COLLECT))
                await self._account_collected(published)
            case Flow.COLLECT_RETURNS:
                await self._run(self._job(Flow.COLLECT))
                await self._run(self._job(Flow.REDRIVE, operation_id=await self._ask(Selection(filter=Filter()))))
                await self._stage.kill_copies()
                published += await self._forge_of_stored()
                await self._kill_and_recover(self._job(Flow.COLLECT_RETURNS))
                await self._account_collected(published, returns=1)
            case Flow.REDRIVE:
                await self._run(self._job(Flow.COLLECT))
                operation_id = await self._ask(Selection(filter=Filter()))
                published += await self._forge_of_stored()
                await self._kill_and_recover(self._job(Flow.REDRIVE, operation_id=operation_id))
                await self._run(self._job(Flow.COLLECT))
                await self._account_redriven(published)
            case Flow.AUTO_RETRY:
                await self._run(self._job(Flow.COLLECT))
                await self._set_rule()
                published += await self._forge_of_stored()
                await self._kill_and_recover(self._job(Flow.AUTO_RETRY))
                await self._run(self._job(Flow.COLLECT))
                await self._account_redriven(published)
        self._account.published = published.total()
        await self._stage.tear_down()
        await self._narrow.tear_down()
        return self._account

    async def _forge_of_stored(self) -> Counter[str]:
        """Dead letters that name stored ones."""
        async with self._store() as store:
            letters = (await store.letters.page(Filter(), limit=200, now_ms=_now_ms())).letters
        async with self._stage.holding(self._stage.dlq) as copies:
            told = forged_of_stored(letters, copies, self._stage.main)
        self._account.forged += len(told)
        return await self._stage.forge("g", told)

    async def _kill_and_recover(self, job: Job) -> None:
        """A worker meets its fate; then a fresh one does what is left."""
        gates = [(self._cell.window, self._cell.turn)]
        if self._crash is not None and self._cell.is_within_batch:
            # Many cells wait for one kill, and what the broker was told last may be on its disk by then. So they wait
            # for each other at the beginning of their work, and go to their windows together.
            gates.insert(0, (STEPS[self._cell.flow][0], 1))
        before = {row.id: row.content for row in await self._rows()}
        async with self._store() as store:
            letters = (await store.letters.page(Filter(), limit=200, now_ms=_now_ms())).letters
            await self._narrow.set_up(store, letters, job.operation_id)
        attacking = asyncio.create_task(self._narrow.attack())
        try:
            self._account.reached = await self._kill(replace(job, gates=tuple(gates), busy_timeout_ms=BUSY_TIMEOUT_MS))
            if job.flow in (Flow.REDRIVE, Flow.AUTO_RETRY):
                # The database's clock says when the lease of the dead ends, and nobody can put that one forward.
                await asyncio.sleep(LEASE_S + 0.5)
            await self._run(replace(job, ahead_ms=self._ahead_ms))
            await asyncio.wait_for(attacking, PATIENCE_S)
        finally:
            attacking.cancel()
        await self._narrow.send()
        await self._account_attacks(before)

    async def _account_attacks(self, before: dict[str, str]) -> None:
        """Every stored letter is what it was, and nobody reached it from outside of their scope."""
        account, narrow = self._account, self._narrow
        after = {row.id: row.content for row in await self._rows()}
        account.displaced += [id for id, content in before.items() if after.get(id) != content]
        account.attacks += narrow.calls
        account.reached_by_attack += narrow.reached
        account.notes += narrow.notes
        async with self._store() as store:
            for id in after:
                deeds = [one.event for one in await store.letters.lifecycle(id) if one.who == NARROW]
                account.reached_by_attack += [f"{after[id]} was {deed}" for deed in deeds]
        for queue in (self._stage.main, self._stage.dlq):
            there = [content for content in await self._stage.contents(queue) if content.startswith(NARROW)]
            account.reached_by_attack += [f"{content} lies in {queue}" for content in there]

    async def _kill(self, job: Job) -> bool:
        """Whether the worker stood in its window when something was killed."""
        pipe, theirs = make_pipe()
        process = start_worker(work, job, theirs)
        theirs.close()
        try:
            reached = await _reached(process, pipe)
            if reached and len(job.gates) > 1:
                assert self._crash is not None
                await self._crash.meet()
                pipe.send("go on")
                reached = await _reached(process, pipe)
            elif reached and self._crash is not None:
                await self._crash.meet()
            if not reached:
                if self._crash is not None:
                    self._crash.leave()
                self._account.notes.append(
                    f"before its window the worker ended with {process.exitcode}: {said(self._folder)}"
                )
                return False
            await self._strike(process, pipe)
            code = await wait_exit(process, patience_s=PATIENCE_S)
            if self._cell.kills_process:
                return code == -9
            if code is None:
                self._account.notes.append("the survivor did not come to an end")
            elif code != 0:
                self._account.survivor = said(self._folder)
            return True
        finally:
            process.kill()
            pipe.close()

    async def _strike(self, process: Any, pipe: Any) -> None:
        def go_on() -> None:
            if self._cell.kills_process:
                process.kill()
            else:
                pipe.send("go on")

        if self._crash is not None:
            await self._crash.arrive(go_on)
        elif self._cell.victim is Victim.PROCESS:
            go_on()
        else:
            async with locked(Path(self._place.database_url.removeprefix("sqlite:///"))):
                go_on()
                await asyncio.sleep(LOCKED_S)

    async def _run(self, job: Job) -> None:
        """A job done by a worker nobody disturbs."""
        pipe, theirs = make_pipe()
        process = start_worker(work, job, theirs)
        theirs.close()
        code = await wait_exit(process, patience_s=PATIENCE_S)
        pipe.close()
        assert code == 0, f"{job.flow} of {self._cell} ended with {code}: {said(self._folder)}"

    async def _account_collected(self, published: Counter[str], *, returns: int = 0) -> None:
        rows = await self._rows()
        account_stored(self._account, published, rows, await self._stage.contents(self._stage.dlq))
        for row in rows:
            if row.is_copy and has_id(row.content):
                self._account.notes.append(f"{row.content} has an id and is there twice")
            expected = 0 if row.content.startswith("g") else returns
            if not row.is_copy and (row.status, row.returns) != (Status.PENDING, expected):
                self._account.notes.append(f"{row.content} is {row.status}, came back {row.returns} times")

    async def _account_redriven(self, published: Counter[str]) -> None:
        account = self._account
        async with self._store() as store:
            states = {one.state for one in (await store.operations.page(100))[0] if one.who != NARROW}
        if states != {OperationState.DONE}:
            account.notes.append(f"the operation is {', '.join(sorted(states))}")
        rows = await self._rows()
        account_stored(account, published, rows, [])
        copies = await self._stage.copies()
        account_sent(account, rows, copies)
        if account.lost or account.unmarked or account.notes:
            return
        await self._resolve_doubts(rows, arrived={copy.redriven_id for copy in copies})
        rows = await self._rows()
        account_resolved(account, rows, await self._stage.copies())
        if account.marked:
            await self._see_copies_marked(published)

    async def _resolve_doubts(self, rows: list[Row], *, arrived: set[str]) -> None:
        """Each doubt ends in one of three ways: sent again; said to have arrived; said not to have, and sent."""
        doubtful = [row.id for row in rows if row.status is Status.IN_DOUBT]
        again, told = doubtful[::2], doubtful[1::2]
        came, did_not = [id for id in told if id in arrived], [id for id in told if id not in arrived]
        unsent = [row.id for row in rows if row.status is Status.PENDING]
        async with self._store() as store:
            if came:
                await store.letters.resolve(Selection(ids=tuple(came)), who=WHO, why="it arrived", now_ms=_now_ms())
            if did_not:
                await store.letters.reopen(Selection(ids=tuple(did_not)), who=WHO, why="it did not", now_ms=_now_ms())
        if again or did_not or unsent:
            operation_id = await self._ask(Selection(ids=(*again, *did_not, *unsent)))
            await self._run(self._job(Flow.REDRIVE, operation_id=operation_id))

    async def _see_copies_marked(self, published: Counter[str]) -> None:
        """All copies die again: the second one of a message becomes a row that says whose copy it is."""
        count = await self._stage.kill_copies()
        await self._run(self._job(Flow.COLLECT_RETURNS))
        seen = Account(cell=self._cell, published=count)
        account_stored(seen, published, await self._rows(), [])
        if seen.lost or seen.unmarked or seen.marked != self._account.marked:
            told = f"lost {seen.lost}, unmarked {seen.unmarked}, {seen.marked} of {self._account.marked} marked"
            self._account.notes.append(f"after all copies died again: {told}")

    def _job(self, flow: Flow, *, operation_id: str = "") -> Job:
        return Job(
            flow=flow,
            amqp_url=self._place.amqp_url,
            database_url=self._place.database_url,
            dlq=self._stage.dlq,
            main=self._stage.main,
            queue_type=self._cell.queue_type,
            folder=self._folder,
            operation_id=operation_id,
        )

    async def _ask(self, selection: Selection) -> str:
        """A new operation's id."""
        asked = NewOperation(kind=OperationKind.REDRIVE, selection=selection, settle_s=DAY_MS / 1000, who=WHO)
        async with self._store() as store:
            made = await store.operations.create(asked, id=_new_id(), now_ms=_now_ms())
        return made.id

    async def _set_rule(self) -> None:
        queues = (self._stage.main, self._stage.dlq)
        rule = RetryRule(scope="*", first_ms=1, ceiling_ms=1, settle_ms=DAY_MS, queues=queues)
        async with self._store() as store:
            await store.rules.set(rule, now_ms=_now_ms())

    async def _rows(self) -> list[Row]:
        rows: list[Row] = []
        async with self._store() as store:
            page = await store.letters.page(Filter(), limit=200, now_ms=_now_ms())
            for letter in page.letters:
                if letter.dlq != self._stage.dlq:
                    continue
                content = await store.letters.content(letter.id)
                assert content is not None
                rows.append(
                    Row(
                        id=letter.id,
                        content=content_of(content.body),
                        status=letter.status,
                        redrives=letter.redrives,
                        returns=letter.returns,
                        is_copy=letter.copy_of is not None,
                    )
                )
        return rows

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[Store]:
        async with await open_store(self._place.database_url) as store:
            yield store


async def play(cell: Cell, place: Place, *, crash: Party | None = None) -> Account:
    """The account of a cell. `crash` kills what is shared; without one a process, or a SQLite file's peace."""
    with tempfile.TemporaryDirectory(prefix="redrive-kill-") as folder:
        return await asyncio.wait_for(Play(cell, place, Path(folder), crash).play(), 4 * PATIENCE_S)


async def _reached(process: Any, pipe: Any) -> bool:
    """Whether the worker came to its gate; it may end before."""
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    while not pipe.poll():
        if process.exitcode is not None or asyncio.get_running_loop().time() > deadline_s:
            return False
        await asyncio.sleep(0.01)
    try:
        pipe.recv()
    except EOFError:
        return False
    return True


def _now_ms() -> int:
    return round(time.time() * 1000)


def _new_id() -> str:
    return make_id(_now_ms(), random.getrandbits(64))
