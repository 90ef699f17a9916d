"""Every decision of every shape as literal broker commands: exchange, key, headers and order, as the documents say."""

import re
from pathlib import Path
from typing import Any

import pytest

from redrive.core import (
    AckDelivery,
    Attempt,
    Command,
    Counter,
    Defer,
    Done,
    Failure,
    Parked,
    ParkReason,
    Pause,
    PlainMessage,
    PublishCopy,
    RejectDelivery,
    Report,
    Requeued,
    RequeueDelivery,
    Retry,
    Skip,
)
from redrive.topology import QueuePlan, compile_declaration, declare, read_declaration, user_permissions

EXAMPLES = Path(__file__).parents[3] / "examples"
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 7_200_000

MAIN = {
    "ladder": "orders",
    "native": "orders",
    "freeflow": "freeflow.user",
    "event-bus": "wms.queue.wms-cincout",
    "file-pipeline": "q.thumbnail",
    "ratatoskr": "my-service.events",
    "bookly": "reports",
}

DEATHS = frozenset(
    {
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-last-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
    }
)
BROKERS_OWN = frozenset({"CC", "BCC", "x-delivery-count", "x-acquired-count"})
RETRY_DROPS = DEATHS | BROKERS_OWN | {"x-redrive-not-before", "x-redrive-attempts-before"}
"""What a retry copy drops, unless it has a new value for it."""
DEAD = BROKERS_OWN | {
    "x-redrive-not-before",
    "x-redrive-attempts-before",
    "x-redrive-deliveries",
    "x-redrive-deaths-alone",
}


def plan(example: str) -> QueuePlan:
    compiled = compile_declaration(read_declaration((EXAMPLES / example / "redrive.yaml").read_text()))
    return compiled.queue(MAIN[example])


def plan_of(retry: Any, **more: Any) -> QueuePlan:
    queue = {"from": {"events": ["orders.#", "orders.retry"]}, "retry": retry, **more}
    return compile_declaration(declare(exchanges={"events": "topic"}, queues={"orders": queue})).queue("orders")


