"""Scripts: every word, its mistakes, and what each does on the ladder."""

import pytest

from redrive.core import Answered, Raised, Requeue, RetryAfter
from redrive.simulation import EndState, InvalidScript, parse_script
from tests.unit.simulation.timelines import timeline_of


def decisions(script: str, example: str = "ladder") -> list[tuple[int | None, str | None]]:
    """Attempt and decision of every delivery."""
    return [(one.attempt, one.decision) for one in timeline_of(example, script, "4.3").events if one.kind == "run"]


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("ok", [(1, "ack")]),
        ("fail,ok", [(1, "retry"), (2, "ack")]),
        ("timeout,ok", [(1, "retry"), (2, "ack")]),
        ("undecodable", [(None, "park")]),
        ("404", [(1, "park")]),
        ("204", [(1, "ack")]),
        ("429:10m,ok", [(1, "retry"), (2, "ack")]),
        ("425,ok", [(1, "requeue"), (1, "ack")]),
        ("requeue:3s,ok", [(1, "requeue"), (1, "ack")]),
        ("park", [(1, "park")]),
        ("crash,ok", [(1, "crash"), (None, "recount"), (1, "ack")]),
        ("reject", [(1, "reject")]),
        ("nack,ok", [(1, "requeue"), (None, "recount"), (1, "ack")]),
        ("return,ok", [(1, "requeue"), (None, "recount"), (1, "ack")]),
    ],
)
def test_a_word_is_decided_as_the_runtime_does(script: str, wanted: list[tuple[int | None, str]]) -> None:
    assert decisions(script) == wanted


@pytest.mark.parametrize(
    ("script", "at_ms"),
    [
        ("retry-after:2m,ok", 120_000),  # in the 5 m wait, with a shorter expiration
        ("429:10m,ok", 600_000),
        ("retry-after:2h,ok", 7_200_000),  # above the top delay: it waits there again, not run, not counted
        ("503:1s,ok", 30_000),  # the backoff is longer than Retry-After
    ],
)
def test_a_delay_that_was_asked_for_is_kept_to_the_millisecond(script: str, at_ms: int) -> None:
    timeline = timeline_of("ladder", script, "4.3")
    assert (timeline.end_state, timeline.at_ms, timeline.runs) == (EndState.HANDLED, at_ms, 2)


def test_the_last_word_repeats_and_a_star_repeats_any() -> None:
    script = parse_script("fail*2, 503:30s ,ok")
    assert [script.step(run).word for run in (1, 2, 3, 4, 99)] == ["fail", "fail", "503:30s", "ok", "ok"]
    assert script.text == "fail*2, 503:30s, ok"


def test_words_with_a_duration_carry_it() -> None:
    after, answered, requeued = (one.does for one in parse_script("retry-after:1m30s,503:5s,requeue:2s").steps)
    assert isinstance(after, Raised)
    assert isinstance(after.error, RetryAfter)
    assert after.error.delay_ms == 90_000
    assert isinstance(answered, Answered)
    assert (answered.status, answered.retry_after_ms) == (503, 5_000)
    assert isinstance(requeued, Raised)
    assert isinstance(requeued.error, Requeue)
    assert requeued.error.pause_ms == 2_000


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("fial", "did you mean `fail`?"),
        ("", "the script is empty"),
        (" ", "the script is empty"),
        ("fail,,ok", "there is no word ''"),
        ("fail*0", "repeated 1 to 10000 times"),
        ("fail*x", "repeated 1 to 10000 times"),
        ("fail*9999999999999", "repeated 1 to 10000 times"),
        ("fail*9000,ok*9000", "10000 are the most"),
        ("retry-after", "retry-after:2m"),
        ("retry-after:soon", "is not a duration"),
        ("503:", "'503:': "),
        ("999", "there is no word '999'; any HTTP status from 100 to 599 is one"),
        ("٤٠٤", "there is no word"),
    ],
)
def test_a_word_that_means_nothing_is_named(script: str, problem: str) -> None:
    with pytest.raises(InvalidScript) as refused:
        parse_script(script)
    assert problem in refused.value.findings[0].text


def test_all_bad_words_are_named_at_once() -> None:
    with pytest.raises(InvalidScript) as refused:
        parse_script("fial,ok,parc")
    assert len(refused.value.findings) == 2


@pytest.mark.parametrize("word", ["fail", "park", "503", "retry-after:2m", "timeout"])
def test_a_plain_queue_has_nobody_who_decides(word: str) -> None:
    with pytest.raises(InvalidScript) as refused:
        parse_script(word, direct=True)
    assert "use direct actions: ok, crash, reject, nack, return" in refused.value.findings[0].text


def test_endless_requeues_are_seen_to_be_endless() -> None:
    timeline = timeline_of("ladder", "requeue", "4.3")
    assert (timeline.end_state, timeline.final_queue, timeline.is_safe) == (EndState.ENDLESS, "orders", False)
    assert timeline.runs > 100
