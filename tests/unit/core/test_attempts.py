"""Counting attempts: against what real brokers wrote, and against what nobody should write."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import Counter, PlainMessage, count_retries, deaths_in, headers, original_headers, read_count
from redrive.core.headers import COUNT_MAX
from tests.live.runtime.recording import EXCHANGE, ROUTING_KEY, read_recorded
from tests.unit.core.strategies import garbage

VERSIONS = ("3.10", "4.0", "4.3")
CLASSIC_COUNTS_NOTHING = {(version, "classic") for version in VERSIONS}

# Where the header does not have the true number, because the broker forgot it or somebody did not strip it: no shape
# counts that way. What is not listed here must be counted right, and what is listed must still be wrong.
WRONG: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "republished": (
        "4.x passes a client's x-death through once and starts a new one at the next death",
        {(version, kind) for version in ("4.0", "4.3") for kind in ("classic", "quorum")},
    ),
    "redriven-unstripped": (
        "a redrive that strips nothing brings the old count along: for good on 3.10, once on 4.x",
        {(version, kind) for version in VERSIONS for kind in ("classic", "quorum")},
    ),
    "nacks": (
        "a classic queue counts no returns; 4.3 counts no nack",
        CLASSIC_COUNTS_NOTHING | {("4.3", "quorum")},
    ),
    "returns": ("a classic queue counts no returns", CLASSIC_COUNTS_NOTHING),
    "deaths-of-consumers": ("a classic queue counts no returns", CLASSIC_COUNTS_NOTHING),
    "delivery-limit": (
        "the count of deliveries is left behind when the limit sends a message away, before 4.3",
        {("3.10", "quorum"), ("4.0", "quorum")},
    ),
    "returns-then-rejection": (
        "the count of deliveries starts afresh with every dead-lettering, before 4.3",
        {("3.10", "quorum"), ("4.0", "quorum")},
    ),
}

NEVER_COPIED = ("rejections", "nacks", "returns", "deaths-of-consumers", "returns-then-rejection")


def recorded() -> list[Any]:
    return [
        pytest.param(
            version, one["scenario"], one["kind"], one["deliveries"], id=f"{version}-{one['kind']}-{one['scenario']}"
        )
        for version in VERSIONS
        for one in read_recorded(version)
    ]


def letter_of(delivery: dict[str, Any]) -> PlainMessage:
    return PlainMessage(
        queue=delivery["queue"],
        exchange=delivery["exchange"],
        routing_key=delivery["routing_key"],
        redelivered=delivery["redelivered"],
        headers=delivery["headers"],
    )


@pytest.mark.parametrize(("version", "scenario", "kind", "deliveries"), recorded())
def test_the_count_is_the_number_of_failed_runs_where_the_broker_remembers_it(
    version: str, scenario: str, kind: str, deliveries: list[dict[str, Any]]
) -> None:
    counted = [count_retries(letter_of(one), Counter(one["counter"])) for one in deliveries]
    true = [one["failed_runs"] for one in deliveries]
    assert len(true) >= 4
    why, wrong_on = WRONG.get(scenario, ("", set()))
    if (version, kind) in wrong_on:
        assert counted != true, f"counted right by now, so no longer: {why}"
    else:
        assert counted == true


@pytest.mark.parametrize("scenario", NEVER_COPIED)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_that_was_rejected_and_came_back_still_knows_its_exchange_and_key(
    version: str, scenario: str
) -> None:
    deliveries = [one for play in read_recorded(version) if play["scenario"] == scenario for one in play["deliveries"]]
    assert len(deliveries) >= 4
    for delivery in deliveries:
        assert original_headers(letter_of(delivery)) == {
            headers.ORIGINAL_QUEUE: delivery["queue"],
            headers.ORIGINAL_EXCHANGE: EXCHANGE,
            headers.ORIGINAL_ROUTING_KEY: ROUTING_KEY,
        }


DIED_TWICE = [
    delivery
    for version in VERSIONS
    for play in read_recorded(version)
    for delivery in play["deliveries"]
    if len(delivery["headers"].get(headers.DEATHS, ())) > 1
]


@given(st.sampled_from(DIED_TWICE), st.data())
def test_the_order_of_deaths_never_matters(delivery: dict[str, Any], data: st.DataObject) -> None:
    deaths = delivery["headers"][headers.DEATHS]
    # A death of another kind in the same queue, after it came back: its exchange is the way back.
    deaths = [
        *deaths,
        {"queue": delivery["queue"], "reason": "expired", "count": 1, "exchange": "", "routing-keys": ["q"]},
    ]
    shuffled = {**delivery["headers"], headers.DEATHS: data.draw(st.permutations(deaths))}
    letter = letter_of({**delivery, "headers": shuffled})
    assert count_retries(letter, Counter.REJECTIONS) == count_retries(letter_of(delivery), Counter.REJECTIONS)
    assert (
        original_headers(letter)[headers.ORIGINAL_EXCHANGE]
        == original_headers(letter_of(delivery))[headers.ORIGINAL_EXCHANGE]
    )


Recording = dict[str, Any]
Transitions = dict[str, list[tuple[Recording, Recording]]]


def transitions(version: str, kind: str, counter: Counter) -> Transitions:
    """What a broker made of a message in a certain state: by the state, pairs of a recorded delivery and the next.

    A state is all a consumer sees of a message. Lives that were recorded apart meet where they look the same, so a nack
    may follow the death of a consumer though nobody has recorded just that. Recordings of a broker that forgets
    (`WRONG`) are left out: there is nothing to be counted right.
    """
    found: Transitions = {}
    for play in read_recorded(version):
        if play["kind"] != kind or (version, kind) in WRONG.get(play["scenario"], ("", set()))[1]:
            continue
        prefix = f"{play['scenario']}.{kind}."
        deliveries: list[Recording] = json.loads(json.dumps(play["deliveries"]).replace(prefix, ""))
        for before, after in itertools.pairwise(one for one in deliveries if one["counter"] == counter.value):
            found.setdefault(state_of(before), []).append((before, after))
    return found


def state_of(delivery: Recording) -> str:
    return json.dumps({name: value for name, value in delivery.items() if name != "failed_runs"}, sort_keys=True)


COUNTED = [
    (version, kind, counter, found)
    for version in VERSIONS
    for kind in ("classic", "quorum")
    for counter in Counter
    if (found := transitions(version, kind, counter))
]


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[Recording, Counter, int]]:
    """Deliveries of one message, each with the runs that have failed so far: a walk through what was recorded.

    Where a life was walked to wherever it ends, a copy may begin another one that carries the count so far. That the
    broker leaves such a header alone is recorded too (`republished-carrying-the-count`, `returned-copy`).
    """
    _, _, counter, steps = draw(st.sampled_from(COUNTED))
    walked: list[tuple[Recording, Counter, int]] = []
    carried = 0
    for _ in range(draw(st.integers(1, 3))):
        starts = [before for onward in steps.values() for before, _ in onward if is_afresh(before)]
        now, failed = draw(st.sampled_from(starts)), 0
        walked.append((carrying(now, carried), counter, carried))
        while (onward := steps.get(state_of(now))) and draw(st.booleans() | st.just(True)):
            before, after = draw(st.sampled_from(onward))
            if is_afresh(after):  # redriven: nothing of its past counts any more
                failed, carried = 0, 0
            else:
                failed += after["failed_runs"] - before["failed_runs"]
            now = after
            walked.append((carrying(now, carried), counter, carried + failed))
        # The last delivery's run fails as well, and it goes on as a copy.
        carried += failed + 1
    return walked


def is_afresh(delivery: Recording) -> bool:
    return int(delivery["failed_runs"]) == 0


def carrying(delivery: Recording, count: int) -> Recording:
    told = delivery["headers"].get(headers.ATTEMPTS_BEFORE, 0) + count
    return {**delivery, "headers": {**delivery["headers"], **({headers.ATTEMPTS_BEFORE: told} if told else {})}}


@given(lives())
def test_any_walk_through_what_brokers_do_is_counted_as_its_failed_runs(
    life: list[tuple[Recording, Counter, int]],
) -> None:
    assert [count_retries(letter_of(delivery), counter) for delivery, counter, _ in life] == [
        failed for _, _, failed in life
    ]


def test_the_walks_go_further_than_any_recording() -> None:
    """For each way of counting there is a state from which recordings lead to different ones."""
    assert {(version, counter) for version, _, counter, _ in COUNTED} == {
        (version, counter) for version in VERSIONS for counter in Counter
    }
    for version, kind, counter, steps in COUNTED:
        if counter is Counter.HEADER:
            continue  # one recording has it all
        crossings = [state for state, onward in steps.items() if len({state_of(after) for _, after in onward}) > 1]
        assert crossings, f"{version} {kind} {counter.value}"


@given(
    st.sampled_from(Counter),
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (headers.RETRY_COUNT, headers.ATTEMPTS_BEFORE, headers.DEATHS, headers.DELIVERY_COUNT), garbage
        ),
    ),
)
def test_a_count_is_a_whole_number_that_is_never_negative_whatever_the_headers_hold(
    counter: Counter, found: dict[str, Any]
) -> None:
    count = count_retries(PlainMessage(queue="q", headers=found), counter)
    assert type(count) is int
    assert 0 <= count <= 6 * COUNT_MAX


@given(garbage.filter(lambda value: not isinstance(value, int | str)))
def test_a_count_that_is_no_number_is_zero(value: Any) -> None:
    assert read_count(value) == 0


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (0, 0),
        (3, 3),
        ("3", 3),
        (-1, 0),
        (True, 0),
        (3.0, 0),
        ("-3", 0),
        ("3.5", 0),
        ("", 0),
        ("٣", 0),
        ("9" * 19, COUNT_MAX),
        ("9" * 5000, 0),
        (2**63, COUNT_MAX),
        (b"3", 0),
    ],
)
def test_a_number_is_read_as_it_was_meant_or_not_at_all(value: Any, count: int) -> None:
    assert read_count(value) == count


@given(garbage)
def test_only_deaths_in_this_queue_for_this_reason_count(others: Any) -> None:
    deaths = [
        {"queue": "q", "reason": "expired", "count": 7},
        {"queue": "other", "reason": "rejected", "count": 9},
        {"queue": "q", "reason": "rejected", "count": 2},
        others if not isinstance(others, dict) else {**others, "queue": "nobody's"},
    ]
    assert deaths_in(deaths, "q").rejections == 2


@given(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from(Counter))
def test_what_was_done_before_a_copy_is_added_to_every_count(before: int, counted: int, counter: Counter) -> None:
    found = {
        headers.ATTEMPTS_BEFORE: before,
        headers.RETRY_COUNT: counted,
        headers.DELIVERY_COUNT: counted,
        headers.DEATHS: [{"queue": "q", "reason": "rejected", "count": counted}],
    }
    assert count_retries(PlainMessage(queue="q", redelivered=True, headers=found), counter) == before + counted
