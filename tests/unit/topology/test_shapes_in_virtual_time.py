"""A message that fails again and again, on every shape and every profile of the embedded broker, in virtual time.

Each walk says when the handler ran, which key it saw, and where the message lies at last: there and nowhere else.
"""

from pathlib import Path
from typing import Any

import pytest

from redrive.core import Answered, Outcome, Park, Raised, Requeue, RetryAfter, Succeeded, Undecodable
from redrive.embedded.engine import PROFILES
from redrive.topology import SHAPES, Compiled, compile_declaration, declare, read_declaration
from tests.unit.embedded.engine_rig import START_MS
from tests.unit.topology.virtual_consumer import Walker

EXAMPLES = Path(__file__).parents[3] / "examples"
MIDDLE = "4.0"
"""Counts as 3.10 does and dies as 4.3 does: the quick run leaves it to the others."""
every_profile = pytest.mark.parametrize(
    "profile", [pytest.param(name, marks=[pytest.mark.slow] if name == MIDDLE else []) for name in PROFILES]
)


def example(name: str) -> Compiled:
    return compile_declaration(read_declaration((EXAMPLES / name / "redrive.yaml").read_text()))


def one_queue(retry: Any, **more: Any) -> Compiled:
    queue = {"from": {"events": ["orders.#"]}, "retry": retry, **more}
    return compile_declaration(declare(exchanges={"events": "topic"}, queues={"orders": queue}))


# example, queue, exchange, key, moments of the runs, where it ends, which key it has there
JOURNEYS = {
    "ladder": ("orders", "domain.events", "orders.placed", [0, 30, 330, 2130], "orders.parked"),
    "freeflow": ("freeflow.user", "freeflow.events", "user.created", [0, 30, 330, 2130], "freeflow.events.dlq"),
    "event-bus": (
        "wms.queue.wms-cincout",
        "wms.main-exchange",
        "stock.moved",
        [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50],
        "wms.dlq.wms-cincout",
    ),
    "file-pipeline": ("q.thumbnail", "domain.events", "files.validated.png", [0, 15, 30], "q.thumbnail.dlq"),
    "ratatoskr": (
        "my-service.events",
        "ratatoskr.events",
        "my-service.thing",
        [0, 30, 60, 90],
        "my-service.events.dlq",
    ),
    "bookly": ("reports", "bookly.events", "reservation.made", [0, 0, 0, 0], "reports.dlq"),
    "native": ("orders", "domain.events", "orders.placed", [0, 30, 90, 180], "orders.parked"),
}
ON_PROFILES = [
    pytest.param(name, profile, marks=[pytest.mark.slow] if profile == MIDDLE else [])
    for name in JOURNEYS
    for profile in PROFILES
    if name != "native" or profile == "4.3"
]


def test_every_shape_has_a_journey() -> None:
    assert {example(name).queue(queue).shape_name for name, (queue, *_) in JOURNEYS.items()} == set(SHAPES)


@pytest.mark.parametrize(("name", "profile"), ON_PROFILES)
def test_a_failing_message_runs_as_often_as_its_document_says_and_is_parked(name: str, profile: str) -> None:
    queue, exchange, key, moments_s, dlq = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    others = [place for place in walker.places() if place != f"ready in {queue}"]

    walk = walker.consume([queue])

    assert walk.moments_s == moments_s
    assert [run.attempt for run in walk.runs] == list(range(1, len(moments_s) + 1))
    assert {run.routing_key for run in walk.runs} == {key}
    assert walker.places() == sorted([f"ready in {dlq}", *others])
    end = walker.headers_in(dlq)
    retries = len(moments_s) - 1
    assert {name: end.get(name) for name in EXPECTED_AT_THE_END} == {
        "x-retry-count": retries,
        "x-final-retry-count": retries,
        "x-final-error": "ValueError: no",
        "x-original-queue": queue,
        "x-original-exchange": exchange,
        "x-original-routing-key": key,
        "x-redrive-reason": "attempts",
        "x-redrive-parked-at": START_MS + moments_s[-1] * 1000,
        "x-redrive-not-before": None,
        "x-redrive-attempts-before": None,
    }


EXPECTED_AT_THE_END = (
    "x-retry-count",
    "x-final-retry-count",
    "x-final-error",
    "x-original-queue",
    "x-original-exchange",
    "x-original-routing-key",
    "x-redrive-reason",
    "x-redrive-parked-at",
    "x-redrive-not-before",
    "x-redrive-attempts-before",
)


