"""What a push costs beside a plain loop on the same HTTP library, and what the HTTP libraries cost by themselves.

`python -m bench.push` prints the tables and keeps the raw numbers in bench/results/push.json. RabbitMQ is a node of the
tests' rig, the service a process that answers 204 and does nothing else; every case runs in a process of its own, whose
CPU is what is told. httpx is measured if it is installed.

    loop    consume, POST with aiohttp, ack: what anybody would write in thirty lines; no retries, no parking
    push    `redrive push`: headers, signature, decisions, metrics
"""

import asyncio
import datetime
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "push.json"
MESSAGES = 5_000
REQUESTS = {"aiohttp": 3_000, "httpx": 500}
ROUNDS = 5
CONCURRENCY = 50
BODY = b'{"order": 12345, "lines": [' + b",".join(b'{"sku": "A-%d", "quantity": 1}' % line for line in range(6)) + b"]}"
HEADERS = {"content-type": "application/json", "x-redrive-message-id": "0123456789", "x-redrive-attempt": "1"}
DECLARED = "queues: {orders: {retry: [30s, 5m]}}\n"
VERSION = "4.3"
TITLES = {
    "aiohttp": "a POST with aiohttp",
    "httpx": "a POST with httpx",
    "loop": "a plain loop: consume, POST with aiohttp, ack",
    "push": "`redrive push`",
}


class Answering(asyncio.Protocol):
    """The cheapest HTTP service there is: every POST is answered with 204."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """One more client."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._unread = b""

    def data_received(self, data: bytes) -> None:
        """Answers every request that is complete."""
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n")) >= 0:
            head = self._unread[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0)
            if len(self._unread) < end + 4 + length:
                return
            self._unread = self._unread[end + 4 + length :]
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def serve() -> None:
    """The service, until it is killed."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def measure_library(library: str, hook: str, concurrency: int) -> dict[str, float]:
    """POSTs in a loop, after a warm-up of the same length."""
    count = REQUESTS[library]
    if library == "aiohttp":
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=concurrency)) as session:

            async def post() -> None:
                async with session.post(hook, data=BODY, headers=HEADERS) as response:
                    await response.read()

            await repeat(post, count, concurrency)
            return await timed(lambda: repeat(post, count, concurrency), count)
    import httpx

    limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    async with httpx.AsyncClient(limits=limits) as client:

        async def post_httpx() -> None:
            await client.post(hook, content=BODY, headers=HEADERS)

        await repeat(post_httpx, count, concurrency)
        return await timed(lambda: repeat(post_httpx, count, concurrency), count)


async def repeat(post: Callable[[], Awaitable[None]], count: int, concurrency: int) -> None:
    """So many posts, so many at once."""
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await post()

    await asyncio.gather(*(work() for _ in range(concurrency)))


async def timed(run: Callable[[], Awaitable[None]], count: int) -> dict[str, float]:
    """Seconds of CPU and of time for something, by how many it was."""
    cpu, wall = time.process_time(), time.perf_counter()
    await run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu_us": cpu / count * 1e6, "per_s": count / wall}


async def measure_loop(url: str, hook: str) -> dict[str, float]:
    """The plain loop over a full queue."""
    import aiohttp

    from redrive.client import Client, Delivery

    done = asyncio.Event()
    handled = 0
    async with (
        Client(url) as client,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session,
    ):

        async def handle(delivery: Delivery) -> None:
            nonlocal handled
            headers = {
                "content-type": delivery.properties.content_type or "",
                "x-message-id": delivery.properties.message_id or "",
            }
            async with session.post(hook, data=delivery.body, headers=headers) as response:
                await response.read()
                if response.status < 300:
                    delivery.ack()
                else:
                    delivery.nack(requeue=True)
            handled += 1
            if handled == MESSAGES:
                done.set()

        async def run() -> None:
            await client.consume("orders", handle, prefetch=CONCURRENCY)
            await done.wait()

        return await timed(run, MESSAGES)


async def measure_push(url: str, hook: str, file: str) -> dict[str, float]:
    """The same with `redrive push`'s parts: signed, with metrics and a log."""
    from redrive.runtime import Pusher, PushTarget
    from redrive.telemetry import Log, Telemetry
    from redrive.wiring import PushedQueue, prepare_app, push_app, start_app

    telemetry = Telemetry(Log(sys.stderr))
    target = PushTarget(url=hook, concurrency=CONCURRENCY, secrets=(b"0123456789abcdef0123456789abcdef",))
    async with Pusher(target) as pusher:
        prepared = prepare_app(push_app(pusher, PushedQueue(name="orders", file=file)), url=url)

        async def run() -> None:
            runner = await start_app(prepared, observer=telemetry)
            account = telemetry.metrics.of("orders")
            while account.first_acks < MESSAGES:  # noqa: ASYNC110 - nobody is told of a plain ack
                await asyncio.sleep(0.02)
            stops.append(runner)

        stops: list[Any] = []
        measured = await timed(run, MESSAGES)
        await stops[0].stop()
        return measured


