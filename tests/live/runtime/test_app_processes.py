"""`redrive run` on real brokers: it stops in order, its workers are replaced, and messages that kill are found out."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from rig.brokers import Vhost

from tests.live.client.accounts import drain, wait_ready
from tests.unit.runtime.programs import Program, declare_at, send, wait_for
from tests.unit.runtime.stage import compiled

pytestmark = pytest.mark.slow

APP = """
import asyncio, os
from redrive import App, Message

app = App("redrive.yaml")

@app.consumer("orders", prefetch=10)
async def place(body: bytes, message: Message) -> None:
    os.write(1, f"begun {body.decode()} {os.getpid()}\\n".encode())
    if body.startswith(b"kill"):
        os._exit(9)
    if body.startswith(b"slow"):
        await asyncio.sleep(float(body[4:]))
    os.write(1, f"done {body.decode()}\\n".encode())
"""
CRASHES_MAX = 3
LADDER = "queues: {orders: {retry: [300ms, 600ms]}}"
CLASSIC = """
exchanges: {domain.events: topic}
queues: {orders: {type: classic, from: {domain.events: ["orders.#"]}, retry: {shape: per-queue, delays: [300ms]}}}
"""


def prepare(folder: Path, url: str, text: str) -> None:
    (folder / "redrive.yaml").write_text(text)
    (folder / "shop.py").write_text(APP)
    asyncio.run(declare_at(url, text))


@pytest.mark.live
def test_sigterm_ends_what_is_in_hand_gives_back_the_rest_and_exits_with_0(vhost: Vhost, tmp_path: Path) -> None:
    prepare(tmp_path, vhost.amqp_url, LADDER)
    bodies = [b"slow0.4", *(b"quick%d" % number for number in range(20)), b"slow60"]
    send(vhost.amqp_url, "orders", bodies)
    with Program(tmp_path, "run", "shop:app", "--grace", "2s", url=vhost.amqp_url) as program:
        program.wait_said("begun slow60")
        assert program.end() == 0
        done = [line.split()[1].encode() for line in program.output.splitlines() if line.startswith("done ")]
    assert sorted(done) == sorted(bodies[:-1])
    wait_ready(vhost.amqp_url, "orders", 1)
    assert [held.body for held in drain(vhost.amqp_url, "orders")] == [b"slow60"]


@pytest.mark.live
@pytest.mark.parametrize("text", [LADDER, CLASSIC], ids=["quorum", "classic"])
def test_a_message_that_kills_is_parked_after_three_deaths_and_its_neighbours_are_handled(
    vhost: Vhost, tmp_path: Path, text: str
) -> None:
    prepare(tmp_path, vhost.amqp_url, text)
    routes = compiled(text).queue("orders").routes
    assert routes is not None
    parking = routes.parking.queue
    good = [b"good%d" % number for number in range(6)]
    send(vhost.amqp_url, "orders", [*good[:3], b"kill", *good[3:]])
    with Program(tmp_path, "run", "shop:app", "--workers", "2", url=vhost.amqp_url) as program:
        program.wait_said('"reason":"crashes"', timeout_s=60)
        # A death in the middle of a replacement leaves two copies of a neighbour: they are handled too, a moment later.
        for _ in range(2):
            wait_ready(vhost.amqp_url, "orders", 0)
            time.sleep(1.5)
        assert program.end() == 0
        done = {line.split()[1].encode() for line in program.output.splitlines() if line.startswith("done ")}
        begun = [line.split()[1] for line in program.output.splitlines() if line.startswith("begun ")]
        deaths = program.output.count('"runtime.worker_died"')
    held = drain(vhost.amqp_url, parking)
    parked = [one for one in held if one.body == b"kill"]
    runs = begun.count("kill")
    # One copy and three runs, unless a death falls between a copy's confirm and the ack of what it replaces. Then there
    # are two, each with a count of its own: see redrive.runtime.exclusive_run for the bounds. Every doubling takes a
    # death.
    assert runs == deaths
    assert 1 <= len(parked) <= runs
    assert CRASHES_MAX <= runs <= 1 + (CRASHES_MAX - 1) * len(parked)
    # A second copy that kills counts less than the neighbours of the first and is not alone with them in hand.
    innocent = {one.body for one in held} - {b"kill"}
    assert done | innocent == set(good)
    assert not innocent or runs > CRASHES_MAX
    told = [one.properties.headers for one in parked]
    assert {one["x-redrive-reason"] for one in told} == {"crashes"}
    assert {one["x-final-error"] for one in told} == {
        f"Crashed: its consumers died with it in hand, or took longer than the broker waits, {CRASHES_MAX} times"
    }
    wait_ready(vhost.amqp_url, "orders", 0)


@pytest.mark.live(versions=("4.3",), matrix=("3.10", "4.0"))
def test_a_worker_that_is_killed_is_replaced_and_what_it_had_is_handled_by_another(
    vhost: Vhost, tmp_path: Path
) -> None:
    prepare(tmp_path, vhost.amqp_url, LADDER)
    with Program(tmp_path, "run", "shop:app", "--workers", "2", url=vhost.amqp_url) as program:
        program.wait_said("runtime.started", times=2)
        send(vhost.amqp_url, "orders", [b"slow3"])
        program.wait_said("begun slow3")
        victim = next(line.split()[2] for line in program.output.splitlines() if line.startswith("begun slow3"))
        os.kill(int(victim), signal.SIGKILL)
        program.wait_said("runtime.worker_died")
        program.wait_said("runtime.started", times=3)
        program.wait_said("done slow3")
        wait_for(lambda: '"runtime.worker_started"' in program.output)
        assert program.end() == 0
    wait_ready(vhost.amqp_url, "orders", 0)
