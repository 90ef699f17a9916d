"""Who is parked for crashes, and who is not: kills from outside, messages that kill, handlers that hold up the loop.

On classic queues, where the broker counts nothing. Every message is accounted for: handled, or parked with its reason.
"""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from rig.brokers import Vhost

from tests.live.client.accounts import drain, wait_ready
from tests.unit.runtime.programs import Program, declare_at, send, wait_for

pytestmark = pytest.mark.slow

CLASSIC = """
exchanges: {domain.events: topic}
queues: {orders: {type: classic, from: {domain.events: ["orders.#"]}, retry: {shape: per-queue, delays: [300ms]}}}
"""
APP = """
import asyncio, os, time
from redrive import App, Message

app = App("redrive.yaml")

@app.consumer("orders", prefetch=PREFETCH, concurrency=CONCURRENCY)
async def place(body: bytes, message: Message) -> None:
    os.write(1, f"begun {body.decode()}\\n".encode())
    if body.startswith(b"kill"):
        os.kill(os.getpid(), 9)
    if body.startswith(b"block"):
        time.sleep(6)
    await asyncio.sleep(0.02)
    os.write(1, f"done {body.decode()}\\n".encode())
"""


def prepare(folder: Path, url: str, *, prefetch: int, concurrency: int) -> str:
    (folder / "redrive.yaml").write_text(CLASSIC)
    (folder / "shop.py").write_text(APP.replace("PREFETCH", str(prefetch)).replace("CONCURRENCY", str(concurrency)))
    asyncio.run(declare_at(url, CLASSIC))
    from tests.unit.runtime.stage import compiled

    routes = compiled(CLASSIC).queue("orders").routes
    assert routes is not None
    return routes.parking.queue


def lines(output: str, word: str) -> Counter[str]:
    return Counter(line.split()[1] for line in output.splitlines() if line.startswith(f"{word} "))


def workers_of(program: Program) -> list[int]:
    pid = program.process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.live
@pytest.mark.parametrize("workers", [1, 2])
def test_kills_from_outside_park_nobody_however_often_they_had_it_in_hand(
    vhost: Vhost, tmp_path: Path, workers: int
) -> None:
    parking = prepare(tmp_path, vhost.amqp_url, prefetch=100, concurrency=2)
    names = [f"m{number}" for number in range(100)]
    send(vhost.amqp_url, "orders", [name.encode() for name in names])
    arguments = ("run", "shop:app", *(("--workers", str(workers)) if workers > 1 else ()))
    begun: Counter[str] = Counter()
    done: Counter[str] = Counter()

    def can_be_killed(output: str) -> bool:
        """A message begins, and none dies a third time in its handler: the third SIGKILL in an exclusive run parks it,
        since that may be the memory limit's, and after two deaths in hand, begun or not, every run is exclusive."""
        now = lines(output, "begun")
        deaths = begun + now
        deaths.subtract(done + lines(output, "done"))
        return bool(now) and max(deaths.values()) < 3

    def unhandled(output: str) -> set[str]:
        return set(names) - set(done) - set(lines(output, "done"))

    if workers == 1:
        for _ in range(7):
            with Program(tmp_path, *arguments, url=vhost.amqp_url) as program:
                wait_for(lambda one=program: can_be_killed(one.output), timeout_s=40)  # type: ignore[misc]
                program.process.kill()
                program.process.wait(10)
                begun += lines(program.output, "begun")
                done += lines(program.output, "done")
    with Program(tmp_path, *arguments, url=vhost.amqp_url) as program:
        if workers > 1:
            killed = 0
            for _ in range(7):
                program.wait_said("begun", times=program.output.count("begun") + 1, timeout_s=40)
                wait_for(lambda: can_be_killed(program.output), timeout_s=40)
                # One may be back while the other still waits for its restart: those that are there are killed.
                for pid in workers_of(program):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                program.wait_said('"signal":"SIGKILL"', times=killed)
            assert killed >= 7
        wait_for(
            lambda: not unhandled(program.output),
            timeout_s=120,
            why=lambda: f"never handled: {unhandled(program.output)}",
        )
        wait_ready(vhost.amqp_url, "orders", 0)
        assert program.end() == 0
    assert [held.body for held in drain(vhost.amqp_url, parking)] == []


@pytest.mark.live
def test_a_message_that_ends_its_process_by_sigkill_is_parked_after_three_runs_alone(
    vhost: Vhost, tmp_path: Path
) -> None:
    """As a memory limit does it: nobody can tell it from a kill that had nothing to do with the message."""
    parking = prepare(tmp_path, vhost.amqp_url, prefetch=10, concurrency=10)
    names = [f"m{number}" for number in range(8)]
    send(
        vhost.amqp_url,
        "orders",
        [*(name.encode() for name in names[:4]), b"kill", *(one.encode() for one in names[4:])],
    )
    with Program(tmp_path, "run", "shop:app", "--workers", "2", url=vhost.amqp_url) as program:
        program.wait_said('"reason":"crashes"', timeout_s=90)
        wait_for(lambda: set(lines(program.output, "done")) == set(names), timeout_s=60)
        wait_ready(vhost.amqp_url, "orders", 0)
        runs = lines(program.output, "begun")["kill"]
        assert program.end() == 0
    held = drain(vhost.amqp_url, parking)
    assert {one.body for one in held} == {b"kill"}
    # Two as a neighbour and three alone; a death in the middle of a replacement leaves two copies, each with its count.
    assert 5 <= runs <= 1 + 4 * len(held)


@pytest.mark.live
@pytest.mark.parametrize("workers", [1, 2])
def test_a_handler_that_holds_up_the_loop_past_the_heartbeat_is_parked_and_its_neighbours_are_not(
    vhost: Vhost, tmp_path: Path, workers: int
) -> None:
    parking = prepare(tmp_path, vhost.amqp_url, prefetch=20, concurrency=20)
    names = [f"m{number}" for number in range(10)]
    send(
        vhost.amqp_url, "orders", [*(one.encode() for one in names[:5]), b"block", *(one.encode() for one in names[5:])]
    )
    arguments = ("run", "shop:app", "--workers", str(workers), "--url", f"{vhost.amqp_url}?heartbeat=1")
    began_s = time.monotonic()
    with Program(tmp_path, *arguments, url=vhost.amqp_url) as program:
        program.wait_said('"reason":"crashes"', timeout_s=100)
        wait_for(lambda: set(lines(program.output, "done")) >= set(names), timeout_s=60)
        wait_ready(vhost.amqp_url, "orders", 0)
        runs = lines(program.output, "begun")["block"]
        blocked = [json.loads(line) for line in program.output.splitlines() if '"runtime.loop_blocked"' in line]
        assert program.end() == 0
    assert time.monotonic() - began_s < 120
    held = drain(vhost.amqp_url, parking)
    assert {one.body for one in held} == {b"block"}
    assert {one.properties.headers["x-redrive-reason"] for one in held} == {"crashes"}
    assert 3 <= runs <= 5
    assert any(one.get("messageId") == "block" and one.get("queue") == "orders" for one in blocked)