def message(queue: str, **headers: Any) -> PlainMessage:
    """A first delivery, from `events` as `a.key`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PlainMessage(queue=queue, exchange="events", routing_key="a.key", headers=named)


def requeued(queue: str, **headers: Any) -> PlainMessage:
    """The same, after a consumer has requeued it."""
    given = message(queue, **headers)
    given.redelivered = True
    return given


def report(retries: int = 0) -> Report:
    return Report(retries=retries, now_ms=NOW_MS)


def retry(delay_ms: int) -> Retry:
    return Retry(delay_ms=delay_ms, not_before_ms=NOW_MS + delay_ms)


def defer(wait_ms: int) -> Defer:
    return Defer(wait_ms=wait_ms, not_before_ms=NOW_MS + wait_ms)


def origin(queue: str) -> dict[str, Any]:
    return {"x-original-queue": queue, "x-original-exchange": "events", "x-original-routing-key": "a.key"}


@pytest.mark.parametrize("example", MAIN)
def test_done_and_skip_are_an_ack(example: str) -> None:
    one = plan(example)
    for decision in (Done(), Skip()):
        assert one.commands(decision, message(one.name), report()) == (AckDelivery(),)


@pytest.mark.parametrize("example", MAIN)
def test_a_requeue_is_a_pause_and_an_uncounted_nack(example: str) -> None:
    one = plan(example)
    commands = one.commands(Requeued(pause_ms=800), message(one.name), report())
    assert commands == (Pause(pause_ms=800), RequeueDelivery(counted=False))
    assert one.commands(Requeued(pause_ms=0), message(one.name), report()) == (RequeueDelivery(counted=False),)


COUNTED_BY = {
    "ladder": Counter.HEADER,
    "native": Counter.DELIVERIES,
    "freeflow": Counter.HEADER,
    "event-bus": Counter.REJECTIONS,
    "file-pipeline": Counter.REJECTIONS,
    "ratatoskr": Counter.REJECTIONS,
    "bookly": Counter.HEADER,
}


@pytest.mark.parametrize("example", MAIN)
def test_attempts_are_counted_as_the_design_says(example: str) -> None:
    assert plan(example).counted_by is COUNTED_BY[example]


DELAYS_MS = {
    "ladder": (4, [30_000, 300_000, 1_800_000, 1_800_000]),
    "native": (4, [30_000, 60_000, 90_000, 120_000]),
    "freeflow": (4, [30_000, 300_000, 1_800_000, 1_800_000]),
    "event-bus": (11, [5_000, 5_000, 5_000, 5_000]),
    "file-pipeline": (3, [15_000, 15_000, 15_000, 15_000]),
    "ratatoskr": (4, [30_000, 30_000, 30_000, 30_000]),
    "bookly": (4, [0, 0, 0, 0]),
}


@pytest.mark.parametrize("example", MAIN)
def test_the_policy_of_a_queue_is_its_declaration(example: str) -> None:
    attempts, delays_ms = DELAYS_MS[example]
    policy = plan(example).policy
    assert policy.attempts_max == attempts
    assert [policy.backoff.delay_ms(retry) for retry in (1, 2, 3, 4)] == delays_ms
    assert policy.other_4xx == "park"


def test_a_native_delay_never_exceeds_its_maximum() -> None:
    backoff = plan_of({"shape": "native", "min": "30s", "max": "1m"}).policy.backoff
    assert [backoff.delay_ms(retry) for retry in (1, 2, 3)] == [30_000, 60_000, 60_000]


def test_a_ladder_keeps_repeated_delays_in_order() -> None:
    backoff = plan_of(["10s", "10s", "1m"]).policy.backoff
    assert [backoff.delay_ms(retry) for retry in (1, 2, 3, 4)] == [10_000, 10_000, 60_000, 60_000]


def test_the_service_shape_says_what_another_4xx_means() -> None:
    declared = declare(services={"wms-a": {"retry": {"other_4xx": "retry"}}})
    (queue,) = declared.queues
    assert compile_declaration(declared).queue(queue.name).policy.other_4xx == "retry"


def copy_to(exchange: str, key: str, queue: str, count: int, **more: Any) -> tuple[Command, ...]:
    """A counted copy with an x-retry-count, and the ack."""
    return (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers={"x-retry-count": count, **origin(queue)},
            drop_headers=RETRY_DROPS,
            **more,
        ),
        AckDelivery(),
    )


RETRIES_BY_COPY = [
    ("ladder", 30_000, copy_to("", "orders.wait.30s", "orders", 1)),
    ("ladder", 300_000, copy_to("", "orders.wait.5m", "orders", 1)),
    ("ladder", 1_800_000, copy_to("", "orders.wait.30m", "orders", 1)),
    ("ladder", 21_000, copy_to("", "orders.wait.30s", "orders", 1, expiration_ms=21_000)),
    ("ladder", 30_001, copy_to("", "orders.wait.5m", "orders", 1, expiration_ms=30_001)),
    ("ladder", 0, copy_to("", "orders", "orders", 1)),
    ("freeflow", 30_000, copy_to("freeflow.events.retry", "user.30s", "freeflow.user", 1)),
    ("freeflow", 300_000, copy_to("freeflow.events.retry", "user.5m", "freeflow.user", 1)),
    ("freeflow", 1_800_000, copy_to("freeflow.events.retry", "user.30m", "freeflow.user", 1)),
    ("freeflow", 29_000, copy_to("freeflow.events.retry", "user.30s", "freeflow.user", 1, expiration_ms=29_000)),
    ("freeflow", 0, copy_to("", "freeflow.user", "freeflow.user", 1)),
    ("bookly", 0, copy_to("", "reports", "reports", 1)),
    ("bookly", 2_000, (Pause(pause_ms=2_000), *copy_to("", "reports", "reports", 1))),
]


@pytest.mark.parametrize(("example", "delay_ms", "expected"), RETRIES_BY_COPY)
def test_a_retry_by_copy_goes_to_the_shortest_wait_that_is_long_enough(
    example: str, delay_ms: int, expected: tuple[Command, ...]
) -> None:
    one = plan(example)
    assert one.commands(retry(delay_ms), message(one.name), report()) == expected


@pytest.mark.parametrize(
    ("example", "exchange", "key"),
    [("ladder", "", "orders.wait.30m"), ("freeflow", "freeflow.events.retry", "user.30m")],
)
def test_a_delay_above_all_waits_goes_to_the_longest_with_its_time(example: str, exchange: str, key: str) -> None:
    one = plan(example)
    assert one.commands(retry(7_200_000), message(one.name), report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers={"x-retry-count": 3, **origin(one.name), "x-redrive-not-before": LATER_MS},
            drop_headers=RETRY_DROPS - {"x-redrive-not-before"},
        ),
        AckDelivery(),
    )


def test_a_requeue_with_a_long_delay_pauses_a_minute_and_carries_the_rest() -> None:
    one = plan("bookly")
    assert one.commands(retry(7_200_000), message(one.name), report()) == (
        Pause(pause_ms=60_000),
        PublishCopy(
            exchange="",
            routing_key="reports",
            set_headers={"x-retry-count": 1, **origin("reports"), "x-redrive-not-before": LATER_MS},
            drop_headers=RETRY_DROPS - {"x-redrive-not-before"},
        ),
        AckDelivery(),
    )


@pytest.mark.parametrize(
    ("example", "delay_ms"), [("event-bus", 5_000), ("file-pipeline", 15_000), ("ratatoskr", 30_000)]
)
def test_a_retry_in_a_reject_loop_is_a_reject(example: str, delay_ms: int) -> None:
    one = plan(example)
    for shorter_ms in (0, 1, delay_ms):
        assert one.commands(retry(shorter_ms), message(one.name), report()) == (RejectDelivery(),)


@pytest.mark.parametrize(
    ("example", "exchange", "key"),
    [
        ("event-bus", "wms.retry-exchange.wms-cincout", "retry"),
        ("file-pipeline", "retry.q.thumbnail", "retry"),
        ("ratatoskr", "", "my-service.events.retry"),
    ],
)
def test_a_longer_retry_in_a_reject_loop_is_a_copy_with_its_count_and_time(
    example: str, exchange: str, key: str
) -> None:
    one = plan(example)
    assert one.commands(retry(7_200_000), message(one.name), report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers={
                **origin(one.name),
                "x-redrive-attempts-before": 3,
                "x-redrive-not-before": LATER_MS,
            },
            drop_headers=DEATHS | BROKERS_OWN,
        ),
        AckDelivery(),
    )


@pytest.mark.parametrize(
    ("example", "exchange", "key", "ttl_ms"),
    [
        ("event-bus", "wms.retry-exchange.wms-cincout", "retry", 5_000),
        ("file-pipeline", "retry.q.thumbnail", "retry", 15_000),
        ("ratatoskr", "", "my-service.events.retry", 30_000),
    ],
)
def test_what_came_too_early_in_a_reject_loop_waits_again_with_the_count_it_has(
    example: str, exchange: str, key: str, ttl_ms: int
) -> None:
    one = plan(example)
    counted = {**origin(one.name), "x-redrive-attempts-before": 2}
    early = message(one.name, x_redrive_attempts_before=2, x_redrive_not_before=LATER_MS)
    assert one.commands(defer(7_200_000), early, report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers={**counted, "x-redrive-not-before": LATER_MS},
            drop_headers=DEATHS | BROKERS_OWN,
        ),
        AckDelivery(),
    )
    assert one.commands(defer(ttl_ms - 1), early, report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers=counted,
            drop_headers=DEATHS | BROKERS_OWN | {"x-redrive-not-before"},
            expiration_ms=ttl_ms - 1,
        ),
        AckDelivery(),
    )


@pytest.mark.parametrize(
    ("example", "exchange", "keys"),
    [
        ("ladder", "", ("orders.wait.30m", "orders.wait.30s")),
        ("freeflow", "freeflow.events.retry", ("user.30m", "user.30s")),
    ],
)
def test_what_came_too_early_by_copy_waits_again_with_its_x_retry_count_untouched(
    example: str, exchange: str, keys: tuple[str, str]
) -> None:
    one = plan(example)
    kept = RETRY_DROPS - {"x-redrive-attempts-before"}
    early = message(one.name, x_retry_count=2, x_redrive_not_before=LATER_MS)
    assert one.commands(defer(7_200_000), early, report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=keys[0],
            set_headers={**origin(one.name), "x-redrive-not-before": LATER_MS},
            drop_headers=kept - {"x-redrive-not-before"},
        ),
        AckDelivery(),
    )
    assert one.commands(defer(12_000), early, report(2)) == (
        PublishCopy(
            exchange=exchange,
            routing_key=keys[1],
            set_headers=origin(one.name),
            drop_headers=kept,
            expiration_ms=12_000,
        ),
        AckDelivery(),
    )


@pytest.mark.parametrize(
    ("example", "counts", "kept"),
    [
        ("bookly", {}, RETRY_DROPS - {"x-redrive-attempts-before"}),
        ("native", {"x-redrive-attempts-before": 2}, RETRY_DROPS - {"x-redrive-attempts-before"}),
    ],
)
def test_what_came_too_early_without_wait_queues_pauses_and_goes_to_the_end(
    example: str, counts: dict[str, Any], kept: frozenset[str]
) -> None:
    one = plan(example)
    early = message(one.name, x_retry_count=2)
    assert one.commands(defer(90_000), early, report(2)) == (
        Pause(pause_ms=60_000),
        PublishCopy(
            exchange="",
            routing_key=one.name,
            set_headers={**origin(one.name), **counts, "x-redrive-not-before": NOW_MS + 90_000},
            drop_headers=kept - {"x-redrive-not-before"},
        ),
        AckDelivery(),
    )
    assert one.commands(defer(30_000), early, report(2)) == (
        Pause(pause_ms=30_000),
        PublishCopy(exchange="", routing_key=one.name, set_headers={**origin(one.name), **counts}, drop_headers=kept),
        AckDelivery(),
    )


def test_a_native_retry_is_a_counted_requeue_after_a_pause_for_what_is_longer() -> None:
    one = plan("native")
    third = requeued(one.name, x_delivery_count=2)
    assert one.commands(retry(30_000), message(one.name), report()) == (RequeueDelivery(counted=True),)
    assert one.commands(retry(90_000), third, report(2)) == (RequeueDelivery(counted=True),)
    assert one.commands(retry(150_000), third, report(2)) == (Pause(pause_ms=60_000), RequeueDelivery(counted=True))
    assert one.commands(retry(7_200_000), third, report(2)) == (
        Pause(pause_ms=60_000),
        PublishCopy(
            exchange="",
            routing_key="orders",
            set_headers={
                **origin("orders"),
                "x-redrive-attempts-before": 3,
                "x-redrive-not-before": LATER_MS,
            },
            drop_headers=DEATHS | BROKERS_OWN,
        ),
        AckDelivery(),
    )


def test_the_literal_requeue_is_a_nack() -> None:
    one = plan_of({"shape": "requeue", "requeue": "nack"})
    assert one.counted_by is Counter.DELIVERIES
    assert one.commands(retry(0), message("orders"), report()) == (RequeueDelivery(counted=False),)
    assert one.commands(retry(1_000), message("orders"), report()) == (
        Pause(pause_ms=1_000),
        RequeueDelivery(counted=False),
    )
    # No run failed: a quorum queue up to 4.0 would count a requeue, and here that count is the attempts.
    pause, copy, ack = one.commands(defer(90_000), message("orders", x_delivery_count=1), report(1))
    assert (pause, ack) == (Pause(pause_ms=60_000), AckDelivery())
    assert isinstance(copy, PublishCopy)
    assert (copy.exchange, copy.routing_key) == ("", "orders")
    assert copy.set_headers["x-redrive-attempts-before"] == 1


@pytest.mark.parametrize("shape", [{"shape": "requeue", "requeue": "nack"}, {"shape": "native", "min": "1s"}])
def test_a_run_that_only_a_rule_allows_is_a_copy_because_the_brokers_own_count_is_spent(
    shape: dict[str, Any],
) -> None:
    one = plan_of({**shape, "attempts": 2})
    first, last = message("orders"), message("orders", x_delivery_count=1)
    assert isinstance(one.commands(retry(0), first, report())[-1], RequeueDelivery)
    copy, ack = one.commands(retry(0), last, report(1))
    assert ack == AckDelivery()
    assert isinstance(copy, PublishCopy)
    assert (copy.exchange, copy.routing_key) == ("", "orders")
    assert copy.set_headers["x-redrive-attempts-before"] == 2
    assert "x-delivery-count" in copy.drop_headers


PARKING = {
    "ladder": ("", "orders.parked"),
    "native": ("", "orders.parked"),
    "freeflow": ("freeflow.events.dlx", "a.key"),
    "event-bus": ("", "wms.dlq.wms-cincout"),
    "file-pipeline": ("dlq.q.thumbnail", "parking"),
    "ratatoskr": ("my-service.events.dlq", ""),
    "bookly": ("bookly.events.dlx", "reports.dlq"),
}


@pytest.mark.parametrize("example", MAIN)
def test_a_parked_message_goes_where_the_document_says_with_what_is_known(example: str) -> None:
    one = plan(example)
    exchange, key = PARKING[example]
    known = Report(
        retries=3,
        now_ms=NOW_MS,
        failure=Failure(type="Unavailable", message="try later", stack="  File …", status=503),
        history=(Attempt(number=4, at_ms=NOW_MS, error="Unavailable: try later"),),
    )
    assert one.commands(Parked(reason=ParkReason.ATTEMPTS), message(one.name), known) == (
        PublishCopy(
            exchange=exchange,
            routing_key=key,
            set_headers={
                "x-retry-count": 3,
                "x-final-retry-count": 3,
                "x-final-error": "Unavailable: try later",
                "x-final-status-code": 503,
                "x-redrive-reason": "attempts",
                "x-redrive-stack": "  File …",
                "x-redrive-history": [{"number": 4, "at_ms": NOW_MS, "error": "Unavailable: try later"}],
                "x-redrive-parked-at": NOW_MS,
                **origin(one.name),
            },
            # Where x-death counts the retries, what was before it stays: the two together are the count.
            drop_headers=DEAD - ({"x-redrive-attempts-before"} if one.counted_by is Counter.REJECTIONS else set()),
        ),
        AckDelivery(),
    )


@pytest.mark.parametrize("example", MAIN)
def test_requeueing_a_message_with_a_publishers_delivery_count_is_counted_where_that_counts_attempts(
    example: str,
) -> None:
    """4.3 counts no nack and leaves the publisher's number on the message; a reject makes the queue write its own."""
    one = plan(example)
    counted = one.counted_by is Counter.DELIVERIES
    assert counted == (example == "native")
    brought, own = message(one.name, x_delivery_count=3), requeued(one.name, x_delivery_count=3)
    assert one.commands(Requeued(pause_ms=0), brought, report()) == (RequeueDelivery(counted=counted),)
    assert one.commands(Requeued(pause_ms=0), own, report()) == (RequeueDelivery(counted=False),)


