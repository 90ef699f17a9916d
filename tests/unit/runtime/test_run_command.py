"""`redrive run` as a process: signals, workers, and messages that kill their process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.testing.plugin import ThreadedBroker
from tests.unit.runtime.programs import ROOT, Program, declare_at, depth, send, take, wait_for

pytestmark = pytest.mark.slow

YAML = """
queues:
  orders: {type: TYPE, retry: {shape: SHAPE, delays: [30s]}}
"""

APP = """
import asyncio, os, sys, time
from redrive import App, Message, Park

app = App("redrive.yaml")

def say(line):
    os.write(1, f"{line}\\n".encode())  # in one piece: two workers share the pipe

@app.consumer("orders", OPTIONS)
async def place(body: bytes, message: Message) -> None:
    say(f"begun {body.decode()} {message.attempt}")
    if body.startswith(b"kill"):
        os._exit(9)
    if body.startswith(b"slow"):
        await asyncio.sleep(float(body[4:]))
    if body.startswith(b"stuck"):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
    say(f"done {body.decode()}")
"""


def prepare(
    folder: Path, url: str, *, kind: str = "quorum", shape: str = "ladder", options: str = "prefetch=20"
) -> None:
    text = YAML.replace("TYPE", kind).replace("SHAPE", shape)
    if shape == "requeue":
        text = "exchanges: {shop: topic}\nqueues: {orders: {type: TYPE, from: {shop: ['#']}, retry: {shape: requeue}}}"
        text = text.replace("TYPE", kind)
    (folder / "redrive.yaml").write_text(text)
    (folder / "shop.py").write_text(APP.replace("OPTIONS", options))
    asyncio.run(declare_at(url, text))


@pytest.mark.rabbitmq(time="real")
def test_sigterm_lets_running_handlers_end_and_exits_with_0(broker: ThreadedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, broker.url, options="prefetch=2, concurrency=1")
    send(broker.url, "orders", [b"slow0.5", b"slow0.1", b"later"])
    with Program(tmp_path, "run", "shop:app", url=broker.url) as program:
        program.wait_said("begun slow0.5")
        assert program.end() == 0
        assert "done slow0.5" in program.output
        assert "done slow0.1" in program.output
    assert [body for body, _ in take(broker.url, "orders")] == [b"later"]


@pytest.mark.rabbitmq(time="real")
def test_a_message_whose_handler_does_not_end_within_the_grace_is_requeued(
    broker: ThreadedBroker, tmp_path: Path
) -> None:
    prepare(tmp_path, broker.url)
    send(broker.url, "orders", [b"slow30", b"quick"])
    with Program(tmp_path, "run", "shop:app", "--grace", "300ms", url=broker.url) as program:
        program.wait_said("done quick")
        assert program.end(timeout_s=10) == 0
        assert "done slow30" not in program.output
    assert [body for body, _ in take(broker.url, "orders")] == [b"slow30"]


@pytest.mark.rabbitmq(time="real")
def test_a_handler_that_can_not_be_ended_does_not_keep_the_process(broker: ThreadedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, broker.url)
    send(broker.url, "orders", [b"stuck"])
    with Program(tmp_path, "run", "shop:app", "--grace", "100ms", url=broker.url) as program:
        program.wait_said("begun stuck")
        assert program.end(timeout_s=15) == 0
    assert [body for body, _ in take(broker.url, "orders")] == [b"stuck"]


@pytest.mark.rabbitmq(time="real")
def test_a_second_signal_ends_it_at_once(broker: ThreadedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, broker.url)
    send(broker.url, "orders", [b"slow30"])
    with Program(tmp_path, "run", "shop:app", url=broker.url) as program:
        program.wait_said("begun slow30")
        program.process.send_signal(signal.SIGINT)
        program.wait_said("runtime.stopping")
        assert program.end(signal.SIGINT, timeout_s=10) == 0
    assert [body for body, _ in take(broker.url, "orders")] == [b"slow30"]


@pytest.mark.rabbitmq(time="real")
def test_workers_share_the_queue_and_end_together(broker: ThreadedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, broker.url, options="prefetch=1")
    bodies = [b"slow0.%02d" % number for number in range(1, 13)]
    with Program(tmp_path, "run", "shop:app", "--workers", "2", url=broker.url) as program:
        program.wait_said("runtime.started", times=2)
        send(broker.url, "orders", bodies)
        program.wait_said("done", times=12)
        assert program.end() == 0
        assert sorted(line for line in program.output.splitlines() if line.startswith("done")) == sorted(
            f"done {body.decode()}" for body in bodies
        )
    assert depth(broker.url, "orders") == 0


@pytest.mark.rabbitmq(time="real")
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc here")
def test_a_url_reaches_the_workers_and_not_their_command_lines(broker: ThreadedBroker, tmp_path: Path) -> None:
    (tmp_path / "redrive.yaml").write_text(YAML.replace("TYPE", "quorum").replace("SHAPE", "ladder"))
    inheriting = (
        APP.replace("OPTIONS", "") + "\nsay(f\"inherits {[key for key in os.environ if key.endswith('_URL')]}\")\n"
    )
    (tmp_path / "shop.py").write_text(inheriting)
    arguments = ("run", "shop:app", "--workers", "2", "--url", broker.url)
    with Program(tmp_path, *arguments, url="amqp://127.0.0.1:1/") as program:
        shown = broker.url.replace("guest:guest@", "").removesuffix("%2F")
        program.wait_said(f"redrive apply redrive.yaml --url {shown}", times=2)
        workers = [int(one) for one in children_of(program.process.pid)]
        assert len(workers) == 2
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in workers]
        assert all("redrive run shop:app" in line and "guest" not in line for line in lines)
        asyncio.run(declare_at(broker.url, (tmp_path / "redrive.yaml").read_text()))
        program.wait_said("runtime.started", times=2)
        assert program.output.count("inherits ['REDRIVE_URL']") == 3, "nothing a handler starts shall have it"
        assert program.end() == 0


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.mark.rabbitmq(time="real")
def test_workers_end_when_their_parent_is_killed(broker: ThreadedBroker, tmp_path: Path) -> None:
    prepare(tmp_path, broker.url)
    with Program(tmp_path, "run", "shop:app", "--workers", "2", url=broker.url) as program:
        program.wait_said("runtime.started", times=2)
        program.process.kill()
        program.process.wait(10)
        program.wait_said("runtime.stopped", times=2)


@pytest.mark.rabbitmq(time="real")
@pytest.mark.parametrize(("kind", "shape"), [("quorum", "ladder"), ("classic", "requeue")])
def test_a_message_that_kills_its_process_is_parked_after_three_tries_and_its_neighbours_are_not(
    broker: ThreadedBroker, tmp_path: Path, kind: str, shape: str
) -> None:
    check_killers(broker.url, tmp_path, kind=kind, shape=shape, killers=[b"kill-a"])


@pytest.mark.rabbitmq(time="real")
def test_two_killers_in_one_queue_are_both_parked_and_nobody_else(broker: ThreadedBroker, tmp_path: Path) -> None:
    check_killers(broker.url, tmp_path, kind="quorum", shape="ladder", killers=[b"kill-a", b"kill-b"])


def check_killers(url: str, folder: Path, *, kind: str, shape: str, killers: list[bytes]) -> None:
    prepare(folder, url, kind=kind, shape=shape)
    parking = "orders.parked" if shape == "ladder" else "orders.dlq"
    good = [b"good%d" % number for number in range(8)]
    send(url, "orders", [*good[:3], *killers[:1], *good[3:6], *killers[1:], *good[6:]])
    with Program(folder, "run", "shop:app", "--workers", "2", url=url) as program:
        wait_for(lambda: depth(url, parking) == len(killers), timeout_s=60, why=lambda: program.output)
        for body in good:
            program.wait_said(f"done {body.decode()}")
        assert program.end() == 0
        lines = [line.split() for line in program.output.splitlines() if line.startswith(("begun ", "done "))]
    begun = [line[1] for line in lines if line[0] == "begun"]
    tries = {name.decode(): begun.count(name.decode()) for name in killers}
    # The second of two may have died as the first one's neighbour before it had its own turn.
    assert tries == {"kill-a": 3} if len(killers) == 1 else max(tries.values()) <= 3
    assert {line[1] for line in lines if line[0] == "done"} == {body.decode() for body in good}
    parked = take(url, parking)
    assert sorted(body for body, _ in parked) == killers
    for _, headers in parked:
        assert headers["x-redrive-reason"] == "crashes"
        assert (
            headers["x-final-error"]
            == "Crashed: its consumers died with it in hand, or took longer than the broker waits, 3 times"
        )
        assert headers["x-original-queue"] == "orders"
    assert take(url, "orders") == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("shop", "error: 'shop' names no app; write module:app, for example shop.orders:app"),
        ("shop.py:app", "error: shop.py is a file, and a module is needed; write shop:app"),
        ("nowhere:app", "error: there is no module nowhere; run it from the folder that has it"),
        ("shop:ap", "error: module shop has no ap; did you mean `app`?"),
        ("shop:place", "error: shop:place is a function, not an App"),
        (
            "broken:app",
            "error: module broken can't be imported: ZeroDivisionError: division by zero (broken.py, line 1)",
        ),
        (
            "optional:app",
            "error: a consumer has no option park; did you mean `park_on`? (optional.py, line 2)",
        ),
        (
            "leaving:app",
            "error: module leaving can't be imported: it ends the process with sys.exit() (leaving.py, line 1)",
        ),
        (
            "unknown:app",
            "error: handler place: queue order: is not declared, so how it retries is not known; did you mean",
        ),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_app_that_can_not_be_run_is_refused_in_one_sentence(
    tmp_path: Path, name: str, sentence: str, workers: str
) -> None:
    (tmp_path / "redrive.yaml").write_text("queues: {orders: {retry: [30s]}}")
    (tmp_path / "shop.py").write_text(APP.replace("OPTIONS", ""))
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "optional.py").write_text('import redrive\nredrive.App().consumer("orders", park=[ValueError])')
    (tmp_path / "leaving.py").write_text("raise SystemExit")
    (tmp_path / "unknown.py").write_text(APP.replace("OPTIONS", "").replace('"orders"', '"order"'))
    result = subprocess.run(
        [sys.executable, "-m", "redrive", "run", name, "--workers", workers, "--url", "amqp://127.0.0.1:1/"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
    )
    assert result.returncode == 2
    assert result.stderr.startswith(sentence)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_broker_it_says_so_and_exits_with_2(tmp_path: Path, workers: str) -> None:
    (tmp_path / "redrive.yaml").write_text("queues: {orders: {retry: [30s]}}")
    (tmp_path / "shop.py").write_text(APP.replace("OPTIONS", ""))
    with Program(tmp_path, "run", "shop:app", "--workers", workers, url="amqp://127.0.0.1:1/") as program:
        assert program.process.wait(30) == 2
        assert "error: 127.0.0.1:1: " in program.output
        assert "Traceback" not in program.output


@pytest.mark.rabbitmq(time="real")
def test_it_waits_for_its_queues_or_declares_them_or_refuses(broker: ThreadedBroker, tmp_path: Path) -> None:
    (tmp_path / "redrive.yaml").write_text("queues: {orders: {retry: [30s]}}")
    (tmp_path / "shop.py").write_text(APP.replace("OPTIONS", ""))
    with Program(tmp_path, "run", "shop:app", "--no-wait", url=broker.url) as program:
        assert program.process.wait(20) == 2
        assert (
            "error: not declared on the broker: queue orders, queue orders.wait.30s, queue orders.parked; "
            "declare them with: redrive apply redrive.yaml" in program.output
        )
    with Program(tmp_path, "run", "shop:app", url=broker.url) as waiting:
        waiting.wait_said("runtime.waiting_for_topology")
        waiting.wait_said("redrive apply redrive.yaml")
        with Program(tmp_path, "run", "shop:app", "--apply", url=broker.url) as declaring:
            declaring.wait_said("runtime.started")
            waiting.wait_said("runtime.started")
            assert declaring.end() == 0
        send(broker.url, "orders", [b"hello"])
        waiting.wait_said("done hello")
        assert waiting.end() == 0


@pytest.mark.rabbitmq(time="real")
@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ("os._exit(2)", '"code":2,'),
        ("os.kill(os.getpid(), 9)", '"code":-9,"signal":"SIGKILL",'),
        ("os.abort()", '"code":-6,"signal":"SIGABRT",'),
    ],
)
def test_a_death_in_the_first_handler_call_ends_no_fleet_and_names_the_message(
    broker: ThreadedBroker, tmp_path: Path, ends: str, told: str
) -> None:
    (tmp_path / "redrive.yaml").write_text(YAML.replace("TYPE", "quorum").replace("SHAPE", "ladder"))
    (tmp_path / "shop.py").write_text(f"""
import os
from redrive import App
app = App("redrive.yaml")

@app.consumer("orders")
async def place(body: bytes) -> None:
    if body == b"deadly":
        {ends}
    os.write(1, b"done\\n")
""")
    asyncio.run(declare_at(broker.url, (tmp_path / "redrive.yaml").read_text()))
    send(broker.url, "orders", [b"deadly"])
    with Program(tmp_path, "run", "shop:app", "--workers", "3", url=broker.url) as program:
        program.wait_said('"runtime.worker_died"', times=2)
        send(broker.url, "orders", [b"good"])
        program.wait_said("done")
        died = [line for line in program.output.splitlines() if '"runtime.worker_died"' in line]
        assert program.end() == 0
    for line in died:
        assert told in line
        assert '"queue":"orders","messageId":"deadly",' in line
        assert '"inHand":1,"deliveryTag":' in line
        assert '"restartInMs":' in line
