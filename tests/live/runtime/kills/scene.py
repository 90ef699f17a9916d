"""One cell played: a consumer killed in its place, another one after it, and where every message is then."""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redrive.client import Channel, Client, Confirmed
from redrive.deploy import apply, inspect
from redrive.topology import compile_declaration, read_declaration
from redrive.wire import Properties
from tests.live.runtime.kills.cells import Cell, declaration_of
from tests.live.runtime.kills.worker import consume
from tests.live.worker_processes import said, start_worker, wait_exit
from tests.unit.runtime.forged_headers import forged

PATIENCE_S = 60.0
LOOK_S = 0.1
QUIET_LOOKS, DOUBTFUL_LOOKS = 4, 80
BYSTANDERS = ("before", "after")
"""They come from a publisher that forges every header we read, and end like any other new message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where every message of a cell ended. `ends` counts, for each message, handled runs and parked copies."""

    cell: Cell
    ends: dict[str, int]
    parked: list[str]
    runs: Counter[str] = field(default_factory=Counter)
    left: dict[str, int] = field(default_factory=dict)
    killed: bool = False

    @property
    def lost(self) -> list[str]:
        return [one for one, count in self.ends.items() if count == 0]

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.ends.values() if count > 1)

    def problems(self) -> list[str]:
        """What breaks a promise; none, if the cell holds."""
        found = [f"{one} is lost" for one in self.lost]
        if not self.killed:
            found.append("the consumer was not killed: the place was never reached")
        for one, count in self.ends.items():
            due = self.cell.ends if one == "target" else 1
            if count > due:
                found.append(f"{one} ended {count} times, and may end {due} times")
            elif 0 < count < due:
                found.append(f"{one} ended {count} times, not {due}: the original was acked, or there was no copy yet")
        found += [f"{count} messages are left in {queue}" for queue, count in self.left.items() if count]
        due = self.cell.ends if self.cell.deed == "park" else 0
        if self.parked != ["target"] * due:
            found.append(f"{self.parked} are in the parking queue, not the target {due} times")
        return found


class Scene:
    """Plays cells on one broker; each has queues of its own, so several can play at once."""

    def __init__(self, url: str, *, at_once: int = 3) -> None:
        self._url = url
        self._places = asyncio.Semaphore(at_once)

    async def play(self, cell: Cell, name: str) -> Account:
        """The account of one cell."""
        async with self._places:
            with tempfile.TemporaryDirectory(prefix="redrive-kill-") as folder:
                return await asyncio.wait_for(self._play(cell, name, Path(folder)), PATIENCE_S * 2)

    async def _play(self, cell: Cell, name: str, folder: Path) -> Account:
        declaration = folder / "redrive.yaml"
        declaration.write_text(declaration_of(cell, name))
        compiled = compile_declaration(read_declaration(declaration.read_text(), file=str(declaration)))
        routes = compiled.queue(name).routes
        assert routes is not None
        waits = [wait.queue for wait in routes.waits]
        async with Client(self._url) as client:
            await apply(client, compiled.topology, await inspect(client, compiled.topology))
            publisher = await client.publisher()
            for message in (BYSTANDERS[0], "target", BYSTANDERS[1]):
                body = cell.deed if message == "target" else "ack"
                properties = Properties.of(
                    message_id=message,
                    delivery_mode=2 if cell.is_persistent else 1,
                    headers=None if message == "target" else forged(name),
                )
                outcome = await publisher.publish(f"{name}-events", f"{name}.placed", body.encode(), properties)
                assert isinstance(outcome, Confirmed), outcome
            killed = await self._run_until_killed(cell, declaration, name, folder)
            second = start(None, self._url, declaration, name, folder)
            channel = await client.channel()
            try:
                await self._wait_ended(cell, channel, name, folder, routes.parking.queue, waits)
            finally:
                second.terminate()
                code = await wait_exit(second, patience_s=PATIENCE_S)
            assert code == 0, f"the second consumer ended with {code}: {said(folder)}"
            left = {queue: await _ready(channel, queue) for queue in (name, *waits)}
            parked = await _take_all(channel, routes.parking.queue)
        ends = Counter(parked) + Counter(read_ledger(folder, "done"))
        return Account(
            cell=cell,
            ends={one: ends[one] for one in (*BYSTANDERS, "target")},
            parked=parked,
            runs=Counter(read_ledger(folder, "run")),
            left=left,
            killed=killed,
        )

    async def _run_until_killed(self, cell: Cell, declaration: Path, name: str, folder: Path) -> bool:
        first = start(cell, self._url, declaration, name, folder)
        code = await wait_exit(first, patience_s=PATIENCE_S)
        assert code in (-9, None), f"the first consumer ended with {code}: {said(folder)}"
        return code == -9

    async def _wait_ended(
        self, cell: Cell, channel: Channel, name: str, folder: Path, parking: str, waits: list[str]
    ) -> None:
        """Until no queue holds a copy to be handled for a while: for long where an end is missing, which may be in
        hand. If it does not come, the account says so."""
        quiet, due, is_all = 0, len(BYSTANDERS) + cell.ends, False
        while quiet < (QUIET_LOOKS if is_all else DOUBTFUL_LOOKS):
            ended = len(read_ledger(folder, "done")) + await _ready(channel, parking)
            ready = [await _ready(channel, queue) for queue in (name, *waits)]
            is_all = ended >= due
            quiet = 0 if any(ready) else quiet + 1
            await asyncio.sleep(LOOK_S)


def start(cell: Cell | None, url: str, declaration: Path, name: str, folder: Path) -> Any:
    """A consumer in a process of its own, to be killed as a cell says, or never."""
    return start_worker(consume, url, declaration, name, folder, cell)


def read_ledger(folder: Path, word: str) -> list[str]:
    """The messages a worker wrote a word about."""
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{word} ")]


async def _ready(channel: Channel, queue: str) -> int:
    return (await channel.declare_queue(queue, passive=True)).messages_ready


async def _take_all(channel: Channel, queue: str) -> list[str]:
    found = []
    while (message := await channel.get_message(queue, no_ack=True)) is not None:
        found.append(str(message.properties.message_id))
    return found
