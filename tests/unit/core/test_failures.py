"""Failures are bounded texts, whatever the error was."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import (
    Answered,
    Crashed,
    Failure,
    Outcome,
    Raised,
    Succeeded,
    TimedOut,
    Undecodable,
    describe_error,
    describe_outcome,
    shorten,
)
from redrive.core.failures import MESSAGE_BYTES_MAX, STACK_BYTES_MAX
from tests.unit.core.strategies import any_text, outcomes


@given(any_text, st.integers(0, 3_000))
def test_a_shortened_text_has_at_most_so_many_bytes_and_is_unicode(text: str, bytes_max: int) -> None:
    short = shorten(text, bytes_max)
    assert len(short.encode()) <= bytes_max
    if len(text.encode("utf-8", "replace")) <= bytes_max:
        assert short == text.encode("utf-8", "replace").decode()


def test_a_shortened_text_keeps_its_ends_and_says_what_is_missing() -> None:
    short = shorten("begin" + "x" * 10_000 + "end", 200)
    assert short.startswith("beginx")
    assert short.endswith("xend")
    assert "9,808 bytes left out" in short


class Unspeakable(Exception):
    """An error that can't be written."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_without_a_text_is_no_reason_to_fail() -> None:
    assert describe_error(Unspeakable()).text == "Unspeakable: (its text can't be made: RuntimeError)"


def test_a_deep_stack_and_a_long_message_are_cut() -> None:
    def dig(depth: int) -> None:
        if depth == 0:
            raise ValueError("m" * 1_000_000)
        dig(depth - 1)

    with pytest.raises(ValueError) as raised:
        dig(400)
    failure = describe_error(raised.value, status=503)
    assert len(failure.message.encode()) <= MESSAGE_BYTES_MAX
    assert len(failure.stack.encode()) <= STACK_BYTES_MAX
    assert "dig" in failure.stack
    assert failure.status == 503


@pytest.mark.parametrize(
    ("outcome", "failure"),
    [
        (Succeeded(), None),
        (Answered(status=204), None),
        (Raised(ValueError("no")), Failure(type="ValueError", message="no")),
        (Undecodable(ValueError("no JSON")), Failure(type="ValueError", message="no JSON")),
        (Answered(status=503, detail="busy"), Failure(type="HTTP 503", message="busy", status=503)),
        (Answered(status=404, error=KeyError("k")), Failure(type="KeyError", message="'k'", status=404)),
        (TimedOut(after_ms=1_500), Failure(type="TimeoutError", message="the handler did not end within 1.5 s")),
        (
            Crashed(deliveries=3),
            Failure(
                type="Crashed",
                message="its consumers died with it in hand, or took longer than the broker waits, 3 times",
            ),
        ),
    ],
)
def test_every_outcome_describes_what_failed(outcome: Outcome, failure: Failure | None) -> None:
    assert describe_outcome(outcome) == failure


@given(outcomes)
def test_every_outcome_can_be_described(outcome: Outcome) -> None:
    failure = describe_outcome(outcome)
    assert failure is None or failure.text


def fail(here: bool) -> None:
    if here:
        raise ValueError("again")
    raise ValueError("again")


def caught(here: bool) -> ValueError:
    try:
        fail(here)
    except ValueError as error:
        return error
    raise AssertionError


def test_errors_of_the_same_text_from_two_places_have_two_stacks_however_often_they_are_asked() -> None:
    first, second = [describe_error(caught(True)) for _ in range(3)], [describe_error(caught(False)) for _ in range(3)]
    assert len(set(first)) == len(set(second)) == 1
    assert first[0] != second[0]
    assert first[0].stack.count("    raise ValueError") == second[0].stack.count("    raise ValueError") == 1
    assert describe_error(caught(True), stack=False).stack == ""


def test_functions_that_read_alike_in_two_files_have_each_its_own_stack() -> None:
    for file in ("/srv/one/handlers.py", "/srv/other/handlers.py"):
        there: dict[str, Any] = {}
        exec(compile("def handle():\n    raise ValueError('no')\n", file, "exec"), there)
        with pytest.raises(ValueError) as raised:
            there["handle"]()
        assert f'File "{file}", line 2, in handle' in describe_error(raised.value).stack
