"""`redrive push` as a program: with the example's node service, its metrics, its log, and its end."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from redrive import wire
from redrive.cli import cli
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import InvalidPush
from redrive.topology import compile_declaration, read_declaration
from redrive.wiring import declare_missing

EXAMPLE = Path(__file__).parents[3] / "examples" / "push"
SECRET = "0123456789abcdef0123456789abcdef"


@asynccontextmanager
async def process(*argv: str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    one = await asyncio.create_subprocess_exec(
        *argv,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=EXAMPLE,
    )
    try:
        yield one
    finally:
        if one.returncode is None:
            one.kill()
        await one.communicate()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - another process is waited for, and a deadline bounds it
            await asyncio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_the_example_delivers_orders_to_a_node_service(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret.txt"
    secret_file.write_text(SECRET + "\n")

    async def run() -> None:
        text = (EXAMPLE / "redrive.yaml").read_text()
        async with EmbeddedBroker("4.3", time="real") as broker:
            compiled = compile_declaration(read_declaration(text, file="redrive.yaml"))
            await declare_missing(compiled, lambda _: Client(broker.url))
            await publish(broker, "good", b'{"sku": "A", "quantity": 1}')
            await publish(broker, "bad", b'{"sku": "A", "quantity": 0}')
            await publish(broker, "sold-out", b'{"sku": "SOLD-OUT", "quantity": 1}')
            async with process("node", "server.js", PORT="0", SECRET=SECRET) as node:
                assert node.stdout is not None
                url = (await asyncio.wait_for(node.stdout.readline(), 20)).decode().split()[-1]
                argv = ["push", "orders", "--to", url, "--url", broker.url, "--secret-file", str(secret_file)]
                async with process(sys.executable, "-m", "redrive", *argv, "--metrics-port", "0") as push:
                    # 60 s of Retry-After: the shortest wait that is long enough is the one of 5 minutes.
                    ends = {"orders.parked": 1, "orders.wait.5m": 1}
                    await until(lambda: {queue: count for queue, count in broker.depths().items() if count} == ends)
                    lines, told = await read_log(push)
                    metrics = await asyncio.to_thread(lambda: fetch(told["address"] + "/metrics"))
                    ready = await asyncio.to_thread(lambda: fetch(told["address"] + "/readyz"))
                    push.send_signal(signal.SIGTERM)
                    _, rest = await asyncio.wait_for(push.communicate(), 20)
                    assert push.returncode == 0, rest
            assert [place.queue for place in broker.whereabouts("bad")] == ["orders.parked"]
            assert [place.queue for place in broker.whereabouts("sold-out")] == ["orders.wait.5m"]
            assert broker.whereabouts("good") == []
        everything = "\n".join(lines) + rest.decode()
        assert SECRET not in everything
        decided = {line["messageId"]: line for line in parsed(lines) if line["event"] == "runtime.decided"}
        assert sorted(decided) == ["bad", "sold-out"], "a plain ack is no line"
        assert decided["bad"]["decision"] == "park"
        assert decided["bad"]["error"] == "BadAnswer: 422 Unprocessable Entity: quantity must be a whole number"
        assert (decided["sold-out"]["decision"], decided["sold-out"]["delay"]) == ("retry", 60_000)
        assert 'redrive_decisions_total{queue="orders",decision="ack"} 1\n' in metrics
        assert 'redrive_parked_total{queue="orders",reason="status"} 1\n' in metrics
        assert 'redrive_publishes_total{queue="orders",outcome="confirmed"} 2\n' in metrics
        assert ready == "ok\n"

    asyncio.run(run())


async def publish(broker: EmbeddedBroker, name: str, body: bytes) -> None:
    async with Client(broker.url) as client:
        publisher = await client.publisher()
        properties = wire.Properties.of(message_id=name, delivery_mode=2)
        assert await publisher.publish("shop.events", "orders.new", body, properties) == Confirmed()


async def read_log(push: asyncio.subprocess.Process) -> tuple[list[str], dict[str, Any]]:
    """The lines until both decisions are told, and the one that says where the metrics are."""
    assert push.stderr is not None
    lines: list[str] = []
    async with asyncio.timeout(20):
        while sum("runtime.decided" in line for line in lines) < 2:
            lines.append((await push.stderr.readline()).decode())
    return lines, next(line for line in parsed(lines) if line["event"] == "telemetry.serving")


def parsed(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.startswith("{")]


def fetch(url: str) -> str:
    with urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders"], "Missing option '--to'"),
        (["orders", "--to", "localhost:3000"], "write it like http://localhost:3000/orders"),
        (["orders", "--to", "http://h/", "--header", "nonsense"], "a header is given as NAME: VALUE"),
        (["orders", "--to", "http://h/", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
        (["orders", "--to", "http://h/", "--timeout", "5"], "--timeout: '5' "),
        (["orders", "--to", "http://h/", "--connect-timeout", "5"], "--connect-timeout: '5' "),
        (
            ["orders", "--to", "http://h/", "--connect-timeout", "0s"],
            "--connect-timeout: 0s leaves the service no time",
        ),
        (["orders", "--to", "http://h/", "--file", "missing.yaml"], "missing.yaml: there is no such file"),
        (
            ["orders", "--to", "http://h/", "--secret-file", "nofile"],
            "nofile: there is no such file; name the file that has the secret",
        ),
        (
            ["ordres", "--to", "http://h/", "--file", str(EXAMPLE / "redrive.yaml")],
            f"queue ordres is not declared in {EXAMPLE / 'redrive.yaml'}; did you mean `orders`?",
        ),
        (
            ["nope", "--to", "http://h/", "--file", str(EXAMPLE / "redrive.yaml")],
            "redrive.yaml; name the file that declares it with --file, or push it undeclared with --existing",
        ),
    ],
)
def test_what_can_not_be_done_is_said_before_anything_is_connected(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["push", *arguments])
    assert result.exit_code != 0
    assert said in (result.output if result.exception is None else f"{result.output}{result.exception}")


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("hunter2", "REDRIVE_PUSH_SECRET: the secret is shorter than 16 bytes"),
        ("", "REDRIVE_PUSH_SECRET is empty, and requests would go unsigned"),
    ],
)
def test_a_secret_that_can_not_be_used_is_refused_without_being_shown(secret: str, said: str) -> None:
    environment = {"REDRIVE_PUSH_SECRET": secret}
    result = CliRunner().invoke(cli, ["push", "orders", "--to", "http://h/"], env=environment)
    assert str(result.exception).startswith(said)
    assert "hunter2" not in f"{result.output}{result.exception}"


@pytest.mark.parametrize(
    ("text", "said"),
    [(" \n", "is empty, and requests would go unsigned"), ("hunter2", ": the secret is shorter than 16 bytes")],
)
def test_a_file_without_a_usable_secret_is_named(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    file.write_text(text)
    result = CliRunner().invoke(cli, ["push", "orders", "--to", "http://h/", "--secret-file", str(file)])
    assert isinstance(result.exception, InvalidPush)
    assert said in str(result.exception).removeprefix(str(file))
    assert str(result.exception).startswith(str(file))
    assert "hunter2" not in f"{result.output}{result.exception}"


@pytest.mark.parametrize("given", ["1", "0", "-1", "two", "", "2.5", "²"])
def test_a_crash_cap_is_a_number_from_2_on_or_none(given: str) -> None:
    result = CliRunner().invoke(cli, ["push", "orders", "--to", "http://localhost/", "--crashes-max", given])
    assert result.exit_code == 2
    assert f"--crashes-max: {given!r} is neither a number from 2 on nor none." in result.output
