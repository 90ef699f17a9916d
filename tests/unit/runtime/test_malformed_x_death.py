"""An x-death that no broker wrote: RabbitMQ 3.10 crashes on it when the message dies, so it never dies with it.

Whatever a stranger writes there, the message runs as often as its queue says and is parked, and no queue ever sees it
die with that header: neither by a reject of ours nor in a wait queue, and the parked copy can die too.
"""

from collections import Counter
from typing import Any

import pytest

from redrive import App, Park, wire
from redrive.core import has_odd_deaths
from redrive.embedded.engine import dead_letter_exchange as deadletters
from redrive.embedded.engine import x_death as deaths
from redrive.wire import LongString, Properties
from tests.unit.client.scenario import run_scenario
from tests.unit.runtime.odd_messages import ODD, death, messages
from tests.unit.runtime.shape_declarations import SHAPES
from tests.unit.runtime.stage import compiled, stage, until

FAIR: dict[str, Any] = {
    "empty": [],
    "a broker's": [death(), death(queue="p", original_expiration="5")],
    "no UTF-8": [death(queue=LongString(b"\xff"))],
}


@pytest.mark.parametrize("name", ODD)
def test_an_x_death_that_no_broker_writes_is_odd(name: str) -> None:
    assert has_odd_deaths(ODD[name])


@pytest.mark.parametrize("name", FAIR)
def test_an_x_death_that_a_broker_writes_is_not_odd(name: str) -> None:
    assert not has_odd_deaths(FAIR[name])
    assert not has_odd_deaths(None)


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
