"""The timeline of a message in every example, on every profile, as it was reviewed and found right."""

import pytest

from redrive.core import InvalidDeclaration
from redrive.embedded import PROFILES
from redrive.simulation import EndState
from tests.unit.simulation.timelines import QUEUES, cases, golden_file, timeline_of, timelines

RUNS = {
    "ladder": 4,
    "native": 4,
    "freeflow": 4,
    "event-bus": 11,
    "file-pipeline": 3,
    "ratatoskr": 4,
    "bookly": 4,
}
PARKING = {
    "ladder": "orders.parked",
    "native": "orders.parked",
    "freeflow": "freeflow.events.dlq",
    "event-bus": "wms.dlq.wms-cincout",
    "file-pipeline": "q.thumbnail.dlq",
    "ratatoskr": "my-service.events.dlq",
    "bookly": "reports.dlq",
}


@pytest.mark.parametrize(("name", "profile"), cases())
def test_the_timelines_of_an_example_are_the_golden_ones(name: str, profile: str) -> None:
    assert timelines(name, profile) == golden_file(name, profile).read_text(encoding="utf-8")


def test_every_golden_timeline_is_compared() -> None:
    compared = {golden_file(name, profile).name for name, profile in cases()}
    assert {path.name for path in golden_file("ladder", "4.3").parent.iterdir()} == compared
    assert {name for name, _ in cases()} == set(QUEUES)


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_always_fails_is_run_as_often_as_its_shape_says_and_then_parked(name: str, profile: str) -> None:
    timeline = timeline_of(name, "fail", profile)
    assert (timeline.end_state, timeline.final_queue, timeline.runs) == (EndState.PARKED, PARKING[name], RUNS[name])
    assert timeline.headers["x-retry-count"] == timeline.headers["x-final-retry-count"] == RUNS[name] - 1
    assert timeline.headers["x-original-queue"] == QUEUES[name]
    assert timeline.headers["x-redrive-reason"] == "attempts"


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_recovers_on_its_last_run_is_handled(name: str, profile: str) -> None:
    timeline = timeline_of(name, f"fail*{RUNS[name] - 1},ok", profile)
    assert (timeline.end_state, timeline.final_queue, timeline.runs) == (EndState.HANDLED, None, RUNS[name])


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_kills_its_consumers_is_parked(name: str, profile: str) -> None:
    timeline = timeline_of(name, "crash", profile)
    assert (timeline.end_state, timeline.final_queue) == (EndState.PARKED, PARKING[name])
    assert timeline.headers["x-redrive-reason"] == "crashes"


@pytest.mark.parametrize("profile", [one for one in PROFILES if one != "4.3"])
def test_native_is_refused_below_4_3_with_one_sentence(profile: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        timeline_of("native", "fail", profile)
    (finding,) = refused.value.findings
    assert f"silently ignored by RabbitMQ {profile}" in finding.text
    assert "for an older RabbitMQ declare the queue with the shape ladder" in finding.text


def test_the_same_simulation_gives_the_same_timeline() -> None:
    assert timeline_of("freeflow", "fail,requeue,429,ok", "4.3") == timeline_of(
        "freeflow", "fail,requeue,429,ok", "4.3"
    )
