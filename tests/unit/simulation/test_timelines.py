"""The life of a message in every example, on every profile, as it was looked at and found right."""

import pytest

from redrive.core import InvalidDeclaration
from redrive.embedded import PROFILES
from redrive.simulation import Ending
from tests.unit.simulation.timelines import QUEUES, cases, golden_file, life, timelines

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
def test_an_example_lives_as_it_was_found_right(name: str, profile: str) -> None:
    assert timelines(name, profile) == golden_file(name, profile).read_text(encoding="utf-8")


def test_there_is_no_timeline_that_nobody_compares() -> None:
    compared = {golden_file(name, profile).name for name, profile in cases()}
    assert {path.name for path in golden_file("ladder", "4.3").parent.iterdir()} == compared
    assert {name for name, _ in cases()} == set(QUEUES)


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_always_fails_is_run_as_often_as_its_shape_says_and_then_parked(name: str, profile: str) -> None:
    told = life(name, "fail", profile)
    assert (told.ending, told.resting_in, told.runs) == (Ending.PARKED, PARKING[name], RUNS[name])
    assert told.headers["x-retry-count"] == told.headers["x-final-retry-count"] == RUNS[name] - 1
    assert told.headers["x-original-queue"] == QUEUES[name]
    assert told.headers["x-redrive-reason"] == "attempts"


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_recovers_on_its_last_run_is_handled(name: str, profile: str) -> None:
    told = life(name, f"fail*{RUNS[name] - 1},ok", profile)
    assert (told.ending, told.resting_in, told.runs) == (Ending.HANDLED, None, RUNS[name])


@pytest.mark.parametrize(("name", "profile"), cases())
def test_a_message_that_kills_its_consumers_is_parked(name: str, profile: str) -> None:
    told = life(name, "crash", profile)
    assert (told.ending, told.resting_in) == (Ending.PARKED, PARKING[name])
    assert told.headers["x-redrive-reason"] == "crashes"


@pytest.mark.parametrize("profile", [one for one in PROFILES if one != "4.3"])
def test_native_is_refused_below_4_3_with_one_sentence(profile: str) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        life("native", "fail", profile)
    (finding,) = refused.value.findings
    assert f"silently ignored by RabbitMQ {profile}" in finding.text
    assert "for an older RabbitMQ declare the queue with the shape ladder" in finding.text


def test_the_same_play_gives_the_same_life() -> None:
    assert life("freeflow", "fail,requeue,429,ok", "4.3") == life("freeflow", "fail,requeue,429,ok", "4.3")