async def fill(url: str) -> None:
    """The queue, full again."""
    from redrive import wire
    from redrive.client import Client, Confirmed

    async with Client(url) as client:
        publisher = await client.publisher()
        for first in range(0, MESSAGES, 500):
            outcomes = await asyncio.gather(
                *(
                    publisher.publish(
                        "",
                        "orders",
                        BODY,
                        wire.Properties.of(message_id=f"m{number}", delivery_mode=2, content_type="application/json"),
                    )
                    for number in range(first, first + 500)
                )
            )
            assert set(outcomes) == {Confirmed()}


@contextmanager
def service() -> Iterator[str]:
    """The service as a process; its address."""
    process = subprocess.Popen([sys.executable, "-m", "bench.push", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/hook"
    finally:
        process.kill()
        process.wait()


def in_process(*arguments: str) -> dict[str, float]:
    """One case in a process of its own."""
    output = subprocess.run(
        [sys.executable, "-m", "bench.push", *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    measured = json.loads(output.stdout)
    assert isinstance(measured, dict)
    return measured


def main() -> None:
    """All cases in turn, five rounds; the tables; the raw numbers."""
    from rig.node import Node
    from rig.process_group import ProcessGroup
    from rig.versions import cache_folder, choose_installations, find_installations, installation_for

    from redrive.client import Client
    from redrive.topology import compile_declaration, read_declaration
    from redrive.wiring import declare_missing

    libraries = [name for name in REQUESTS if importlib.util.find_spec(name) is not None]
    cases: list[dict[str, Any]] = []
    with service() as hook:
        for round_number in range(ROUNDS):
            for library in libraries:
                for concurrency in (1, CONCURRENCY):
                    measured = in_process("library", library, hook, str(concurrency))
                    cases.append({"case": library, "concurrency": concurrency, "round": round_number, **measured})
        installation = installation_for(VERSION, choose_installations(find_installations(cache_folder())))
        if installation is None:
            raise SystemExit(f"RabbitMQ {VERSION} is not here: run `python -m rig build {VERSION}` first")
        with ProcessGroup() as run, tempfile.TemporaryDirectory() as folder:
            node = Node(run, installation)
            node.start()
            file = Path(folder) / "redrive.yaml"
            file.write_text(DECLARED)
            compiled = compile_declaration(read_declaration(DECLARED, file=str(file)))
            asyncio.run(declare_missing(compiled, lambda _: Client(node.amqp_url())))
            for round_number in range(ROUNDS):
                for case, more in (("loop", []), ("push", [str(file)])):
                    asyncio.run(fill(node.amqp_url()))
                    measured = in_process(case, node.amqp_url(), hook, *more)
                    cases.append({"case": case, "concurrency": CONCURRENCY, "round": round_number, **measured})
            version = node.version
    setting = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "rabbitmq": version,
        "body_bytes": len(BODY),
        "messages": MESSAGES,
        "libraries": {name: importlib.import_module(name).__version__ for name in libraries},
    }
    result = {"setting": setting, "cases": cases}
    print(render(result))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    RESULTS.with_suffix(".md").write_text(render(result), encoding="utf-8")


def render(result: dict[str, Any]) -> str:
    """Markdown: medians of the rounds, and push as a part of the loop, round by round."""
    setting, cases = result["setting"], result["cases"]
    libraries = ", ".join(f"{name} {version}" for name, version in setting["libraries"].items())
    lines = [
        f"{setting['date']}, {ROUNDS} rounds, {setting['messages']:,} messages of {setting['body_bytes']} bytes. "
        f"RabbitMQ {setting['rabbitmq']}, Python {setting['python']}, {libraries}.",
        "",
        "| | at once | µs of CPU | spread | per second | spread |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for case, concurrency in dict.fromkeys((one["case"], one["concurrency"]) for one in cases):
        cells = [TITLES[case], str(concurrency)]
        for key in ("cpu_us", "per_s"):
            values = [one[key] for one in cases if (one["case"], one["concurrency"]) == (case, concurrency)]
            cells += [f"{statistics.median(values):,.0f}", f"{min(values):,.0f}–{max(values):,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    rate, cpu = (
        statistics.median(
            push[key] / loop[key] for push, loop in zip(of(cases, "push"), of(cases, "loop"), strict=True)
        )
        for key in ("per_s", "cpu_us")
    )
    return (
        "\n".join([*lines, "", f"`redrive push` beside the plain loop: {rate:.2f} of its rate, {cpu:.2f} of its CPU."])
        + "\n"
    )


def of(cases: list[dict[str, Any]], case: str) -> list[dict[str, Any]]:
    """The rounds of one case, in their order."""
    return [one for one in cases if one["case"] == case]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            asyncio.run(serve())
        case ["library", name, hook_url, at_once]:
            print(json.dumps(asyncio.run(measure_library(name, hook_url, int(at_once)))))
        case ["loop", broker_url, hook_url]:
            print(json.dumps(asyncio.run(measure_loop(broker_url, hook_url))))
        case ["push", broker_url, hook_url, declared]:
            print(json.dumps(asyncio.run(measure_push(broker_url, hook_url, declared))))
        case _:
            main()
