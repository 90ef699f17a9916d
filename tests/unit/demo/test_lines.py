"""What the demo prints as it happens, and how it knows that every order has come to its end."""

import asyncio

import pytest

from redrive.demo.lines import RED, Lines
from redrive.demo.shop import CASES, open_shop

FINE = next(case for case in CASES if case.mood == "fine")
MALFORMED = next(case for case in CASES if case.mood == "malformed")


def lines_into(written: list[str], *, colour: bool = False) -> Lines:
    (routes,) = open_shop().compiled.retry_routes
    return Lines(routes, now_s=lambda: 7.0, write=written.append, colour=colour)


@pytest.mark.parametrize(("colour", "line"), [(False, "it broke"), (True, "\x1b[31mit broke\x1b[0m")])
def test_colour_is_only_for_those_who_look(colour: bool, line: str) -> None:
    written: list[str] = []
    lines = lines_into(written, colour=colour)
    lines.say("it broke", RED)
    lines.say("plain")
    assert written == [line, "plain"]


def test_it_ends_when_every_order_is_handled_or_parked_and_says_if_that_takes_too_long() -> None:
    async def scenario() -> None:
        lines = lines_into([])
        lines.note_sent("order-1", FINE)
        lines.note_sent("order-2", FINE)
        lines.note("runtime.decided", message_id="order-1", decision="ack", attempt=1, attempts_max=3)
        assert not await lines.wait_ended(0.001)
        waiting = asyncio.create_task(lines.wait_ended(10))
        lines.note("runtime.decided", message_id="order-2", decision="park", reason="attempts", attempt=3)
        assert await waiting

    asyncio.run(scenario())


def test_an_order_that_nobody_could_read_has_no_run() -> None:
    written: list[str] = []
    lines = lines_into(written)
    lines.note_sent("order-4", MALFORMED)
    lines.note(
        "runtime.decided", message_id="order-4", decision="park", reason="undecodable", attempt=1, error="no JSON"
    )
    assert written[-1].split(maxsplit=1)[1] == "order-4   no run      no JSON → parked in orders.parked (undecodable)"
    story = lines.stories["order-4"]
    assert (story.decision, story.reason, story.attempt) == ("park", "undecodable", 0)