def test_the_literal_requeue_of_a_message_with_a_publishers_delivery_count_is_a_reject() -> None:
    one = plan_of({"shape": "requeue", "requeue": "nack"})
    brought, own = message("orders", x_delivery_count=3), requeued("orders", x_delivery_count=1)
    assert one.commands(retry(0), brought, report()) == (RequeueDelivery(counted=True),)
    assert one.commands(retry(0), own, report(1)) == (RequeueDelivery(counted=False),)
    assert one.commands(retry(0), message("orders"), report()) == (RequeueDelivery(counted=False),)


@pytest.mark.parametrize("retried", [{"shape": "tiered"}, {"shape": "requeue"}])
def test_the_literal_parking_is_a_reject(retried: dict[str, Any]) -> None:
    one = plan_of({**retried, "park": "reject"})
    assert one.commands(Parked(reason=ParkReason.ASKED), message("orders"), report()) == (RejectDelivery(),)


def test_attempts_from_before_a_copy_are_in_its_x_retry_count_and_not_added_again() -> None:
    """4 before and 1 since: the sixth run has failed, and the copy says 6 in all."""
    one = plan("ladder")
    commands = one.commands(retry(30_000), message("orders", x_redrive_attempts_before=4, x_retry_count=1), report(5))
    assert commands == copy_to("", "orders.wait.30s", "orders", 6)


