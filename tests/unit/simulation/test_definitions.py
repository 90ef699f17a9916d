"""Somebody's definitions.json: what the broker does with a message there, above all where it loses it.

The losses are those measured on real brokers (cycles, delivery limits, dead-letter exchanges that are not there).
"""

from typing import Any

import pytest

from redrive.core import InvalidInput
from redrive.simulation import EndState, PublishRoute, Timeline, UnknownQueue, UnreachableQueue, simulate
from redrive.topology import Arguments as Table
from redrive.topology import Binding, Exchange, Policy, Queue, Topology

ALL = ("3.10", "4.0", "4.3")
SINCE_4 = ("4.0", "4.3")


def queue(name: str, kind: str = "classic", *, vhost: str = "/", **arguments: Any) -> Queue:
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return Queue(name=name, vhost=vhost, arguments=Table({"x-queue-type": kind, **table}))


def to(name: str) -> dict[str, str]:
    return {"dead_letter_exchange": "", "dead_letter_routing_key": name}


def simulate_first(*queues: Queue, script: str | None = None, profile: str = "4.3", **more: Any) -> Timeline:
    """The timeline of a message in the first queue."""
    timeline, left_out = simulate(Topology(queues=queues, **more), queue=queues[0].name, script=script, profile=profile)
    assert left_out == ()
    return timeline


@pytest.mark.parametrize("profile", ALL)
def test_a_loop_by_reject_goes_on_as_long_as_it_is_rejected(profile: str) -> None:
    loop = (queue("a", **to("b")), queue("b", message_ttl=5_000, **to("a")))
    timeline = simulate_first(*loop, script="reject*30,ok", profile=profile)
    assert (timeline.end_state, timeline.runs, timeline.at_ms) == (EndState.HANDLED, 31, 150_000)
    assert simulate_first(*loop, profile=profile).end_state is EndState.ENDLESS


@pytest.mark.parametrize("profile", ALL)
def test_a_delivery_limit_into_the_loop_is_dropped_as_a_cycle(profile: str) -> None:
    loop = (queue("a", "quorum", delivery_limit=2, **to("b")), queue("b", message_ttl=5_000, **to("a")))
    timeline = simulate_first(*loop, script="crash", profile=profile)
    assert (timeline.end_state, timeline.final_queue, timeline.runs) == (EndState.LOST, None, 3)
    assert timeline.text == "Lost after 3 runs, 5s after it was published: automatic cycle a→b→a."


@pytest.mark.parametrize("profile", ALL)
def test_with_at_least_once_the_same_cycle_is_stuck_for_good(profile: str) -> None:
    safe = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    loop = (
        queue("a", "quorum", delivery_limit=2, **to("b"), **safe),
        queue("b", "quorum", message_ttl=5_000, **to("a"), **safe),
    )
    timeline = simulate_first(*loop, script="crash", profile=profile)
    assert (timeline.end_state, timeline.final_queue, timeline.is_safe) == (EndState.STUCK, "b", False)


@pytest.mark.parametrize("profile", SINCE_4)
def test_a_quorum_queue_without_dlx_drops_at_its_default_limit(profile: str) -> None:
    timeline = simulate_first(queue("orders", "quorum"), script="crash", profile=profile)
    assert (timeline.end_state, timeline.runs) == (EndState.LOST, 21)
    assert timeline.text.endswith(": delivery_limit in orders, which has no dead-letter exchange.")


def test_without_a_default_limit_3_10_goes_on_for_ever() -> None:
    assert simulate_first(queue("orders", "quorum"), script="crash", profile="3.10").end_state is EndState.ENDLESS


def test_a_nack_counts_up_to_4_0_and_not_on_4_3() -> None:
    assert simulate_first(queue("orders", "quorum"), script="nack", profile="4.0").runs == 21
    assert simulate_first(queue("orders", "quorum"), script="nack", profile="4.3").end_state is EndState.ENDLESS
    assert simulate_first(queue("orders", "quorum"), script="return", profile="4.3").runs == 21


def test_a_negative_limit_discards_on_the_first_return_on_3_10() -> None:
    """`redrive compile --for 3.10` refuses it for that reason, and so does a simulation."""
    with pytest.raises(InvalidInput, match="drops a message on its first requeue"):
        simulate_first(queue("orders", "quorum", delivery_limit=-1), script="nack,ok", profile="3.10")
    assert simulate_first(queue("orders", "quorum", delivery_limit=-1), script="nack,ok").end_state is EndState.HANDLED


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_at_most_once_to_a_missing_exchange_is_lost(profile: str, kind: str) -> None:
    timeline = simulate_first(queue("orders", kind, dead_letter_exchange="nowhere"), profile=profile)
    assert (timeline.end_state, timeline.final_queue, timeline.runs) == (EndState.LOST, None, 1)
    assert "no queue takes what dead-letter exchange nowhere gets" in timeline.text


