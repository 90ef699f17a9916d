"""Every framework's dead letters are explained by what it wrote; nothing that can stand in a header breaks that."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Attempt, Failure, Parked, ParkReason, PlainMessage, RedriveError, Report, parking_headers
from redrive.records import Explanation, explain, guess_failed_queue, with_failed_queue
from redrive.records.explanations.header_values import moment_ms_of
from tests.unit.records import sample_headers as frameworks
from tests.unit.wire.strategies import values

NOW_MS = 1_800_000_000_000


def explained(headers: dict[str, Any], *, dlq: str = "orders.dlq", known_queue: str | None = None) -> Explanation:
    letter = PlainMessage(queue=dlq, exchange="dlx", routing_key="dead", headers=headers)
    return explain(letter, dlq=dlq, now_ms=NOW_MS, known_queue=known_queue)


def death(
    queue: str,
    reason: str,
    *,
    count: int = 1,
    at_s: int = 1_793_534_400,
    route: tuple[str, str] = ("shop", "order.placed"),
) -> dict[str, Any]:
    moment = datetime.fromtimestamp(at_s, UTC)
    return {
        "queue": queue,
        "reason": reason,
        "count": count,
        "time": moment,
        "exchange": route[0],
        "routing-keys": [route[1]],
    }


def test_what_we_parked_is_read_back_as_it_was_written() -> None:
    failure = Failure(type="TimeoutError", message="payment took 3 s", stack='  File "/app/shop.py", line 3, in pay\n')
    history = (Attempt(number=1, at_ms=5, error="TimeoutError: x"), Attempt(number=2, at_ms=9, error="TimeoutError: y"))
    delivered = PlainMessage(queue="orders", exchange="shop", routing_key="order.placed")
    report = Report(retries=3, now_ms=1_793_534_400_123, failure=failure, history=history)
    headers = parking_headers(Parked(reason=ParkReason.ATTEMPTS), delivered, report)
    told = explained(headers, dlq="anything")
    assert (told.told_by, told.queue, told.exchange, told.routing_key) == ("redrive", "orders", "shop", "order.placed")
    assert (told.error_type, told.error_message) == ("TimeoutError", "payment took 3 s")
    assert (told.reason, told.attempts) == ("attempts", 4)
    assert told.died_at_ms == 1_793_534_400_123
    assert told.stack == failure.stack
    assert told.group_title == "TimeoutError in orders: payment took <n> s"


def test_an_undecodable_message_was_never_run() -> None:
    headers = parking_headers(
        Parked(reason=ParkReason.UNDECODABLE),
        PlainMessage(queue="orders"),
        Report(retries=0, now_ms=1, failure=Failure(type="DecodeError", message="no JSON")),
    )
    assert explained(headers).attempts == 0


@pytest.mark.parametrize(
    ("headers", "told_by", "error_type", "message_type", "attempts"),
    [
        (frameworks.MASSTRANSIT, "masstransit", "System.TimeoutException", "Acme.Contracts.PlaceOrder", None),
        (frameworks.NSERVICEBUS, "nservicebus", "System.TimeoutException", "Acme.Contracts.PlaceOrder", None),
        (frameworks.WOLVERINE, "wolverine", "System.TimeoutException", "Acme.Contracts.PlaceOrder", 3),
        (frameworks.SPRING, "spring", "com.acme.orders.PaymentTimeout", "com.acme.orders.OrderPlaced", None),
    ],
)
def test_a_framework_s_error_type_message_queue_and_time_are_found(
    headers: dict[str, Any], told_by: str, error_type: str, message_type: str, attempts: int | None
) -> None:
    told = explained(headers, dlq="orders_error")
    assert (told.told_by, told.queue, told.error_type) == (told_by, "orders", error_type)
    assert told.error_message == "payment 4711 took 3000 ms"
    assert (told.type, told.attempts) == (message_type, attempts)
    assert told.died_at_ms == (None if told_by == "spring" else frameworks.FAILED_AT_MS)
    assert told.group_title == f"{error_type.rpartition('.')[2]} in orders: payment <n> took <n> ms"


def test_spring_s_route_is_the_original_one_and_names_the_queue_of_a_default_exchange() -> None:
    told = explained(frameworks.SPRING)
    assert (told.exchange, told.routing_key) == ("shop", "order.placed")
    direct = explained({**frameworks.SPRING, "x-original-exchange": "", "x-original-routingKey": "q1"}, dlq="graveyard")
    assert (direct.queue, direct.exchange) == ("q1", "")


def test_event_bus_gives_a_status_and_a_message_without_a_type() -> None:
    told = explained({**frameworks.EVENT_BUS, "x-death": [death("p.queue.s", "rejected", count=10)]}, dlq="p.dlq.s")
    assert (told.told_by, told.queue, told.status_code, told.attempts) == ("event-bus", "p.queue.s", 503, 11)
    assert (told.error_type, told.error_message) == ("HTTP 503", "connect to 10.0.0.7:443 refused")


def test_masstransit_s_skipped_message_has_a_reason_and_no_error() -> None:
    told = explained({"MT-Reason": "dead-letter"}, dlq="orders_skipped")
    assert (told.queue, told.reason, told.error_type) == ("orders", "dead-letter", None)
    assert told.group_title == "dead-letter in orders"


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen", "delivery_limit"])
def test_a_death_without_headers_has_the_broker_s_reason_and_route(reason: str) -> None:
    told = explained({"x-death": [death("orders", reason)], "x-first-death-queue": "orders"}, dlq="graveyard")
    assert (told.told_by, told.queue, told.reason) == ("x-death", "orders", reason)
    assert (told.exchange, told.routing_key) == ("shop", "order.placed")
    assert (told.error_type, told.died_at_ms) == (None, 1_793_534_400_000)
    assert told.attempts == (1 if reason == "rejected" else None)


def test_in_a_retry_loop_the_failed_queue_is_not_the_wait_queue() -> None:
    deaths = [
        death("orders", "delivery_limit", at_s=1_793_534_500, route=("", "orders")),
        death("orders.wait.30s", "expired", count=3, route=("", "orders.wait.30s")),
        death("orders", "rejected", count=3),
    ]
    told = explained({"x-death": deaths, "x-first-death-queue": "orders"}, dlq="graveyard")
    assert (told.queue, told.reason, told.attempts) == ("orders", "delivery_limit", 3)
    assert (told.exchange, told.routing_key) == ("shop", "order.placed")
    assert told.died_at_ms == 1_793_534_500_000


def test_a_first_death_in_a_wait_queue_does_not_hide_the_queue_that_rejected() -> None:
    deaths = [death("orders", "rejected"), death("some-delays", "expired", count=3)]
    told = explained({"x-death": deaths, "x-first-death-queue": "some-delays"}, dlq="graveyard")
    assert (told.queue, told.reason) == ("orders", "rejected")


def test_of_expiries_alone_the_one_outside_a_wait_queue_counts() -> None:
    deaths = [death("orders.retry.5s", "expired"), death("orders", "expired")]
    told = explained({"x-death": deaths, "x-first-death-queue": "orders.retry.5s"}, dlq="graveyard")
    assert told.queue == "orders"


def test_what_copies_of_ours_wrote_down_is_told_of_a_message_that_died_by_a_reject() -> None:
    runs = [{"number": n, "at_ms": n, "error": f"TimeoutError: no answer {n}"} for n in (1, 2, 3)]
    told = explained({"x-death": [death("orders", "rejected")], "x-redrive-history": runs})
    assert (told.attempts, told.error_type, told.error_message) == (4, "TimeoutError", "no answer 3")
    assert (told.reason, told.told_by) == ("rejected", "x-death")
    expired = explained({"x-death": [death("orders", "delivery_limit")], "x-redrive-history": runs})
    assert (expired.attempts, expired.error_type) == (3, "TimeoutError")
    kept = {"x-redrive-attempts-before": 9, "x-redrive-history": runs, "x-death": [death("orders", "rejected")]}
    assert explained(kept).attempts == 10
    for odd in (7, [], [3], [{"error": 5}], [{"number": -1, "error": ""}], {"error": "x"}):
        assert explained({"x-redrive-history": odd}).error_type is None


def test_the_queue_that_is_known_to_die_here_wins_among_the_deaths() -> None:
    deaths = [death("b", "rejected"), death("a", "rejected")]
    headers = {"x-death": deaths, "x-first-death-queue": "a"}
    assert explained(headers, known_queue="b").queue == "b"
    assert explained(headers, known_queue="c").queue == "a"


def test_of_a_letter_that_tells_nothing_the_queue_is_guessed_from_the_dlq() -> None:
    told = explained({}, dlq="orders.dlq")
    assert (told.told_by, told.queue, told.reason) == ("nobody", "orders", "unknown")
    assert explained({}, dlq="orders.dlq", known_queue="sales").queue == "sales"


@pytest.mark.parametrize(
    ("dlq", "queue"),
    [
        ("orders.dlq", "orders"),
        ("orders.DLQ", "orders"),
        ("orders-dlq", "orders"),
        ("orders_error", "orders"),
        ("orders_skipped", "orders"),
        ("orders.parked", "orders"),
        ("orders.dead", "orders"),
        ("orders.dead-letters", "orders"),
        ("dlq.q.thumbnail", "q.thumbnail"),
        ("p.dlq.s", "p.queue.s"),
        ("graveyard", "graveyard"),
        (".dlq", ".dlq"),
        ("error", "error"),
    ],
)
def test_a_dlq_s_name_tells_whose_it_is(dlq: str, queue: str) -> None:
    assert guess_failed_queue(dlq) == queue


def test_the_service_is_the_declared_one_else_the_app_id() -> None:
    letter = PlainMessage(queue="d", properties={"app_id": "shop", "type": "order.placed", "message_id": "m1"})
    assert explain(letter, dlq="d", now_ms=NOW_MS).service == "shop"
    told = explain(letter, dlq="d", now_ms=NOW_MS, service="sales")
    assert (told.service, told.type, told.message_id) == ("sales", "order.placed", "m1")
    assert told.group_title == "unknown in d (order.placed)"


def test_a_message_without_an_id_is_known_by_ours() -> None:
    assert explained({"x-redrive-id": "abc"}).message_id == "abc"


def test_a_moment_in_the_future_is_now_and_one_far_ahead_is_none() -> None:
    assert explained({"x-redrive-parked-at": NOW_MS + 1000}).died_at_ms == NOW_MS
    assert explained({"x-redrive-parked-at": 2**62}).died_at_ms is None


def test_a_letter_whose_properties_are_malformed_is_still_explained() -> None:
    class Broken(PlainMessage):
        def header(self, name: str, /) -> Any:
            raise RedriveError("malformed")

        def attribute(self, name: str, /) -> Any:
            raise RedriveError("malformed")

    assert explain(Broken(queue="orders.dlq"), dlq="orders.dlq", now_ms=NOW_MS).queue == "orders"


NAMES = sorted(
    {
        *frameworks.SPRING,
        *frameworks.MASSTRANSIT,
        *frameworks.NSERVICEBUS,
        *frameworks.WOLVERINE,
        *frameworks.EVENT_BUS,
        *("x-death", "x-first-death-queue", "x-first-death-reason", "x-original-queue", "x-original-exchange"),
        *("x-redrive-reason", "x-redrive-stack", "x-redrive-history", "x-redrive-parked-at", "x-redrive-id"),
        *("x-original-routing-key", "MT-Fault-RetryCount", "MT-MessageType"),
    }
)
hostile = st.one_of(
    values,
    st.text(max_size=50),
    st.binary(max_size=50),
    st.just("x" * 100_000),
    st.just(10**5000),
    st.just("\0\ud800\n at a.b(c:1)"),
    st.lists(
        st.dictionaries(st.sampled_from(["queue", "reason", "count", "time", "exchange", "routing-keys"]), values)
    ),
)


@given(st.dictionaries(st.sampled_from(NAMES), hostile, max_size=8), st.dictionaries(st.text(), hostile, max_size=2))
def test_nothing_that_stands_in_a_header_breaks_an_explanation(
    headers: dict[str, Any], properties: dict[str, Any]
) -> None:
    letter = PlainMessage(queue="d.dlq", headers=headers, properties={"message_id": b"\xff", "type": 3, **properties})
    told = explain(letter, dlq="d.dlq", now_ms=NOW_MS)
    texts = [getattr(told, name) for name in told.__slots__ if isinstance(getattr(told, name), str)]
    for text in texts:
        assert len(text.encode()) <= 8_000  # also says that it is Unicode
        assert "\0" not in text
    assert told.died_at_ms is None or 0 <= told.died_at_ms <= NOW_MS
    assert len(told.group_id) == 12


def test_what_is_known_to_have_failed_elsewhere_is_filed_there_whatever_it_says() -> None:
    told = explain(PlainMessage(queue="dlq", headers={"x-original-queue": "claimed"}), dlq="orders.dlq", now_ms=1)
    moved = with_failed_queue(told, "orders", owner="shop", group_key=b"")
    assert (told.queue, moved.queue, moved.owner) == ("claimed", "orders", "shop")
    assert moved.group_id != told.group_id


@pytest.mark.parametrize(
    ("number", "moment_ms"),
    [(99_999_999_999, 99_999_999_999_000), (100_000_000_000, 100_000_000_000), (150_000_000_000, 150_000_000_000)],
)
def test_a_number_is_seconds_up_to_the_year_5138_and_milliseconds_above(number: int, moment_ms: int) -> None:
    assert moment_ms_of(number) == moment_ms_of(str(number)) == moment_ms