@every_profile
@pytest.mark.parametrize("name", ["event-bus", "file-pipeline", "ratatoskr"])
def test_a_dead_letter_of_a_reject_loop_keeps_its_x_death_as_evidence(name: str, profile: str) -> None:
    queue, exchange, key, moments_s, dlq = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    walker.consume([queue])
    deaths = walker.headers_in(dlq)["x-death"]
    assert isinstance(deaths, list)
    counted = {(death["queue"], death["reason"]): death["count"] for death in deaths}
    assert counted[queue, "rejected"] == len(moments_s) - 1


@pytest.mark.parametrize(("name", "profile"), ON_PROFILES)
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_message_that_succeeds_in_the_end_is_gone(name: str, profile: str, failures: int) -> None:
    queue, exchange, key, moments_s, _ = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    others = [place for place in walker.places() if place != f"ready in {queue}"]
    walk = walker.consume([queue], lambda run: Raised(OSError()) if run <= failures else Succeeded())
    assert walk.moments_s == moments_s[: failures + 1]
    assert walker.places() == others


@pytest.mark.parametrize(("name", "profile"), ON_PROFILES)
@pytest.mark.parametrize("outcome", [Raised(Park("never")), Undecodable(ValueError("no JSON")), Answered(status=404)])
def test_what_is_not_worth_a_retry_is_parked_after_one_run(name: str, profile: str, outcome: Outcome) -> None:
    queue, exchange, key, _, dlq = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    others = [place for place in walker.places() if place != f"ready in {queue}"]
    walk = walker.consume([queue], lambda _run: outcome)
    assert walk.moments_s == [0]
    assert walker.places() == sorted([f"ready in {dlq}", *others])
    assert walker.headers_in(dlq)["x-retry-count"] == 0


@pytest.mark.parametrize(("name", "profile"), ON_PROFILES)
def test_a_retry_after_of_two_hours_is_never_early_and_counts_once(name: str, profile: str) -> None:
    queue, exchange, key, moments_s, dlq = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    walk = walker.consume([queue], lambda run: Raised(RetryAfter("2h")) if run == 2 else Raised(ValueError()))
    assert len(walk.runs) == len(moments_s)
    assert [run.attempt for run in walk.runs] == list(range(1, len(moments_s) + 1))
    assert walk.moments_s[2] - walk.moments_s[1] == 7200
    assert {run.routing_key for run in walk.runs} == {key}
    assert f"ready in {dlq}" in walker.places()
    assert walker.headers_in(dlq)["x-retry-count"] == len(moments_s) - 1


@pytest.mark.parametrize(("name", "profile"), ON_PROFILES)
def test_fifty_requeues_count_as_no_attempt(name: str, profile: str) -> None:
    """Up to 4.0 a quorum queue counts each of them; with a limit of 20 the message must not die of it."""
    queue, exchange, key, moments_s, dlq = JOURNEYS[name]
    walker = Walker(example(name), profile)
    walker.publish(exchange, key)
    walk = walker.consume([queue], lambda run: Raised(Requeue("1s")) if 2 <= run < 52 else Raised(ValueError()))
    attempts = [run.attempt for run in walk.runs]
    assert attempts == [1, *[2] * 50, *range(2, len(moments_s) + 1)]
    assert f"ready in {dlq}" in walker.places()
    assert walker.headers_in(dlq)["x-retry-count"] == len(moments_s) - 1


@every_profile
def test_a_foreign_tiered_retry_is_skipped_by_the_other_queues_and_run_by_its_own(profile: str) -> None:
    declaration = declare(
        exchanges={"freeflow.events": "topic"},
        queues={
            "freeflow.user": {"from": {"freeflow.events": ["user.*"]}, "retry": {"shape": "tiered"}},
            "freeflow.mail": {"from": {"freeflow.events": ["user.*", "mail.*"]}, "retry": {"shape": "tiered"}},
            "audit": {"from": {"freeflow.events": ["#"]}, "retry": ["1m"]},
            "log": {"from": {"freeflow.events": ["#"]}, "retry": False},
        },
    )
    walker = Walker(compile_declaration(declaration), profile)
    walker.publish("freeflow.events", "user.created")

    def fails_for_the_user_queue_only(_run: int) -> Outcome:
        return Raised(ValueError()) if walker.walk.runs[-1].queue == "freeflow.user" else Succeeded()

    walk = walker.consume(["freeflow.user", "freeflow.mail", "audit", "log"], fails_for_the_user_queue_only)
    assert [(run.at_s, run.queue, run.routing_key) for run in walk.runs] == [
        (0, "freeflow.user", "user.created"),
        (0, "freeflow.mail", "user.created"),
        (0, "audit", "user.created"),
        (0, "log", "user.created"),
        (30, "freeflow.user", "user.created"),
        (330, "freeflow.user", "user.created"),
        (2130, "freeflow.user", "user.created"),
    ]
    assert walker.places() == ["ready in freeflow.events.dlq"]


