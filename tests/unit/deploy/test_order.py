"""Targets come before sources, whatever the shape, and entrances are bound last."""

import pytest

from redrive.deploy import bindings_in_order, exchanges_in_order, queues_in_order, read_difference
from redrive.topology import Queue, Topology, compile_declaration, declare
from tests.unit.topology.example_declarations import NAMES, compiled


def topology(**sections: object) -> Topology:
    return compile_declaration(declare(**sections)).topology


def test_parking_comes_before_the_queue_that_dies_into_it_and_that_before_its_waits() -> None:
    order = [one.name for one in queues_in_order(topology(queues={"orders": {"retry": ["1s", "1m"]}}))]
    assert order == ["orders.parked", "orders", "orders.wait.1s", "orders.wait.1m"]


def test_a_loop_is_cut_somewhere_and_nothing_is_left_out() -> None:
    order = [one.name for one in queues_in_order(topology(queues={"q": {"retry": {"shape": "per-queue"}}}))]
    assert sorted(order) == ["q", "q.dlq", "q.retry"]
    assert order.index("q.retry") < order.index("q")


@pytest.mark.parametrize("name", NAMES)
def test_every_object_of_an_example_is_declared_once(name: str) -> None:
    one = compiled(name).topology
    assert set(queues_in_order(one)) == set(one.queues)
    assert len(queues_in_order(one)) == len(one.queues)
    assert set(exchanges_in_order(one)) == set(one.exchanges)
    assert set(bindings_in_order(one)) == set(one.bindings)
    assert len(bindings_in_order(one)) == len(one.bindings)


def test_an_alternate_exchange_comes_before_those_that_fall_back_on_it() -> None:
    one = topology(exchanges={"a": {"type": "topic", "alternate": "b"}, "b": "fanout"})
    assert [exchange.name for exchange in exchanges_in_order(one)] == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "entrances"),
    [
        ("file-pipeline", {"domain.events", "domain.commands"}),
        ("freeflow", {"freeflow.events"}),
        ("bookly", {"bookly.events"}),
    ],
)
def test_entrances_are_bound_last(name: str, entrances: set[str]) -> None:
    order = [one.source in entrances for one in bindings_in_order(compiled(name).topology)]
    assert order == sorted(order)
    assert True in order
    assert False in order


def test_a_chain_of_ten_thousand_queues_needs_no_deep_stack() -> None:
    def link(index: int) -> Queue:
        from redrive.topology import Arguments

        target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{index + 1}"}
        return Queue(name=f"q{index}", arguments=Arguments(target))

    chain = Topology(queues=tuple(link(index) for index in range(10_000)))
    assert [one.name for one in queues_in_order(chain)] == [f"q{index}" for index in reversed(range(10_000))]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received the value '1000' of type 'signedint' but current is the value '5000' of type 'signedint'",
            "queue q: x-message-ttl is 5000 on the broker and 1000 in the file",
        ),
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
            "received none but current is the value '5' of type 'long'",
            "queue q: x-max-length is 5 on the broker and not set in the file",
        ),
        (
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'e' in vhost '/': "
            "received 'topic' but current is 'direct'",
            "queue q: type is direct on the broker and topic in the file",
        ),
        ("PRECONDITION_FAILED - something else", "queue q: PRECONDITION_FAILED - something else"),
    ],
)
def test_the_brokers_406_is_read_as_a_difference(text: str, line: str) -> None:
    assert read_difference("queue q", text).text == line
