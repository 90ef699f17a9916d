"""Our runtime with typed bodies: JSON read into dataclasses before the handler sees it."""

from __future__ import annotations

from dataclasses import dataclass

from bench.amqp.clients.contract import Case, Progress, run
from bench.amqp.clients.runtime_client import compiled_for, idle, runner_for, surroundings
from redrive.runtime import App
from redrive.wiring import rare_garbage_collection


@dataclass(frozen=True)
class Item:
    """A line of an order."""

    sku: str
    count: int


@dataclass(frozen=True)
class Order:
    """What the bodies are."""

    order: int
    customer: str
    items: list[Item]
    note: str


async def consume(case: Case) -> float:
    """W2."""
    progress = Progress(case)
    app = App(compiled_for(case))

    @app.consumer(case.source, prefetch=case.prefetch)
    async def handle(order: Order) -> None:
        progress.begin()
        if order.order != 4711:
            progress.fail(f"read {order}")
        progress.settle()

    with rare_garbage_collection():
        async with surroundings(case), runner_for(app, case):
            return await progress.wait_settled()


if __name__ == "__main__":
    run("redrive", {"W0": idle, "W2": consume})