@every_profile
def test_without_skip_foreign_the_other_queue_runs_the_retry_too_as_the_document_would(profile: str) -> None:
    tiered = {"shape": "tiered", "delays": ["30s"], "skip_foreign": False}
    declaration = declare(
        exchanges={"e": "topic"},
        queues={
            "e.user": {"from": {"e": ["user.*"]}, "retry": tiered},
            "e.all": {"from": {"e": ["#"]}, "retry": tiered},
        },
    )
    walker = Walker(compile_declaration(declaration), profile)
    walker.publish("e", "user.created")
    script = lambda run: Raised(ValueError()) if run == 1 else Succeeded()  # noqa: E731
    walk = walker.consume(["e.user", "e.all"], script)
    assert [(run.at_s, run.queue, run.routing_key) for run in walk.runs] == [
        (0, "e.user", "user.created"),
        (0, "e.all", "user.created"),
        (30, "e.user", "user.created"),
        (30, "e.all", "user.created"),
    ]
    assert walker.places() == []


@every_profile
@pytest.mark.parametrize(("retry", "dlq"), [({"shape": "tiered"}, "events.dlq"), ({"shape": "requeue"}, "orders.dlq")])
def test_parking_by_reject_ends_in_the_same_place_without_the_error(
    retry: dict[str, Any], dlq: str, profile: str
) -> None:
    compiled = one_queue(
        {**retry, "park": "reject", "domain": "orders"} if retry["shape"] == "tiered" else {**retry, "park": "reject"}
    )
    walker = Walker(compiled, profile)
    walker.publish("events", "orders.placed")
    assert len(walker.consume(["orders"]).runs) == 4
    assert walker.places() == [f"ready in {dlq}"]
    assert "x-final-error" not in walker.headers_in(dlq)


@pytest.mark.parametrize(("kind", "profile", "runs"), [("quorum", "3.10", 4), ("quorum", "4.0", 4)])
def test_the_literal_nack_is_bounded_where_the_broker_counts_it(kind: str, profile: str, runs: int) -> None:
    walker = Walker(one_queue({"shape": "requeue", "requeue": "nack"}, type=kind), profile)
    walker.publish("events", "orders.placed")
    assert len(walker.consume(["orders"]).runs) == runs
    assert walker.places() == ["ready in orders.dlq"]


@pytest.mark.parametrize(("kind", "profile"), [("classic", "4.0"), ("quorum", "4.3")])
def test_the_literal_nack_loops_for_ever_where_the_broker_does_not_count_it(kind: str, profile: str) -> None:
    walker = Walker(one_queue({"shape": "requeue", "requeue": "nack"}, type=kind), profile)
    walker.publish("events", "orders.placed")
    walk = walker.consume(["orders"], lambda run: Raised(ValueError()) if run < 200 else Succeeded())
    assert (len(walk.runs), walker.places()) == (200, [])


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_without_retry_and_dead_letter_exchange_a_failing_message_is_kept_with_growing_pauses(
    kind: str, profile: str
) -> None:
    walker = Walker(one_queue(False, type=kind), profile)
    walker.publish("events", "orders.placed")
    walk = walker.consume(["orders"], until_s=3600)
    assert walk.moments_s[:9] == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert walker.places() == ["ready in orders"]


@every_profile
@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("outcome", [Raised(Park("never")), Raised(ValueError()), Answered(status=400)])
def test_without_retry_but_with_a_dead_letter_exchange_one_failure_sends_it_there(
    kind: str, profile: str, outcome: Outcome
) -> None:
    declaration = declare(
        queues={
            "orders": {
                "type": kind,
                "retry": False,
                "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
            },
            "dead": {"retry": False},
        }
    )
    walker = Walker(compile_declaration(declaration), profile)
    walker.publish("", "orders")
    assert walker.consume(["orders"], lambda _run: outcome).moments_s == [0]
    assert walker.places() == ["ready in dead"]


@every_profile
def test_a_ladder_with_more_attempts_than_delays_repeats_the_last(profile: str) -> None:
    walker = Walker(one_queue({"delays": ["10s", "10s", "1m"], "attempts": 6}), profile)
    walker.publish("events", "orders.placed")
    assert walker.consume(["orders"]).moments_s == [0, 10, 20, 80, 140, 200]
    assert walker.places() == ["ready in orders.parked"]