@pytest.mark.parametrize("profile", ALL)
def test_at_least_once_to_a_missing_exchange_is_held(profile: str) -> None:
    held = queue(
        "orders",
        "quorum",
        dead_letter_exchange="nowhere",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    timeline = simulate_first(held, profile=profile)
    assert (timeline.end_state, timeline.final_queue) == (EndState.STUCK, "orders")


def test_a_reject_without_dlx_is_a_loss_and_an_ack_is_none() -> None:
    timeline = simulate_first(queue("orders"))
    assert (
        timeline.text
        == "Lost after 1 run, 0s after it was published: rejected in orders, which has no dead-letter exchange."
    )
    assert simulate_first(queue("orders"), script="ack").end_state is EndState.HANDLED


def test_a_dead_letter_is_found_where_it_is_kept() -> None:
    timeline = simulate_first(queue("orders", **to("graves")), queue("graves"))
    assert (timeline.end_state, timeline.final_queue) == (EndState.PARKED, "graves")
    (death,) = timeline.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("orders", "rejected", 1)


def test_a_dead_letter_queue_that_expires_loses_what_it_keeps() -> None:
    timeline = simulate_first(queue("orders", **to("graves")), queue("graves", expires=60_000))
    assert (timeline.end_state, timeline.at_ms) == (EndState.LOST, 60_000)


def test_a_policy_gives_a_queue_its_dead_letter_exchange() -> None:
    policy = Policy(
        name="dlx",
        pattern="orders",
        definition=Table({"dead-letter-exchange": "", "dead-letter-routing-key": "graves"}),
    )
    timeline = simulate_first(queue("orders"), queue("graves"), policies=(policy,))
    assert (timeline.end_state, timeline.final_queue) == (EndState.PARKED, "graves")


def test_other_queues_of_the_exchange_get_their_copy_and_take_no_part() -> None:
    timeline = simulate_first(
        queue("orders", **to("wait")),
        queue("wait", message_ttl=1_000, dead_letter_exchange="events", dead_letter_routing_key="orders.retry"),
        queue("audit", message_ttl=60_000),
        exchanges=(Exchange(name="events", type="topic"),),
        bindings=(
            Binding(source="events", destination="orders", routing_key="orders.*"),
            Binding(source="events", destination="audit", routing_key="#"),
        ),
        script="reject,ok",
    )
    assert (timeline.end_state, timeline.runs, timeline.at_ms) == (EndState.HANDLED, 2, 1_000)
    assert [event.also for event in timeline.events if event.also] == [("audit",), ("audit",)]


def test_a_key_that_no_queue_takes_is_a_loss_and_one_that_others_take_a_mistake() -> None:
    topology = Topology(
        queues=(queue("orders"), queue("audit")),
        exchanges=(Exchange(name="events", type="topic"),),
        bindings=(
            Binding(source="events", destination="orders", routing_key="orders.*"),
            Binding(source="events", destination="audit", routing_key="audit.*"),
        ),
    )
    timeline, _ = simulate(topology, queue="orders", publish_to=PublishRoute(exchange="events", key="nobody"))
    assert (timeline.end_state, timeline.runs) == (EndState.LOST, 0)
    with pytest.raises(UnreachableQueue, match="it goes to audit"):
        simulate(topology, queue="orders", publish_to=PublishRoute(exchange="events", key="audit.x"))
    with pytest.raises(UnreachableQueue, match="no exchange 'nope'"):
        simulate(topology, queue="orders", publish_to=PublishRoute(exchange="nope", key=""))


def test_an_unknown_queue_is_told_the_nearest_one() -> None:
    with pytest.raises(UnknownQueue, match="did you mean `orders`"):
        simulate(Topology(queues=(queue("orders"),)), queue="ordres")


def test_a_queue_in_two_vhosts_wants_to_be_told_which() -> None:
    both = Topology(
        queues=(queue("orders", vhost="a"), queue("orders", vhost="b", **to("graves")), queue("graves", vhost="b"))
    )
    with pytest.raises(UnknownQueue, match="is in the vhosts a, b"):
        simulate(both, queue="orders")
    assert simulate(both, queue="orders", vhost="a")[0].end_state is EndState.LOST
    assert simulate(both, queue="orders", vhost="b")[0].final_queue == "graves"


def test_a_plain_queue_can_not_fail_by_number() -> None:
    with pytest.raises(InvalidInput, match=r"--script reject\*3,ok"):
        simulate(Topology(queues=(queue("orders"),)), queue="orders", fail=3)


def test_what_the_engine_can_not_declare_is_left_out_and_said() -> None:
    topology = Topology(queues=(queue("orders"),), exchanges=(Exchange(name="later", type="x-delayed-message"),))
    timeline, left_out = simulate(topology, queue="orders", script="ok")
    assert timeline.end_state is EndState.HANDLED
    assert [one.address for one in left_out] == ["exchange later"]


def test_a_stream_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is a stream"):
        simulate(Topology(queues=(queue("log", "stream"),)), queue="log")
