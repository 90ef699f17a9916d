"""Our runtime with raw bodies: an app on shape `ladder`, or for W3 `quorum`, whose outcomes become acks, rejects and
parked copies.

The garbage collector is as `redrive run` has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.amqp.clients.contract import RETRIES, Case, Progress, run
from redrive.client import Client
from redrive.runtime import App, AppRunner, AppRunOptions
from redrive.topology import Compiled, compile_declaration, read_declaration
from redrive.wiring import rare_garbage_collection

_LOOK_S = 0.01


def compiled_for(case: Case) -> Compiled:
    """The case's queue with the names the harness gave the queues around it. Only W3's dead-letters anything."""
    if case.workload != "W3":
        return compile_declaration(read_declaration(f"queues:\n  {case.source}:\n    retry: [30s]\n"))
    text = (
        f"queues:\n  {case.source}:\n    retry: {{shape: quorum, delays: [1ms], attempts: 4,"
        " wait: '{queue}.wait', dlq: '{queue}.parked', dlq_exchange: '{queue}.parked'}\n"
    )
    return compile_declaration(read_declaration(text))


@asynccontextmanager
async def surroundings(case: Case) -> AsyncIterator[None]:
    """What the shape has beyond the harness's queues, there for the length of the case."""
    names = [f"{case.source}.wait.30s", f"{case.source}.parked"] if case.workload == "W2" else []
    async with Client(case.url) as client:
        channel = await client.channel()
        for name in names:
            await channel.declare_queue(name, arguments={"x-queue-type": "quorum"})
        exchange = f"{case.source}.parked"
        await channel.declare_exchange(exchange, "fanout")
        await channel.bind_queue(exchange, exchange)
        try:
            yield
        finally:
            await channel.delete_exchange(exchange)
            for name in names:
                await channel.delete_queue(name)


def runner_for(app: App, case: Case) -> AppRunner:
    """The app at work on the case's broker."""
    options = AppRunOptions(wait_for_topology=False)
    connect: Callable[[str], Client] = lambda name: Client(case.url, name=name)  # noqa: E731 - named for its type
    return AppRunner(app.consumptions(compiled_for(case)), connect, options=options)


async def idle(case: Case) -> float:
    """W0."""
    async with Client(case.url) as client, Client(case.url) as publishing:
        await client.channel()
        await publishing.channel()
    return 0.0


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    app = App(compiled_for(case))

    @app.consumer(case.source, prefetch=case.prefetch)
    async def handle(_body: bytes) -> None:
        progress.begin()
        progress.settle()

    with rare_garbage_collection():
        async with surroundings(case), runner_for(app, case):
            return await progress.wait_settled()


async def retry(case: Case) -> float:
    """W3. Done when all messages have run four times and none is unsettled (parked, confirmed, acked)."""
    progress = Progress(case)
    app = App(compiled_for(case))
    runs = 0

    @app.consumer(case.source, prefetch=case.prefetch, pause_after=None)
    async def handle(_body: bytes) -> None:
        nonlocal runs
        progress.begin()
        runs += 1
        raise RuntimeError("again")

    with rare_garbage_collection():
        async with surroundings(case), runner_for(app, case) as runner:
            while runs < case.messages * (RETRIES + 1) or runner.unsettled(case.source):  # noqa: ASYNC110 - a benchmark
                await asyncio.sleep(_LOOK_S)
            for _ in range(case.messages):
                progress.settle()
            return await progress.wait_settled()


if __name__ == "__main__":
    run("redrive", {"W0": idle, "W2": consume, "W3": retry})
