"""The runtime and telemetry together: what is counted and whether it is ready, with an app at work."""

import asyncio
import io
import json
from collections.abc import Callable

from redrive import wire
from redrive.client import Client, Confirmed
from redrive.embedded import EmbeddedBroker
from redrive.runtime import App, AppRunOptions
from redrive.telemetry import Log, Telemetry
from redrive.topology import compile_declaration, read_declaration
from redrive.wiring import declare_missing, running
from tests.unit.telemetry.prometheus import samples

DECLARED = "queues: {orders: {retry: [30s]}}\n"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - conditions are of many kinds, and a deadline bounds the wait
            await asyncio.sleep(0.005)


def test_an_app_is_counted_logged_and_ready_through_a_lost_connection() -> None:
    compiled = compile_declaration(read_declaration(DECLARED, file="redrive.yaml"))
    app = App(compiled)

    @app.consumer("orders")
    async def place(body: bytes) -> None:
        if body == b"bad":
            raise ValueError("no such\norder")

    async def run() -> None:
        async with EmbeddedBroker("4.3", time="automatic") as broker:
            await declare_missing(compiled, lambda _: Client(broker.url))
            options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000), grace_s=5)
            assert telemetry.unready() == ["no consumer has started"]
            async with running(app, url=broker.url, observer=telemetry, options=options):
                assert telemetry.unready() == []
                async with Client(broker.url) as client:
                    publisher = await client.publisher()
                    for number, body in enumerate((b"good", b"good", b"bad")):
                        properties = wire.Properties.of(message_id=f"m-{number}", delivery_mode=2)
                        assert await publisher.publish("", "orders", body, properties) == Confirmed()
                await until(lambda: broker.depths()["orders.parked"] == 1 and telemetry.metrics.of("orders").parked)
                await until(lambda: sum(broker.depths().values()) == 1)  # or an ack on its way would be lost
                await broker.restart()
                await until(lambda: telemetry.unready() != [] or telemetry.metrics.reconnects)
                await until(lambda: telemetry.unready() == [] and telemetry.metrics.reconnects == 2)
            assert broker.depths() == {"orders": 0, "orders.wait.30s": 0, "orders.parked": 1}

    stream = io.StringIO()
    telemetry = Telemetry(Log(stream))
    asyncio.run(run())
    telemetry.close()
    seen = samples(telemetry)
    expected = {
        "redrive_deliveries_total|queue=orders": 4,
        "redrive_decisions_total|decision=ack|queue=orders": 2,
        "redrive_decisions_total|decision=retry|queue=orders": 1,
        "redrive_decisions_total|decision=park|queue=orders": 1,
        "redrive_parked_total|queue=orders|reason=attempts": 1,
        "redrive_publishes_total|outcome=confirmed|queue=orders": 2,
        "redrive_attempts_bucket|le=1|queue=orders": 2,
        "redrive_attempts_bucket|le=2|queue=orders": 3,
        "redrive_handler_seconds_count|queue=orders": 4,
        "redrive_consumer_restarts_total|queue=orders": 1,
        "redrive_in_hand|queue=orders": 0,
    }
    assert expected.items() <= seen.items(), {name: seen.get(name) for name in expected}
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [(line["decision"], line["attempt"], line["error"]) for line in lines if line["event"] == "runtime.decided"]
    assert told == [("retry", 1, "ValueError: no such\\norder"), ("park", 2, "ValueError: no such\\norder")]
    assert [line["event"] for line in lines].count("client.connection_lost") == 2


def test_a_success_counts_with_the_attempt_it_took() -> None:
    compiled = compile_declaration(read_declaration(DECLARED, file="redrive.yaml"))
    app = App(compiled)
    runs: list[bytes] = []

    @app.consumer("orders")
    async def place(body: bytes) -> None:
        runs.append(body)
        if runs.count(b"late") == 1:
            raise ValueError("not yet")

    async def run() -> None:
        async with EmbeddedBroker("4.3", time="automatic") as broker, Client(broker.url) as client:
            await declare_missing(compiled, lambda _: Client(broker.url))
            options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000), grace_s=5)
            async with running(app, url=broker.url, observer=telemetry, options=options):
                publisher = await client.publisher()
                assert (
                    await publisher.publish("", "orders", b"late", wire.Properties.of(delivery_mode=2)) == Confirmed()
                )
                await until(lambda: len(runs) == 2 and not sum(broker.depths().values()))

    telemetry = Telemetry(Log(io.StringIO()))
    asyncio.run(run())
    telemetry.close()
    seen = samples(telemetry)
    assert [seen[f"redrive_attempts_bucket|le={most}|queue=orders"] for most in (1, 2)] == [0, 1]
