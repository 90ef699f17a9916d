"""What a handler publishes: confirmed, with its correlation and trace, or an error that fails the handler."""

from dataclasses import dataclass

import pytest

from redrive import App, Message, PublishFailed
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
    "baggage": "k=v",
}


@dataclass
class Placed:
    order: int


def test_a_handlers_message_carries_correlation_and_trace_and_the_codecs_body() -> None:
    async def scenario() -> None:
        async with stage() as on:
            channel = await on.client.channel()
            await channel.declare_queue("out")
            app = App(compiled())

            @app.consumer("orders")
            async def place(order: dict[str, int], message: Message) -> None:
                await message.publish("", "out", Placed(order["id"]), type="placed", headers={"mine": 1})
                given = await message.publish("", "out", b"raw", message_id="given", correlation_id="own")
                assert given == "given"

            async with on.running(app):
                await on.publish("orders", b'{"id": 3}', message_id="a", headers={**TRACE, "other": 1})
                await until(lambda: on.decisions()["ack"] == 1)
            typed, raw = await on.take("out")
            assert typed.body == b'{"order":3}'
            assert typed.properties.headers == {**TRACE, "mine": 1}
            assert typed.properties.correlation_id == "a"
            assert typed.properties.content_type == "application/json"
            assert typed.properties.type == "placed"
            assert typed.properties.delivery_mode == 2
            assert typed.properties.message_id
            assert typed.properties.timestamp is not None
            assert (raw.body, raw.properties.message_id, raw.properties.correlation_id) == (b"raw", "given", "own")
            assert raw.properties.content_type == "application/octet-stream"

    run_scenario(scenario())


def test_a_correlation_id_goes_on_to_what_follows() -> None:
    async def scenario() -> None:
        async with stage() as on:
            await (await on.client.channel()).declare_queue("out")
            app = App(compiled())

            @app.consumer("orders")
            async def place(body: bytes, message: Message) -> None:
                await message.publish("", "out", b"")

            async with on.running(app):
                await on.publish("orders", b"", message_id="a", correlation_id="flow")
                await until(lambda: on.decisions()["ack"] == 1)
            assert [got.properties.correlation_id for got in await on.take("out")] == ["flow"]

    run_scenario(scenario())


@pytest.mark.parametrize(
    ("exchange", "key", "why"),
    [
        ("", "nowhere", "no queue took it (312 NO_ROUTE)"),
        ("missing", "key", "404"),
        ("", "k" * 300, "300"),
    ],
)
def test_a_publish_that_is_not_confirmed_fails_the_handler_and_its_message_is_retried(
    exchange: str, key: str, why: str
) -> None:
    failures: list[PublishFailed] = []

    async def scenario() -> None:
        async with stage() as on:
            app = App(compiled())

            @app.consumer("orders", pause_after=None)
            async def place(body: bytes, message: Message) -> None:
                try:
                    await message.publish(exchange, key, b"x")
                except PublishFailed as error:
                    failures.append(error)
                    raise

            async with on.running(app):
                await on.publish("orders", b"", message_id="a")
                await until(lambda: on.places("a") == ["ready in orders.parked"])
            (parked,) = await on.take("orders.parked")
            assert parked.properties.headers["x-final-error"].startswith("PublishFailed: a message to exchange")

    run_scenario(scenario())
    assert len(failures) == 3
    assert why in failures[0].reason


def test_a_handler_in_a_thread_publishes_blocking() -> None:
    async def scenario() -> None:
        async with stage() as on:
            await (await on.client.channel()).declare_queue("out")
            app = App(compiled())

            @app.consumer("orders")
            def place(body: bytes, message: Message) -> None:
                message.publish_blocking("", "out", body, message_id="b")

            async with on.running(app):
                await on.publish("orders", b"from a thread", message_id="a")
                await until(lambda: on.decisions()["ack"] == 1)
            assert [got.body for got in await on.take("out")] == [b"from a thread"]

    run_scenario(scenario())
