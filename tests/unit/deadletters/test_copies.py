"""A redriven copy: where it goes, what it says, and that all else is as it was."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core import Counter, PlainMessage, count_retries, headers
from redrive.deadletters.redrive.copies import REDRIVE_DROPS, CopyRules, Uncopyable, copy_of, route_of, targets_of
from redrive.records import ClaimedLetter, MessageContent, RedriveTarget, make_mark
from redrive.wire import Properties, digest_of, wrap_in_envelope
from tests.examples import examples
from tests.unit.wire import strategies as amqp

NOW_MS = 1_800_000_000_123
RULES = CopyRules(target=RedriveTarget(), who="ann")
OURS = {headers.REDRIVEN_ID, headers.REDRIVEN_COUNT, headers.REDRIVEN_MARK, headers.REDRIVEN_AT, headers.REDRIVEN_BY}


def claimed(properties: Properties | None = None, *, body: bytes = b"{}", **fields: Any) -> ClaimedLetter:
    made = Properties.of(message_id="m1") if properties is None else properties
    known: dict[str, Any] = {
        "id": "letter1",
        "vhost": "/",
        "queue": "orders",
        "dlq": "orders.parked",
        "dlq_exchange": "",
        "dlq_routing_key": "orders.parked",
        "exchange": "",
        "routing_key": "orders.parked",
        "redrives": 1,
        "attempts": 4,
        "was_in_doubt": False,
        "operation_id": "operation1",
        "secret": b"secret",
    }
    return ClaimedLetter(content=MessageContent(properties=made.raw, body=body), **{**known, **fields})


def made_of(properties: Properties, rules: CopyRules = RULES, **fields: Any) -> Properties:
    made = copy_of(claimed(properties, **fields), rules, now_ms=NOW_MS).properties
    assert isinstance(made, Properties)
    return made


def test_a_parked_message_goes_back_to_its_queue_without_the_marks_of_the_life_that_is_over() -> None:
    parked = Properties.of(
        headers={
            "mine": 1,
            "x-original-queue": "orders",
            "x-original-routing-key": "orders.placed",
            "x-retry-count": 3,
            "x-final-retry-count": 3,
            "x-final-error": "Timeout: no answer",
            "x-final-status-code": 504,
            "x-redrive-reason": "attempts",
            "x-redrive-stack": "at …",
            "x-redrive-history": [{"number": 1}],
            "x-redrive-parked-at": 5,
            "x-redrive-not-before": 6,
            "x-redrive-deliveries": 2,
            "x-redrive-first-seen": 4,
            "x-death": [{"queue": "orders", "reason": "rejected", "count": 3}],
            "x-first-death-queue": "orders",
            "x-last-death-reason": "rejected",
            "x-delivery-count": 2,
            "x-acquired-count": 2,
            "CC": ["elsewhere"],
        },
        message_id="m1",
        delivery_mode=1,
        expiration="60000",
        user_id="shop",
        content_type="application/json",
    )
    outgoing = copy_of(claimed(parked, body=b"\x00\xff"), RULES, now_ms=NOW_MS)
    assert isinstance(outgoing.properties, Properties)
    assert (outgoing.exchange, outgoing.routing_key, outgoing.body) == ("", "orders", b"\x00\xff")
    assert outgoing.mandatory
    digest = digest_of(parked, "orders", message_id="m1", body=b"\x00\xff")
    assert outgoing.properties.present() == {
        "message_id": "m1",
        "delivery_mode": 2,
        "content_type": "application/json",
        "headers": {
            "mine": 1,
            "x-original-queue": "orders",
            "x-original-routing-key": "orders.placed",
            "x-redriven-id": "letter1",
            "x-redriven-count": 1,
            "x-redriven-mark": make_mark(
                b"secret",
                operation_id="operation1",
                vhost="/",
                letter_id="letter1",
                count=1,
                message_id="m1",
                body=b"\x00\xff",
            ),
            "x-redriven-at": "2027-01-15T08:00:00.123Z",
            "x-redriven-by": "ann",
            "x-redrive-digest": digest,
            "x-redrive-stripped": {
                "expiration": "60000",
                "user_id": "shop",
                "delivery_mode": 1,
                "CC": ["elsewhere"],
            },
        },
    }


def test_a_copy_says_where_its_message_came_from_however_it_was_parked() -> None:
    names = ("x-original-queue", "x-original-exchange", "x-original-routing-key")

    def origin(parked: dict[str, Any], **fields: Any) -> list[Any]:
        made = made_of(Properties.of(message_id="m1", headers=parked), **fields)
        return [made.header(name) for name in names]

    known = {"exchange": "shop", "routing_key": "orders.placed"}
    assert origin({}, **known) == ["orders", "shop", "orders.placed"]
    assert origin({}, exchange="", routing_key="orders") == ["orders", "", "orders"]
    # What it says itself stays, and what is not known is not made up of how it came to the dead letters.
    assert origin(dict(zip(names, ("a", "b", "c"), strict=True)), **known) == ["a", "b", "c"]
    assert origin({}, exchange="", routing_key="orders.parked") == ["orders", None, None]


@settings(max_examples=examples(200), deadline=None)
@given(table=amqp.tables, fields=amqp.properties, body=st.binary(max_size=50))
def test_everything_that_is_not_named_is_the_same_to_the_byte(
    table: dict[str, Any], fields: dict[str, Any], body: bytes
) -> None:
    original = Properties.of(headers=table, **fields)
    outgoing = copy_of(claimed(original, body=body), RULES, now_ms=NOW_MS)
    made = outgoing.properties
    assert isinstance(made, Properties)
    assert outgoing.body == body
    changed = {"headers", "delivery_mode", "expiration", "user_id"}
    assert {name: value for name, value in made.present().items() if name not in changed} == {
        name: value for name, value in original.present().items() if name not in changed
    }
    may_add = OURS | {headers.STRIPPED, headers.MESSAGE_ID, headers.DIGEST, headers.ORIGINAL_QUEUE}
    assert set(made.headers) - may_add == set(table) - may_add - REDRIVE_DROPS
    for name in set(table) - may_add - REDRIVE_DROPS:
        assert made.raw_header(name) == original.raw_header(name)


@settings(deadline=None)
@given(table=amqp.tables, fields=amqp.properties)
def test_the_copy_of_a_copy_differs_only_in_what_says_which_redrive_it_is(
    table: dict[str, Any], fields: dict[str, Any]
) -> None:
    first = made_of(Properties.of(headers=table, **fields))
    second = made_of(first, redrives=2)
    mark = second.header(headers.REDRIVEN_MARK)
    assert mark != first.header(headers.REDRIVEN_MARK)
    assert second == first.edit(headers={headers.REDRIVEN_COUNT: 2, headers.REDRIVEN_MARK: mark})


def test_a_copy_of_a_copy_that_was_in_doubt_is_no_longer_marked_as_a_possible_duplicate() -> None:
    first = made_of(Properties.of(message_id="m"), was_in_doubt=True)
    assert first.headers["x-redrive-possible-duplicate"] is True
    assert "x-redrive-possible-duplicate" not in made_of(first, redrives=2).headers


def test_a_message_without_an_id_gets_the_dead_letters_and_keeps_it() -> None:
    first = made_of(Properties.of())
    assert first.message_id is None
    assert first.headers["x-redrive-id"] == "letter1"
    assert made_of(first, id="letter2").headers["x-redrive-id"] == "letter1"


@pytest.mark.parametrize("counter", list(Counter))
def test_attempts_start_afresh_unless_the_operation_keeps_them(counter: Counter) -> None:
    parked = Properties.of(headers={"x-retry-count": 3, "x-redrive-attempts-before": 7}, message_id="m")

    def retries(rules: CopyRules, **fields: Any) -> int:
        copy = made_of(parked, rules, **fields)
        return count_retries(PlainMessage(queue="orders", headers=dict(copy.headers)), counter)

    assert retries(RULES) == 0
    assert retries(replace(RULES, keep_attempts=True)) == 4
    assert retries(replace(RULES, keep_attempts=True), attempts=None) == 7


def test_64_kb_of_headers_are_carried_and_the_copy_fits_into_a_frame() -> None:
    original = Properties.of(headers={f"h{number}": "x" * 1000 for number in range(64)}, message_id="m")
    made = made_of(original)
    for number in range(64):
        assert made.raw_header(f"h{number}") == original.raw_header(f"h{number}")
    assert len(made.raw) < 131_000
    assert set(made.headers) >= OURS


def test_properties_that_are_no_properties_are_refused_in_a_sentence() -> None:
    letter = replace(claimed(), content=MessageContent(properties=b"\xff\xfe\x01", body=b""))
    with pytest.raises(Uncopyable, match="its properties can't be copied"):
        copy_of(letter, RULES, now_ms=NOW_MS)


FIRST_KEY = Properties.of(headers={"x-original-routing-key": "orders.placed.{queue}"})


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (RedriveTarget(), ("", "orders")),
        (RedriveTarget(exchange="retry.{queue}", routing_key="retry"), ("retry.orders", "retry")),
        (RedriveTarget(routing_key="{queue}.copy"), ("", "orders.copy")),
        (RedriveTarget(exchange="domain.events"), ("domain.events", "orders.placed.{queue}")),
        (RedriveTarget(exchange="", routing_key="other"), ("", "other")),
    ],
)
def test_a_target_is_the_failed_queue_or_what_it_says(target: RedriveTarget, route: tuple[str, str]) -> None:
    assert route_of(claimed(FIRST_KEY), target) == route


def test_an_exchange_without_a_key_gets_the_key_of_the_first_death_where_nobody_told_it() -> None:
    death = {"queue": "orders", "reason": "rejected", "exchange": "shop", "routing-keys": ["orders.placed"], "count": 1}
    letter = claimed(Properties.of(headers={"x-death": [death]}))
    assert route_of(letter, RedriveTarget(exchange="shop")) == ("shop", "orders.placed")


@pytest.mark.parametrize(
    ("queue", "target", "reason"),
    [
        ("q" * 250, RedriveTarget(exchange="retry.{queue}", routing_key="retry"), "longer than 255 bytes"),
        ("", RedriveTarget(), "nobody knows the queue it failed in"),
    ],
)
def test_a_route_that_can_not_be_is_refused(queue: str, target: RedriveTarget, reason: str) -> None:
    with pytest.raises(Uncopyable, match=reason):
        route_of(claimed(queue=queue), target)


def test_targets_are_counted_by_where_the_copies_go() -> None:
    queues = {"a": 2, "b": 3}
    assert targets_of(queues, RedriveTarget()) == {("", "a"): 2, ("", "b"): 3}
    assert targets_of(queues, RedriveTarget(routing_key="c")) == {("", "c"): 5}
    assert targets_of(queues, RedriveTarget(exchange="retry.{queue}", routing_key="retry")) == {
        ("retry.a", "retry"): 2,
        ("retry.b", "retry"): 3,
    }
    assert targets_of(queues, RedriveTarget(exchange="shop")) == {("shop", None): 5}


@pytest.mark.parametrize(
    ("target", "queue"),
    [
        (RedriveTarget(), "orders"),
        (RedriveTarget(exchange="", routing_key="elsewhere"), "elsewhere"),
        (RedriveTarget(exchange="retry.{queue}", routing_key="retry"), "orders"),
    ],
)
def test_what_is_written_on_a_copy_is_bound_to_the_queue_it_goes_to(target: RedriveTarget, queue: str) -> None:
    """Its consumer believes nothing else: an edited body, and another queue, need a digest of their own."""
    parked = Properties.of(headers={"x-redrive-digest": "of the letter before it was edited"}, message_id="m1")
    outgoing = copy_of(claimed(parked, body=b"edited"), replace(RULES, target=target), now_ms=NOW_MS)
    assert isinstance(outgoing.properties, Properties)
    digest = digest_of(parked, queue, message_id="m1", body=b"edited")
    assert outgoing.properties.header("x-redrive-digest") == digest


def test_what_was_parked_in_an_envelope_goes_back_without_it() -> None:
    inner = Properties.of(headers={"mine": 1}, message_id="m1", content_type="text/plain")
    outer = Properties.of(
        headers={"x-redrive-envelope": 1, "x-original-queue": "orders", "x-original-exchange": "shop", "mine": 1},
        message_id="m1",
        content_type="application/vnd.redrive.envelope",
    )
    outgoing = copy_of(claimed(outer, body=wrap_in_envelope(inner, b"body")), RULES, now_ms=NOW_MS)
    made = outgoing.properties
    assert isinstance(made, Properties)
    assert outgoing.body == b"body"
    assert (made.content_type, made.header("mine"), made.header("x-redrive-envelope")) == ("text/plain", 1, None)
    assert (made.header("x-original-queue"), made.header("x-original-exchange")) == ("orders", "shop")
    assert made.header("x-redrive-digest") == digest_of(inner, "orders", message_id="m1", body=b"body")


def test_what_has_no_room_for_the_headers_of_a_copy_is_refused_with_the_way_out() -> None:
    large = Properties.of(headers={"large": "x" * 130_900}, message_id="m1")
    for letter in (
        claimed(large, body=b"body"),
        claimed(
            Properties.of(headers={"x-redrive-envelope": 1}, content_type="application/vnd.redrive.envelope"),
            body=wrap_in_envelope(large, b"body"),
        ),
    ):
        with pytest.raises(Uncopyable, match="leave no room"):
            copy_of(letter, RULES, now_ms=NOW_MS)