@pytest.mark.parametrize("example", [name for name in MAIN if name != "native"])
def test_a_message_that_a_quorum_queue_got_back_often_is_requeued_by_a_copy(example: str) -> None:
    one = plan(example)
    counts = {"x-redrive-attempts-before": 1} if one.counted_by is Counter.REJECTIONS else {}
    commands = one.commands(Requeued(pause_ms=800), requeued(one.name, x_delivery_count=10, x_retry_count=1), report(1))
    assert commands == (
        Pause(pause_ms=800),
        PublishCopy(
            exchange="",
            routing_key=one.name,
            set_headers={**origin(one.name), **counts},
            drop_headers=RETRY_DROPS - {"x-redrive-attempts-before"},
        ),
        AckDelivery(),
    )


def test_a_queue_without_retry_rejects_to_its_dead_letter_exchange_or_keeps_the_message() -> None:
    kept = plan_of(False)
    assert (kept.shape, kept.routes, kept.shape_name, kept.dead_letters) == (None, None, "none", False)
    assert kept.commands(Done(), message("orders"), report()) == (AckDelivery(),)
    assert kept.commands(retry(4_000), message("orders"), report(2)) == (
        Pause(pause_ms=4_000),
        *copy_to("", "orders", "orders", 3),
    )
    assert kept.commands(Parked(reason=ParkReason.ASKED), message("orders"), report(1)) == (
        Pause(pause_ms=2_000),
        *copy_to("", "orders", "orders", 2),
    )
    rejected = plan_of(False, arguments={"x-dead-letter-exchange": "amq.fanout"})
    assert rejected.policy.attempts_max == 1
    assert rejected.commands(Done(), message("orders"), report()) == (AckDelivery(),)
    assert rejected.commands(retry(0), message("orders"), report()) == (RejectDelivery(),)
    assert rejected.commands(Parked(reason=ParkReason.ATTEMPTS), message("orders"), report()) == (RejectDelivery(),)
    assert rejected.commands(Requeued(pause_ms=5), message("orders"), report()) == (
        Pause(pause_ms=5),
        RequeueDelivery(counted=False),
    )


