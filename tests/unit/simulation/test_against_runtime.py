"""A simulation shows what the runtime does: an app on the embedded broker follows the same script."""

import asyncio
from typing import Any

import pytest

from redrive import App, Message, Park, RetryAfter, wire
from redrive.client import Client
from redrive.embedded import EmbeddedBroker
from redrive.runtime import AppRunOptions
from redrive.simulation.script import SimulatedFailure
from redrive.topology import Compiled
from redrive.wiring import declare_on, running
from tests.unit.simulation.timelines import QUEUES, cases, example, timeline_of

pytestmark = pytest.mark.slow

ID = "simulated"


class Busy(Exception):
    """An error with a status, as an HTTP client raises it."""

    status_code = 503


def behave(word: str) -> None:
    """What a handler does that follows a script."""
    match word:
        case "fail":
            raise SimulatedFailure("as the script says")
        case "503":
            raise Busy
        case "park":
            raise Park
        case "retry-after:2m":
            raise RetryAfter("2m")


async def perform(name: str, script: list[str], profile: str) -> tuple[int, list[str], dict[str, Any]]:
    """Handler runs, where the message is at the end, and its headers there."""
    loaded = example(name)
    assert isinstance(loaded.compiled, Compiled)
    app = App(loaded.compiled)
    runs = 0
    queue = QUEUES[name]
    done = asyncio.Event()

    @app.consumer(queue)
    async def handle(body: bytes, message: Message) -> None:
        nonlocal runs
        runs += 1
        behave(script[min(runs, len(script)) - 1])

    class Ends:
        def note(self, event: str, /, **fields: object) -> None:
            if event == "runtime.decided" and fields["decision"] in ("ack", "park"):
                done.set()

    async with EmbeddedBroker(profile, time="automatic") as broker:
        await declare_on(broker, loaded.topology)
        options = AppRunOptions(now_ms=lambda: round(broker.now_s * 1000))
        async with Client(broker.url) as client, running(app, url=broker.url, observer=Ends(), options=options):
            publisher = await client.publisher()
            properties = wire.Properties.of(message_id=ID, delivery_mode=2)
            await publisher.publish("", queue, b"{}", properties)
            await asyncio.wait_for(done.wait(), 30)
        places = [place.queue for place in broker.whereabouts(ID)]
        found: dict[str, Any] = {}
        if places:
            async with Client(broker.url) as client:
                got = await (await client.channel()).get_message(places[0], no_ack=True)
                assert got is not None
                found = dict(wire.Properties(got.header).headers)
        return runs, places, found


# These two hold a message themselves that asks for more time, which is real time then.
HOLDING = ("bookly", "native")
SCRIPTS = ("fail", "fail,503,retry-after:2m,fail", "503,ok")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "profile", "script"),
    [
        (name, profile, script)
        for name, profile in cases()
        for script in SCRIPTS
        if name not in HOLDING or "retry-after" not in script
    ],
)
def test_the_runtime_does_what_the_simulation_shows(name: str, profile: str, script: str) -> None:
    timeline = timeline_of(name, script, profile)
    runs, places, found = asyncio.run(perform(name, script.split(","), profile))
    assert (runs, places) == (timeline.runs, [] if timeline.final_queue is None else [timeline.final_queue])
    for header in ("x-retry-count", "x-final-error", "x-final-status-code", "x-redrive-reason", "x-original-queue"):
        wanted = timeline.headers.get(header) if timeline.final_queue is not None else None
        assert found.get(header) == wanted, header
    deaths = {(one["queue"], one["reason"], one["count"]) for one in found.get("x-death", ())}
    if timeline.final_queue is not None:
        assert deaths == {(one["queue"], one["reason"], one["count"]) for one in timeline.headers.get("x-death", ())}
