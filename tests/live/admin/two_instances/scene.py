"""The scene: messages die at a steady pace, two instances collect them, operations send them back, one instance is
killed while it does both; then everything is sent that is left, and counted.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rig.serve_process import ROOT, Served, serving

from redrive.client import Client, Confirmed, Outgoing
from redrive.core import Failure, Parked, ParkReason, PlainMessage, Report, headers, parking_headers
from redrive.records import Filter, NameTerm, Status
from redrive.stores import Store, open_store
from redrive.wire import Properties
from tests.live.admin.two_instances.accounts import Account, Copy, Row, account
from tests.live.admin.two_instances.asking import Balanced

PUBLISHED_FOR = 0.8
"""Of the time of the load; so there is something to collect all the while."""
KILLED_AT = 0.5
OPERATION_EVERY_S = 3.0
LARGE = 2_000
PIECE = 50
ENDED = ("done", "cancelled")
END_S_MAX = 420.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How large it is."""

    messages: int = 50_000
    rate: int = 200
    seconds: int = 60
    queues: int = 8
    seed: int = 7

    @property
    def names(self) -> list[str]:
        """The queues that messages fail in."""
        return [f"shop.{number}" for number in range(self.queues)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """What the killed instance did at that moment."""

    at_s: float
    collected: int
    """Queues."""
    operation: str
    total: int
    sent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything there is to tell."""

    killed: Killed
    account: Account
    load: dict[str, Any]
    operations: list[dict[str, Any]]
    doubted: int
    """Dead letters that were in doubt after the kill, and were then sent again."""
    finished_s: float
    """From the beginning until all was collected and sent."""
    survivor_code: int
    """Of its process, told to stop in the end."""


def play(plan: Plan, *, amqp_url: str, management_url: str, database: str, folder: Path) -> Outcome:
    """All of it, on a broker and a database with nothing in them."""
    asyncio.run(_declare(amqp_url, plan))
    environment = {"REDRIVE_URL": amqp_url, "REDRIVE_MANAGEMENT_URL": management_url, "REDRIVE_DATABASE": database}
    with ExitStack() as stack:
        instances = [_start(stack, folder / name, environment) for name in ("first", "second")]
        token = next(one.token for one in instances if one.token is not None)
        scene = _Scene(plan, amqp_url, database, instances, token)
        return asyncio.run(scene.run())


def _start(stack: ExitStack, folder: Path, environment: Mapping[str, str]) -> Served:
    folder.mkdir()
    return stack.enter_context(serving(folder, environment, "--match", "shop.*.parked", "--log-level", "warning"))


class _Scene:
    def __init__(self, plan: Plan, amqp_url: str, database: str, instances: list[Served], token: str) -> None:
        self._plan = plan
        self._amqp_url = amqp_url
        self._database = database
        self._instances = instances
        self._token = token
        self._balanced = Balanced([one.address for one in instances], token)
        self._published: list[str] = []
        self._operations: list[str] = []
        self._began_s = time.monotonic()

    async def run(self) -> Outcome:
        async with await open_store(self._database) as store:
            await self._until("both instances work", self._both_work)
            self._began_s = time.monotonic()
            load = asyncio.create_task(self._load())
            publishing = asyncio.create_task(self._publish())
            operating = asyncio.create_task(self._operate())
            killed = await self._kill(store)
            told = await load
            await publishing
            operating.cancel()
            await asyncio.wait([operating])
            if not operating.cancelled():
                operating.result()  # it never ends by itself, but by a refusal
            await self._until("all is collected", self._all_collected)
            await self._send_rest("status:pending")
            doubted = await _ids(store, Status.IN_DOUBT)
            if doubted:
                await self._send_rest("status:in_doubt", include_in_doubt=True)
            finished_s = time.monotonic() - self._began_s
            operations = [(await self._get(f"/api/v1/redrives/{id}")) for id in self._operations]
            rows = await _rows(store)
        self._balanced.close()
        survivor = next(one for one in self._instances if one.process.poll() is None)
        code = await asyncio.to_thread(survivor.stop)
        left, copies = await self._drain()
        made = account(self._published, left, rows, copies, doubted=doubted)
        return Outcome(
            killed=killed,
            account=made,
            load=told,
            operations=operations,
            doubted=len(doubted),
            finished_s=round(finished_s, 1),
            survivor_code=code,
        )

    async def _load(self) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.live.admin.two_instances.load"),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        plan = asdict(self._plan) | {
            "addresses": [one.address for one in self._instances],
            "token": self._token,
            "queues": self._plan.names,
        }
        printed, _ = await process.communicate(json.dumps(plan).encode())
        told: dict[str, Any] = json.loads(printed)
        return told

    async def _publish(self) -> None:
        """Messages die at a steady pace, spread over the queues."""
        plan, names = self._plan, self._plan.names
        for_s = plan.seconds * PUBLISHED_FOR
        async with Client(self._amqp_url, name="the dying") as client:
            publisher = await client.publisher()
            for start in range(0, plan.messages, PIECE):
                due_s = self._began_s + for_s * start / plan.messages
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                numbers = range(start, min(start + PIECE, plan.messages))
                outcomes = await publisher.publish_many([_parked(one, names[one % len(names)]) for one in numbers])
                assert all(outcome == Confirmed() for outcome in outcomes), outcomes
                self._published += [_id(one) for one in numbers]

    async def _operate(self) -> None:
        """Sends back what is pending of one queue after another; the first queue is kept for the kill."""
        luck = random.Random(self._plan.seed)
        while True:
            await asyncio.sleep(OPERATION_EVERY_S)
            await self._redrive({"queue": luck.choice(self._plan.names[1:]), "q": "status:pending"})

    async def _redrive(self, asked: Mapping[str, Any], *, first: int | None = None) -> str:
        answered = await self._balanced.ask("POST", "/api/v1/redrives", {**asked, "why": "played"}, first=first)
        assert answered.status == 202, (answered.status, answered.body)
        id = str(answered.json["id"])
        self._operations.append(id)
        return id

    async def _kill(self, store: Store) -> Killed:
        """SIGKILL to an instance that collects and runs an operation."""
        await asyncio.sleep(max(0.0, self._began_s + self._plan.seconds * KILLED_AT - time.monotonic()))
        collected = await _held(store, "collect:")
        pid = max((one.process.pid for one in self._instances), key=lambda pid: collected.get(pid, 0))
        place = [one.process.pid for one in self._instances].index(pid)
        queue = self._plan.names[0]
        waiting = await store.letters.count(Filter((NameTerm(field="queue", values=(queue,)),)), now_ms=0)
        slowly = {} if waiting > LARGE else {"rate_per_s": max(10, waiting // 4)}
        until_s = time.monotonic() + 30
        id = await self._redrive({"queue": queue, **slowly}, first=place)
        while time.monotonic() < until_s:
            operation = await store.operations.get(id)
            assert operation is not None
            runs = await _held(store, f"operation:{id}")
            if pid in runs and 0 < operation.sent < operation.total:
                os.kill(pid, signal.SIGKILL)
                return Killed(
                    at_s=round(time.monotonic() - self._began_s, 1),
                    collected=collected.get(pid, 0),
                    operation=id,
                    total=operation.total,
                    sent=operation.sent,
                )
            if operation.state.value in ENDED or (runs and pid not in runs):
                # It was too fast, or the other one took it: another one then.
                id = await self._redrive({"q": "status:pending", "rate_per_s": 500}, first=place)
            await asyncio.sleep(0.01)
        raise AssertionError(f"{pid} was never seen to run an operation")

    async def _send_rest(self, q: str, **more: Any) -> None:
        """Until every operation has ended and nothing is left of the filter."""

        async def is_sent() -> bool:
            for id in self._operations:
                if (await self._get(f"/api/v1/redrives/{id}"))["state"] not in ENDED:
                    return False
            page = await self._get(f"/api/v1/messages?limit=1&q={q}")
            if page["messages"]:
                await self._redrive({"q": q, **more})
                return False
            return True

        await self._until(f"nothing is left of {q}", is_sent)

    async def _both_work(self) -> bool:
        return all(one.ask("/readyz", token=self._token).status == 200 for one in self._instances)

    async def _all_collected(self) -> bool:
        """All are stored, and nothing is in the dead-letter queues: what the killed instance had stored and not acked
        is there again, and the other one drops it as known once the lease has run out.
        """
        if (await self._get("/api/v1/stats"))["total"] < len(self._published):
            return False
        async with Client(self._amqp_url, name="the onlooker") as client:
            channel = await client.channel()
            parked = [f"{name}.parked" for name in self._plan.names]
            return not any([(await channel.declare_queue(one, passive=True)).messages_ready for one in parked])

    async def _get(self, path: str) -> Any:
        answered = await self._balanced.ask("GET", path)
        assert answered.status == 200, (path, answered.status, answered.body)
        return answered.json

    async def _until(self, what: str, is_so: Callable[[], Any]) -> None:
        until_s = time.monotonic() + END_S_MAX
        while not await is_so():
            assert time.monotonic() < until_s, f"it was never so that {what}"
            await asyncio.sleep(0.5)

    async def _drain(self) -> tuple[list[str], list[Copy]]:
        """What is in the dead-letter queues and in the targets: taken out, this is the end."""
        left, copies = [], []
        async with Client(self._amqp_url, name="the counter") as client:
            for name in self._plan.names:
                left += [str(one.message_id) for one in await _take_all(client, f"{name}.parked")]
                copies += [_copy(one) for one in await _take_all(client, name)]
        return left, copies


async def _declare(url: str, plan: Plan) -> None:
    async with Client(url) as client:
        channel = await client.channel()
        for name in plan.names:
            for queue in (name, f"{name}.parked"):
                await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})


async def _take_all(client: Client, queue: str) -> list[Properties]:
    """Everything in a queue nobody publishes to."""
    channel = await client.channel()
    count = (await channel.declare_queue(queue, passive=True)).messages_ready
    taken: list[Properties] = []
    deliveries = await client.deliveries(queue, prefetch=1_000)
    try:
        while True:
            try:
                # After the last one that was counted, a moment for one that was not.
                async with asyncio.timeout(60 if len(taken) < count else 0.2):
                    delivery = await anext(deliveries)
            except TimeoutError:
                break
            taken.append(delivery.properties)
            delivery.ack()
    finally:
        await deliveries.close()
    assert len(taken) == count, f"{len(taken)} messages came of {count} in {queue}"
    return taken


async def _held(store: Store, prefix: str) -> dict[int, int]:
    """How many leases that begin so each process holds, by its pid."""
    found: dict[int, int] = {}
    for lease in await store.leases.held():
        if lease.name.startswith(prefix):
            pid = int(lease.owner.split(":")[1])
            found[pid] = found.get(pid, 0) + 1
    return found


async def _ids(store: Store, status: Status) -> frozenset[str]:
    wanted = Filter((NameTerm(field="status", values=(status.value,)),))
    return frozenset([one.letter.id async for one in store.letters.stream(wanted, now_ms=0)])


async def _rows(store: Store) -> list[Row]:
    return [
        Row(
            id=one.letter.id,
            message_id=str(one.letter.message_id),
            status=one.letter.status,
            redrives=one.letter.redrives,
            is_copy=one.letter.copy_of is not None,
        )
        async for one in store.letters.stream(Filter(), now_ms=0)
    ]


def _copy(properties: Properties) -> Copy:
    return Copy(
        message_id=str(properties.message_id),
        redriven_id=str(properties.header(headers.REDRIVEN_ID)),
        is_possible_duplicate=properties.header(headers.POSSIBLE_DUPLICATE) is True,
    )


def _id(number: int) -> str:
    return f"order-{number:06d}"


def _parked(number: int, queue: str) -> Outgoing:
    """A message as the runtime parks it."""
    failure = Failure(
        type="shop.errors.GatewayTimeout" if number % 3 else "KeyError",
        message=f"no answer for order {number} in {number % 7} s",
        stack="",
        status=503,
    )
    letter = PlainMessage(queue=queue, exchange="orders", routing_key="order.created")
    report = Report(retries=3, now_ms=time.time_ns() // 1_000_000, failure=failure, history=())
    told = parking_headers(Parked(reason=ParkReason.ATTEMPTS), letter, report)
    properties = Properties.of(
        content_type="application/json",
        delivery_mode=2,
        message_id=_id(number),
        type="OrderCreated",
        app_id="shop",
        headers={"tenant": f"t{number % 50}", **told},
    )
    body = {"order": number, "customer": f"c{number % 5_000}", "note": "leave it at the door please" * 5}
    return Outgoing("", f"{queue}.parked", json.dumps(body).encode(), properties)