def test_a_dead_letter_exchange_may_come_from_a_policy_and_one_that_leads_back_is_none() -> None:
    by_policy = declare(
        queues={"orders": {"retry": False}},
        policies={"dlx": {"pattern": "^orders$", "definition": {"dead-letter-exchange": "amq.fanout"}}},
    )
    assert compile_declaration(by_policy).queue("orders").dead_letters
    assert compile_declaration(by_policy, vhost="other").queue("orders").dead_letters
    assert not plan_of(False, arguments={"x-dead-letter-exchange": ""}).dead_letters
    aside = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    assert plan_of(False, arguments=aside).dead_letters


@pytest.mark.parametrize("decision", [retry(4_000), defer(4_000), Requeued(pause_ms=4_000)])
def test_a_stream_is_never_copied_into_itself(decision: Retry | Defer | Requeued) -> None:
    one = plan_of(False, type="stream")
    assert one.commands(decision, message("orders", x_delivery_count=30), report()) == (
        Pause(pause_ms=4_000),
        RequeueDelivery(counted=False),
    )


@pytest.mark.parametrize("example", MAIN)
def test_a_consumer_may_write_to_every_exchange_a_copy_goes_to(example: str) -> None:
    compiled = compile_declaration(read_declaration((EXAMPLES / example / "redrive.yaml").read_text()))
    (writes,) = [one["write"] for one in user_permissions(compiled) if one["user"] == "redrive-consumer"]
    one = compiled.queue(MAIN[example])
    decisions = (retry(0), retry(7_200_000), defer(1_000), Parked(reason=ParkReason.ASKED))
    copies = [
        command
        for decision in decisions
        for command in one.commands(decision, message(one.name), report())
        if isinstance(command, PublishCopy)
    ]
    assert len(copies) >= 3
    for copy in copies:
        assert re.fullmatch(writes, copy.exchange or "amq.default")


@pytest.mark.parametrize("example", [name for name in MAIN if name != "native"])
def test_deferring_for_no_time_replaces_a_message_by_a_copy_at_the_end_of_its_queue(example: str) -> None:
    """So a consumer makes the copy that counts a crash."""
    one = plan(example)
    counts = {"x-redrive-attempts-before": 1} if one.counted_by is Counter.REJECTIONS else {}
    assert one.commands(defer(0), message(one.name, x_retry_count=1), report(1)) == (
        PublishCopy(
            exchange="",
            routing_key=one.name,
            set_headers={**origin(one.name), **counts},
            drop_headers=RETRY_DROPS - {"x-redrive-attempts-before"},
        ),
        AckDelivery(),
    )
