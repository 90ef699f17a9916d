"""Which queues are collected: all parking of the five systems, never a main or a wait queue."""

from pathlib import Path

import pytest

from redrive.core import Severity
from redrive.deadletters.collect.sources import (
    NAME_PATTERNS,
    Source,
    SourceSelection,
    matches,
    select_by_name,
    select_from_broker,
    select_from_topology,
)
from redrive.management import QueueInfo
from redrive.topology import (
    Arguments,
    Binding,
    BrokerVersion,
    Compiled,
    DestinationType,
    Policy,
    PolicyMatcher,
    compile_declaration,
    parse_definitions,
    read_declaration,
    write_definitions,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
V3, V40, V43 = BrokerVersion


def compiled(example: str) -> Compiled:
    file = EXAMPLES / example / "redrive.yaml"
    return compile_declaration(read_declaration(file.read_text(), file=str(file)))


@pytest.mark.parametrize(
    "example", ["bookly", "event-bus", "file-pipeline", "freeflow", "ladder", "native", "ratatoskr"]
)
def test_of_a_declaration_exactly_its_parking_is_collected(example: str) -> None:
    built = compiled(example)
    selected = select_from_topology(built.topology, retry_routes=built.retry_routes, declared=built.declared)
    parkings = {one.parking.queue for one in built.retry_routes}
    mains = {one.queue for one in built.retry_routes}
    assert {one.dlq for one in selected.sources} == parkings
    assert {one.known_queue for one in selected.sources} <= mains | {None}
    assert selected.findings == ()


def test_each_dead_letter_queue_knows_the_queue_that_parks_there_and_its_service() -> None:
    built = compiled("event-bus")
    selected = select_from_topology(built.topology, retry_routes=built.retry_routes, declared=built.declared)
    found = {one.dlq: (one.known_queue, one.service) for one in selected.sources}
    assert found["wms.dlq.wms-cincout"] == ("wms.queue.wms-cincout", "wms-cincout")


@pytest.mark.parametrize("example", ["event-bus", "file-pipeline", "ladder"])
def test_a_definitions_file_gives_the_same_by_its_dead_letter_routing(example: str) -> None:
    built = compiled(example)
    plain = parse_definitions(write_definitions(built.topology), file="definitions.json").topology
    by_routing = {(one.dlq, one.known_queue) for one in select_from_topology(plain).sources}
    by_arrangement = {
        (one.dlq, one.known_queue)
        for one in select_from_topology(built.topology, retry_routes=built.retry_routes).sources
    }
    assert by_routing == by_arrangement


def test_a_pattern_that_matches_live_queues_is_refused_for_them_unless_forced() -> None:
    built = compiled("ladder")
    asked = {"retry_routes": built.retry_routes, "patterns": ["*"]}
    selected = select_from_topology(built.topology, **asked)  # type: ignore[arg-type]
    parkings = {one.parking.queue for one in built.retry_routes}
    assert {one.dlq for one in selected.sources} == parkings
    assert len(selected.refusals) == len(built.topology.queues) - len(parkings)
    assert any("is a wait queue" in one.text for one in selected.refusals)
    assert any("is a main queue" in one.text for one in selected.refusals)
    by_pattern = select_from_topology(built.topology, forced=True, **asked)  # type: ignore[arg-type]
    assert by_pattern == selected, "who insists must name each queue"
    names = [one.name for one in built.topology.queues]
    forced = select_from_topology(built.topology, retry_routes=built.retry_routes, patterns=names, forced=True)
    assert sorted(one.dlq for one in forced.sources) == sorted(names)
    assert forced.refusals == ()
    assert len(forced.findings) == len(selected.refusals)


@pytest.mark.parametrize(
    "name",
    ["orders.parked", "q.thumbnail.dlq", "wms.dlq.wms-cincout", "billing_error", "billing_skipped", "x.dead-letter"],
)
def test_the_names_people_give_dead_letter_queues_are_found(name: str) -> None:
    assert matches(name, NAME_PATTERNS)


@pytest.mark.parametrize("name", ["orders", "orders.wait.30s", "error.log", "deadline", "dlqueue"])
def test_other_names_are_left_alone(name: str) -> None:
    assert not matches(name, NAME_PATTERNS)


def info(name: str, *, type: str = "classic", consumers: int = 0, **arguments: str | int) -> QueueInfo:
    named = Arguments({key.replace("_", "-"): value for key, value in arguments.items()})
    return QueueInfo(vhost="/", name=name, type=type, arguments=named, consumers=consumers)


def test_of_a_broker_what_matches_is_collected_and_what_looks_alive_is_refused() -> None:
    queues = [
        info("orders"),
        info("orders.dlq", type="quorum"),
        info("busy.dlq", consumers=2),
        info("retry.dead", x_message_ttl=1000, x_dead_letter_exchange=""),
        info("log.dlq", type="stream"),
        info("orders.parked", type="quorum", x_delivery_limit=50),
    ]
    limits = Policy(name="limits", pattern="^orders", definition=Arguments({"delivery-limit": 30}), apply_to="queues")
    selected = select_from_broker(queues, policies=PolicyMatcher([limits]), observe_only=["*.parked"])
    assert selected.sources == (
        Source(vhost="/", dlq="orders.dlq", queue_type="quorum", delivery_limit=30),
        Source(vhost="/", dlq="busy.dlq", queue_type="classic"),
        Source(vhost="/", dlq="orders.parked", queue_type="quorum", delivery_limit=30, observe_only=True),
    )
    assert [(one.code, one.address) for one in selected.findings] == [
        ("consumed", "queue busy.dlq"),
        ("live-queue", "queue retry.dead"),
        ("stream", "queue log.dlq"),
    ]
    by_pattern = select_from_broker(queues, policies=PolicyMatcher([]), forced=True)
    assert "retry.dead" not in {one.dlq for one in by_pattern.sources}
    forced = select_from_broker(queues, policies=PolicyMatcher([]), patterns=["retry.dead"], forced=True)
    assert [one.dlq for one in forced.sources] == ["retry.dead"]


def test_what_looks_like_a_main_queue_must_be_named_exactly_and_insisted_on() -> None:
    queues = [
        info("orders", x_dead_letter_exchange="orders.dlx"),
        info("mail"),
        info("stock", consumers=1),
        info("orders.dlq"),
        info("billing_error"),
        info("notes"),
    ]
    bindings = [
        Binding(source="shop", destination="mail", routing_key="mail.#"),
        Binding(source="orders.dlx", destination="orders.dlq"),
        Binding(source="billing_error", destination="billing_error"),
        Binding(source="shop", destination="notes", destination_type=DestinationType.EXCHANGE),
    ]

    def select(*patterns: str, forced: bool = False) -> SourceSelection:
        book = PolicyMatcher([])
        return select_from_broker(queues, policies=book, patterns=patterns, forced=forced, bindings=bindings)

    for forced in (False, True):
        selected = select("*", forced=forced)
        assert [one.dlq for one in selected.sources] == ["orders.dlq", "billing_error", "notes"]
        assert [one.address for one in selected.refusals] == ["queue orders", "queue mail", "queue stock"]
    assert [one.dlq for one in select("orders", "mail", "stock").sources] == []
    insisted = select("orders", "mail", "stock", forced=True)
    assert [one.dlq for one in insisted.sources] == ["orders", "mail", "stock"]
    assert [one.severity for one in insisted.findings if one.code == "live-queue"] == [Severity.WARNING] * 3
    words = "has a dead-letter exchange of its own", "gets new messages from exchange shop", "is consumed by 1"
    assert all(word in one.text for word, one in zip(words, selected.refusals, strict=True))


def test_what_a_file_refuses_stays_refused_on_the_broker_and_what_it_knows_is_kept() -> None:
    built = compiled("event-bus")
    by_file = select_from_topology(
        built.topology, retry_routes=built.retry_routes, declared=built.declared, patterns=["wms.*"]
    )
    queues = [info(one.name) for one in built.topology.queues]
    selected = select_from_broker(queues, policies=PolicyMatcher([]), patterns=["wms.*"], topology=by_file)
    assert [(one.dlq, one.service) for one in selected.sources] == [("wms.dlq.wms-cincout", "wms-cincout")]
    assert selected.refusals == by_file.refusals


def test_without_management_only_exact_names_do() -> None:
    selected = select_by_name("/", ["orders.dlq", "*.dlq", "busy", "bills.dlq"], consumers={"busy": 1})
    assert [one.dlq for one in selected.sources] == ["orders.dlq", "bills.dlq"]
    assert [one.code for one in selected.findings] == ["pattern-without-management", "live-queue"]
    insisted = select_by_name("/", ["busy"], consumers={"busy": 1}, forced=True)
    assert [one.dlq for one in insisted.sources] == ["busy"]
    assert [one.code for one in insisted.findings] == ["live-queue", "consumed"]


@pytest.mark.parametrize(
    ("type", "limit", "expected"),
    [
        ("classic", None, {V3: (None, True), V40: (None, True), V43: (None, True)}),
        ("quorum", None, {V3: (None, False), V40: (20, True), V43: (20, True)}),
        ("quorum", 5, {V3: (5, True), V40: (5, True), V43: (5, True)}),
        ("quorum", -1, {V3: (0, True), V40: (None, False), V43: (None, False)}),
        (None, None, {V3: (None, False), V40: (20, False), V43: (20, False)}),
    ],
)
def test_the_limit_and_the_place_of_requeued_messages_are_those_that_were_measured(
    type: str | None, limit: int | None, expected: dict[BrokerVersion, tuple[int | None, bool]]
) -> None:
    source = Source(vhost="/", dlq="x", queue_type=type, delivery_limit=limit)
    found = {one: (source.effective_limit(one), source.requeues_to_front(one)) for one in BrokerVersion}
    assert found == expected
