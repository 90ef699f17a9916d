"""An x-death that no broker wrote: RabbitMQ 3.10 crashes on it when the message dies, so it never dies with it.

Whatever a stranger writes there, the message runs as often as its queue says and is parked, and no queue ever sees it
die with that header: neither by a reject of ours nor in a wait queue, and the parked copy can die too.
"""

from collections import Counter
from typing import Any

import pytest

from redrive import App, Park, wire
from redrive.core import has_odd_deaths
from redrive.embedded.engine import dead_letters as deadletters
from redrive.embedded.engine import x_death as deaths
from redrive.wire import Int64, LongString, Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.stage import compiled, stage, until
from tests.unit.runtime.test_strangers import SHAPES


def death(**changes: Any) -> dict[str, Any]:
    """An entry as a broker writes it, but for `changes`; None takes one away."""
    made = {"count": Int64(1), "exchange": "e", "queue": "q", "reason": "expired", "routing-keys": ["k"], **changes}
    return {name.replace("_", "-"): value for name, value in made.items() if value is not None}


def deep(levels: int = 150) -> bytes:
    """A table within a table within …: the typed value's bytes, which brokers take and we do not read."""
    table = b""
    for _ in range(levels):
        table = b"\x01kF" + len(table).to_bytes(4, "big") + table
    return b"F" + len(table).to_bytes(4, "big") + table


def with_raw_header(properties: Properties, name: str, value: bytes) -> Properties:
    """The properties with a header of these bytes, type in front."""
    return properties.append_headers(bytes((len(name),)) + name.encode() + value)


ODD: dict[str, Any] = {
    "text in it": ["s"],
    "number in it": [5],
    "array in it": [[]],
    "nothing in it": [None],
    "text after a death": [death(), "s"],
    "text before a death": ["s", death()],
    "empty table": [{}],
    "count is text": [death(count="x")],
    "count is a flag": [death(count=True)],
    "count is a table": [death(count={"a": 1})],
    "count is a fraction": [death(count=1.5)],
    "no count": [death(count=None)],
    "no queue": [death(queue=None)],
    "queue is a number": [death(queue=5)],
    "queue is bytes": [death(queue=b"q")],
    "no reason": [death(reason=None)],
    "reason is a number": [death(reason=5)],
    "keys are text": [death(routing_keys="z")],
    "keys are numbers": [death(routing_keys=[5])],
    "exchange is a number": [death(exchange=5)],
    "second is odd": [death(), death(queue="p", count="x")],
    "no array": "hello",
    "a table": death(),
    "a number": 7,
}
FAIR: dict[str, Any] = {
    "empty": [],
    "a broker's": [death(), death(queue="p", original_expiration="5")],
    "no UTF-8": [death(queue=LongString(b"\xff"))],
}


@pytest.mark.parametrize("name", ODD)
def test_what_no_broker_writes_is_odd(name: str) -> None:
    assert has_odd_deaths(ODD[name])


@pytest.mark.parametrize("name", FAIR)
def test_what_a_broker_writes_is_not(name: str) -> None:
    assert not has_odd_deaths(FAIR[name])
    assert not has_odd_deaths(None)


def messages(queue: str) -> dict[str, Properties]:
    """One for each odd x-death, about this queue where it is about one."""
    made = {}
    for name, told in ODD.items():
        about = told
        if isinstance(told, list):
            about = [
                {**one, "queue": queue} if isinstance(one, dict) and one.get("queue") == "q" else one for one in told
            ]
        made[name] = Properties.of(delivery_mode=2, message_id=name, headers={"x-death": about, "mine": "kept"})
    plain = Properties.of(delivery_mode=2, message_id="too deep", headers={"mine": "kept"})
    made["too deep"] = with_raw_header(plain, "x-death", deep())
    plain = Properties.of(delivery_mode=2, message_id="as deep as can be", headers={"mine": "kept"})
    made["as deep as can be"] = with_raw_header(plain, "x-death", deep(98))
    return made


PARKED_BY_REJECT = [("tiered", "reject"), ("requeue", "reject")]


@pytest.mark.parametrize("way", ["exchange", "name"])
@pytest.mark.parametrize(("shape", "park"), [*((name, "publish") for name in SHAPES), *PARKED_BY_REJECT])
def test_no_message_dies_with_it_and_each_is_parked(
    shape: str, park: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, queue, exchange, key, runs_max = SHAPES[shape]
    text = text.replace("shape: tiered,", f"shape: tiered, park: {park},")
    text = text.replace("shape: requeue", f"shape: requeue, park: {park}")
    plan = compiled(text).queue(queue)
    parking = "d" if plan.routes is None else plan.routes.parking.queue
    died_with: list[Any] = []
    record_death = deaths.record_death

    def recording(message: Any, **about: Any) -> Any:
        told = Properties(message.header)
        if told.raw_header("x-death") is not None:
            died_with.append(told.header("x-death"))
        return record_death(message, **about)

    monkeypatch.setattr(deadletters, "record_death", recording)
    sent = messages(queue)
    runs: Counter[str] = Counter()

    async def scenario() -> None:
        async with stage(text, profile="4.3" if shape == "native" else "3.10") as on:
            app = App(compiled(text))

            @app.consumer(queue)
            async def handle(body: bytes) -> None:
                runs[body.decode()] += 1
                raise Park("no") if park == "reject" else ValueError("no")

            publisher = await on.client.publisher()
            for name, properties in sent.items():
                await publisher.publish(
                    *((exchange, key) if way == "exchange" else ("", queue)), name.encode(), properties
                )
            async with on.running(app):
                await until(lambda: on.broker.depths().get(parking) == len(sent))
            assert {name: count for name, count in on.broker.depths().items() if count} == {parking: len(sent)}
            for got in await on.take(parking):
                assert wire.odd_deaths(got.properties) is None
                assert got.properties.header("mine") == "kept"
                if shape != "none":
                    kept = got.properties.header("x-redrive-stripped")["x-death"]
                    before = sent[got.body.decode()]
                    assert kept in (before.header("x-death"), before.raw_header("x-death"))
            assert on.notes.count("runtime.failed") == 0

    run_scenario(scenario(), timeout_s=60)
    assert runs.keys() == sent.keys()
    # Believed where it came by the queue's own name and a reject is the retry; else it begins at 1.
    if park == "reject":
        assert set(runs.values()) == {1}
    elif shape == "none":
        assert set(runs.values()) == {2}
    elif way == "exchange":
        assert set(runs.values()) == {runs_max}
    assert [one for one in died_with if has_odd_deaths(one)] == []
