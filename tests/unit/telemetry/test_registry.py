"""What is counted is what happened, and Prometheus can read it."""

import math

from prometheus_client.parser import text_string_to_metric_families

from redrive.client import InDoubt, Nacked, Returned
from redrive.telemetry import DECISIONS, METRICS, Telemetry
from tests.unit.telemetry.prometheus import samples


def test_acked_and_a_noted_ack_count_the_same() -> None:
    short, long = Telemetry(), Telemetry()
    for attempt in (1, 1, 3):
        short.acked("orders", 0.004, attempt)
        long.note("runtime.decided", queue="orders", decision="ack", attempt=attempt, handler_s=0.004)
    assert samples(short) == samples(long)
    assert samples(short)["redrive_decisions_total|decision=ack|queue=orders"] == 3
    assert samples(short)["redrive_attempts_bucket|le=1|queue=orders"] == 2
    assert samples(short)["redrive_attempts_bucket|le=3|queue=orders"] == 3
    assert samples(short)["redrive_handler_seconds_count|queue=orders"] == 3
    assert math.isclose(samples(short)["redrive_handler_seconds_sum|queue=orders"], 0.012)


def test_every_delivery_is_counted_once_whatever_was_decided() -> None:
    telemetry = Telemetry()
    telemetry.acked("orders", 0.0)
    for decision in DECISIONS:
        telemetry.note("runtime.decided", queue="orders", decision=decision, attempt=1, reason="attempts")
    seen = samples(telemetry)
    assert seen["redrive_deliveries_total|queue=orders"] == 1 + len(DECISIONS)
    counted = {key: value for key, value in seen.items() if key.startswith("redrive_decisions_total")}
    assert counted == {
        f"redrive_decisions_total|decision={word}|queue=orders": 2.0 if word == "ack" else 1.0 for word in DECISIONS
    }
    assert seen["redrive_parked_total|queue=orders|reason=attempts"] == 1


def test_publishes_are_counted_by_what_became_of_them() -> None:
    telemetry = Telemetry()
    telemetry.confirmed("q")
    for outcome in ("returned", Returned(312, "NO_ROUTE"), Nacked(), InDoubt("lost"), "in_doubt"):
        telemetry.note("runtime.publish_failed", queue="q", outcome=outcome)
    words = {"confirmed": 1, "returned": 2, "nacked": 1, "in_doubt": 2}
    assert {
        word: samples(telemetry)[f"redrive_publishes_total|outcome={word}|queue=q"] for word in words
    } == words  # fmt: skip


def test_only_a_connection_made_after_a_loss_is_a_reconnect() -> None:
    telemetry = Telemetry()
    for event in ("client.connected", "client.connected", "client.connection_lost", "client.connect_failed"):
        telemetry.note(event)
    assert samples(telemetry)["redrive_reconnects_total"] == 0
    assert samples(telemetry)["redrive_connect_failures_total"] == 1
    telemetry.note("client.connected")
    telemetry.note("client.connected")
    assert samples(telemetry)["redrive_reconnects_total"] == 1


def test_gauges_are_read_at_a_scrape() -> None:
    telemetry = Telemetry()
    in_hand = 3
    telemetry.watch("orders", in_hand=lambda: in_hand)
    assert samples(telemetry)["redrive_in_hand|queue=orders"] == 3
    in_hand = 0
    assert samples(telemetry)["redrive_in_hand|queue=orders"] == 0
    telemetry.forget("orders")
    assert "redrive_in_hand|queue=orders" not in samples(telemetry)


def test_a_queue_without_a_handler_has_no_handler_series_and_is_ready() -> None:
    telemetry = Telemetry()
    telemetry.watch("orders.parked")
    assert samples(telemetry)["redrive_ready"] == 1
    assert [name for name in samples(telemetry) if "orders.parked" in name] == []


def test_ready_means_every_queue_is_consumed_and_none_paused() -> None:
    telemetry = Telemetry()
    lost: dict[str, str | None] = {"orders": None, "mail": "not connected"}
    assert telemetry.unready() == ["no consumer has started"]
    for queue in lost:
        telemetry.watch(queue, in_hand=lambda: 0, unready=lambda queue=queue: lost[queue])  # type: ignore[misc]
    assert telemetry.unready() == ["mail: not connected"]
    lost["mail"] = None
    assert telemetry.unready() == []
    assert samples(telemetry)["redrive_ready"] == 1
    telemetry.note("runtime.paused", queue="orders", why="ten in a row")
    assert telemetry.unready() == ["orders: paused"]
    assert samples(telemetry)["redrive_paused|queue=orders"] == 1
    telemetry.note("runtime.resumed", queue="orders")
    assert telemetry.unready() == []
    telemetry.forget("mail")
    telemetry.forget("orders")
    assert samples(telemetry)["redrive_ready"] == 0


def test_a_queue_name_of_any_characters_stays_one_label() -> None:
    telemetry = Telemetry()
    names = ['a"b', "a\\b", "a\nb", "größe", "a\\nb"]
    for name in names:
        telemetry.acked(name, 0.0)
    for name in names:
        assert samples(telemetry)[f"redrive_deliveries_total|queue={name}"] == 1


def test_an_odd_event_does_not_raise() -> None:
    telemetry = Telemetry()
    telemetry.note("runtime.decided")
    telemetry.note("runtime.decided", queue=None, decision=5, attempt="x", handler_s="y")
    telemetry.note("runtime.publish_failed", outcome=None)
    telemetry.note("nobody.knows", queue=object())
    assert samples(telemetry)["redrive_publishes_total|outcome=in_doubt|queue="] == 1


def test_every_metric_of_the_catalogue_is_written() -> None:
    telemetry = Telemetry()
    families = {family.name for family in text_string_to_metric_families(telemetry.metrics.exposition())}
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}
