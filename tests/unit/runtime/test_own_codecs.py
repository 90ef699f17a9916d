"""A codec of one's own, on an app and on a consumer: what handlers take, what is parked unread, what they publish."""

from dataclasses import dataclass
from typing import Any, get_origin

import msgspec
import pytest

from redrive import App, Message
from redrive.runtime import InvalidApp, UnsupportedType
from redrive.runtime.codecs import Reader
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until

TWO_QUEUES = """
queues:
  orders: {retry: [30s, 5m]}
  letters: {retry: [30s]}
  out: {retry: false}
"""


@dataclass
class Order:
    id: int
    note: str = ""


class MessagePack:
    """Packed bodies, typed by the handler's annotation."""

    content_type = "application/msgpack"

    def reader(self, body_type: Any) -> Reader:
        return msgspec.msgpack.Decoder(body_type).decode

    def write(self, value: Any) -> bytes:
        return msgspec.msgpack.encode(value)


class Lines:
    """`key=value` lines, into dicts and nothing else."""

    content_type = "text/x-lines"

    def reader(self, body_type: Any) -> Reader:
        if get_origin(body_type) is not dict:
            raise UnsupportedType(f"lines can't be read into {body_type.__qualname__}; take a dict")

        def read(body: bytes) -> dict[str, str]:
            return dict(line.split("=", 1) for line in body.decode().splitlines())

        return read

    def write(self, value: Any) -> bytes:
        return "\n".join(f"{key}={one}" for key, one in value.items()).encode()


def test_an_apps_codec_reads_typed_bodies_and_a_consumers_own_comes_before_it() -> None:
    seen: list[object] = []

    async def scenario() -> None:
        async with stage(TWO_QUEUES) as on:
            app = App(compiled(TWO_QUEUES), codec=MessagePack())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                seen.append(order)

            @app.consumer("letters", codec=Lines())
            async def post(letter: dict[str, str]) -> None:
                seen.append(letter)

            async with on.running(app):
                await on.publish("orders", msgspec.msgpack.encode({"id": 3, "note": "grün"}))
                await until(lambda: on.decisions()["ack"] == 1)
                await on.publish("letters", b"to=Ada\nfrom=Bob")
                await until(lambda: on.decisions()["ack"] == 2)
            assert sum(on.broker.depths().values()) == 0

    run_scenario(scenario())
    assert seen == [Order(3, "grün"), {"to": "Ada", "from": "Bob"}]


@pytest.mark.parametrize(
    ("queue", "body", "error"),
    [
        ("orders", b"\x81\xa2id", "DecodeError"),
        ("orders", b'{"id": 3}', "ValidationError"),
        ("orders", msgspec.msgpack.encode({"id": "3"}), "ValidationError"),
        ("letters", b"no equals sign", "ValueError"),
        ("letters", b"\xff=\xfe", "UnicodeDecodeError"),
    ],
)
def test_what_the_codec_can_not_read_is_parked_at_once_and_never_run(queue: str, body: bytes, error: str) -> None:
    runs: list[object] = []

    async def scenario() -> None:
        async with stage(TWO_QUEUES) as on:
            app = App(compiled(TWO_QUEUES), codec=MessagePack())

            @app.consumer("orders")
            async def place(order: Order) -> None:
                runs.append(order)

            @app.consumer("letters", codec=Lines())
            async def post(letter: dict[str, str]) -> None:
                runs.append(letter)

            async with on.running(app):
                name = await on.publish(queue, body, content_type="application/x-own")
                await until(lambda: on.decisions()["park"] == 1)
            assert on.decisions() == {"park": 1}
            assert on.places(name) == [f"ready in {queue}.parked"]
            (parked,) = await on.take(f"{queue}.parked")
            assert (parked.body, parked.properties.content_type) == (body, "application/x-own")
            found = parked.properties.headers
            assert found["x-redrive-reason"] == "undecodable"
            assert found["x-final-error"].startswith(f"{error}: ")
            assert found["x-final-retry-count"] == 0

    run_scenario(scenario())
    assert runs == []


@pytest.mark.parametrize(
    ("on_app", "on_consumer", "body", "content_type"),
    [
        (MessagePack(), None, msgspec.msgpack.encode({"id": 3}), "application/msgpack"),
        (MessagePack(), Lines(), b"id=3", "text/x-lines"),
    ],
    ids=["the-apps", "the-consumers"],
)
def test_what_a_handler_publishes_is_written_by_the_codec_it_is_read_with(
    on_app: Any, on_consumer: Any, body: bytes, content_type: str
) -> None:
    async def scenario() -> None:
        async with stage(TWO_QUEUES) as on:
            app = App(compiled(TWO_QUEUES), codec=on_app)

            @app.consumer("orders", codec=on_consumer)
            async def place(_body: bytes, message: Message) -> None:
                await message.publish("", "out", {"id": 3})
                await message.publish("", "out", b"raw")
                await message.publish("", "out", {"id": 3}, content_type="application/vnd.shop")

            async with on.running(app):
                await on.publish("orders", b"\xc1 no codec reads this")
                await until(lambda: on.decisions()["ack"] == 1)
            assert [(one.body, one.properties.content_type) for one in await on.take("out")] == [
                (body, content_type),
                (b"raw", "application/octet-stream"),
                (body, "application/vnd.shop"),
            ]

    run_scenario(scenario())


def test_bytes_and_text_reach_a_handler_without_the_codec() -> None:
    seen: list[object] = []

    async def scenario() -> None:
        async with stage(TWO_QUEUES) as on:
            app = App(compiled(TWO_QUEUES), codec=Lines())

            @app.consumer("orders")
            async def raw(body: bytes) -> None:
                seen.append(body)

            @app.consumer("letters")
            async def text(body: str) -> None:
                seen.append(body)

            async with on.running(app):
                await on.publish("orders", b"\xff")
                await until(lambda: on.decisions()["ack"] == 1)
                await on.publish("letters", "grün".encode())
                await until(lambda: on.decisions()["ack"] == 2)

    run_scenario(scenario())
    assert seen == [b"\xff", "grün"]


def test_a_type_the_codec_refuses_is_refused_before_anything_connects() -> None:
    app = App(compiled(TWO_QUEUES), codec=Lines())

    @app.consumer("orders")
    async def place(order: Order) -> None: ...

    with pytest.raises(InvalidApp, match="place of queue orders: lines can't be read into Order; take a dict"):
        app.consumptions(compiled(TWO_QUEUES))
