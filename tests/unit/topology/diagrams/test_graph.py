"""The role of each queue, from the graph alone and with retry routes."""

import pytest

from redrive.topology.argument_table import Arguments
from redrive.topology.diagrams.graph import Graph, build_graph
from redrive.topology.diagrams.message_flows import Mover
from redrive.topology.diagrams.queue_roles import QueueRole
from redrive.topology.model import Binding, DestinationType, Exchange, Policy, Queue, Topology
from tests.unit.topology.diagrams.samples import EXAMPLES, queue


def graph_of(*queues: Queue, bindings: tuple[Binding, ...] = (), policies: tuple[Policy, ...] = ()) -> Graph:
    exchanges = tuple(Exchange(name=name, type=kind) for name, kind in (("in", "topic"), ("dlx", "fanout")))
    return build_graph(Topology(exchanges=exchanges, queues=queues, bindings=bindings, policies=policies))


def roles(graph: Graph) -> dict[str, str]:
    return {name: graph.role((vhost, name)).value for vhost, name in graph.queues}


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"foreign"}))
def test_the_graph_alone_gives_the_same_roles_as_the_retry_routes(name: str) -> None:
    topology, arranged = EXAMPLES[name]()
    told, inferred = build_graph(topology, arranged), build_graph(topology)
    assert roles(inferred) == roles(told)
    assert inferred.queue_roles.owner == told.queue_roles.owner


def test_messages_that_expire_into_parking_do_not_make_a_wait_queue() -> None:
    work = queue("work", message_ttl=1000, dead_letter_exchange="dlx")
    graph = graph_of(
        work,
        queue("graveyard"),
        bindings=(Binding(source="in", destination="work"), Binding(source="dlx", destination="graveyard")),
    )
    assert roles(graph) == {"work": "main", "graveyard": "parking"}


def test_a_delay_in_front_of_a_queue_is_a_wait_queue() -> None:
    graph = graph_of(
        queue("slow", message_ttl=1000, dead_letter_exchange="", dead_letter_routing_key="work"),
        queue("work"),
        bindings=(Binding(source="in", destination="work"),),
    )
    assert roles(graph) == {"slow": "wait", "work": "main"}


def test_a_loop_without_any_time_to_live_still_waits_in_the_queue_nobody_publishes_to() -> None:
    graph = graph_of(
        queue("pause", dead_letter_exchange="", dead_letter_routing_key="work"),
        queue("work", dead_letter_exchange="", dead_letter_routing_key="pause"),
        bindings=(Binding(source="in", destination="work"),),
    )
    assert roles(graph) == {"pause": "wait", "work": "main"}


def test_a_time_to_live_on_everything_leaves_one_main_queue_in_the_loop() -> None:
    everything = Policy(name="ttl", pattern=".*", definition=Arguments({"message-ttl": 60_000}))
    graph = graph_of(
        queue("work", dead_letter_exchange="", dead_letter_routing_key="pause"),
        queue("pause", dead_letter_exchange="", dead_letter_routing_key="work"),
        bindings=(Binding(source="in", destination="work"),),
        policies=(everything,),
    )
    assert roles(graph) == {"work": "main", "pause": "wait"}


def test_a_policy_gives_a_queue_its_dead_letter_exchange_and_arguments_win_over_it() -> None:
    policy = Policy(
        name="dead",
        pattern="^w",
        definition=Arguments({"dead-letter-exchange": "dlx", "message-ttl": 500, "delivery-limit": 9}),
        apply_to="queues",
        priority=1,
    )
    lower = Policy(name="lower", pattern=".*", definition=Arguments({"dead-letter-exchange": "nowhere"}))
    graph = graph_of(
        queue("w1", message_ttl=900),
        queue("w2", dead_letter_exchange="", dead_letter_routing_key="w1"),
        queue("morgue"),
        bindings=(Binding(source="dlx", destination="morgue"),),
        policies=(lower, policy),
    )
    assert graph.settings["/", "w1"].ttl_ms == 500
    assert graph.settings["/", "w1"].delivery_limit == 9
    assert graph.dead_letters["/", "w1"].targets == (("/", "morgue"),)
    assert graph.dead_letters["/", "w2"].targets == (("/", "w1"),)
    assert graph.dead_letters["/", "morgue"].gap == "no such exchange"


@pytest.mark.parametrize(
    ("pattern", "key", "arrives"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.#", "a", True),
        ("#.c", "a.b.c", True),
        ("#.b.#.d", "a.b.c.d", True),
        ("*.b", "a.#", False),
        ("a.b", "a.b", True),
        ("", "", True),
        ("#", "", True),
        ("*", "", False),
    ],
)
def test_dead_letters_follow_topic_patterns(pattern: str, key: str, arrives: bool) -> None:
    graph = graph_of(
        queue("work", dead_letter_exchange="in", dead_letter_routing_key=key),
        queue("end"),
        bindings=(Binding(source="in", destination="end", routing_key=pattern),),
    )
    assert bool(graph.dead_letters["/", "work"].targets) is arrives


def test_dead_letters_follow_exchanges_bound_to_exchanges_and_alternates() -> None:
    exchanges = (
        Exchange(name="first", type="direct", arguments=Arguments({"alternate-exchange": "rest"})),
        Exchange(name="second", type="fanout"),
        Exchange(name="rest", type="fanout"),
    )
    bindings = (
        Binding(source="first", destination="second", destination_type=DestinationType.EXCHANGE, routing_key="k"),
        Binding(source="second", destination="first", destination_type=DestinationType.EXCHANGE),
        Binding(source="second", destination="matched"),
        Binding(source="rest", destination="unmatched"),
    )
    queues = (
        queue("one", dead_letter_exchange="first", dead_letter_routing_key="k"),
        queue("two", dead_letter_exchange="first", dead_letter_routing_key="other"),
        queue("matched"),
        queue("unmatched"),
    )
    graph = build_graph(Topology(exchanges=exchanges, queues=queues, bindings=bindings))
    assert graph.dead_letters["/", "one"].targets == (("/", "matched"),)
    assert graph.dead_letters["/", "two"].targets == (("/", "unmatched"),)


def test_the_arrows_of_a_ladder_say_who_moves_the_message_and_why() -> None:
    graph = build_graph(*EXAMPLES["ladder"]())
    said = [(flow.mover, flow.reason, flow.targets[0][1]) for flow in graph.flows(("/", "orders"))]
    assert said == [
        (Mover.CONSUMER, "retry 1", "orders.wait.30s"),
        (Mover.CONSUMER, "retry 2", "orders.wait.5m"),
        (Mover.CONSUMER, "retry 3", "orders.wait.30m"),
        (Mover.BROKER, "delivery limit 20", "orders.parked"),
        (Mover.CONSUMER, "after 4 runs", "orders.parked"),
    ]


def test_a_shared_dead_letter_queue_belongs_to_no_block() -> None:
    graph = build_graph(*EXAMPLES["freeflow"]())
    assert graph.shared == (("/", "freeflow.events.dlq"),)
    assert graph.role(("/", "freeflow.events.dlq")) == QueueRole.PARKING
    assert graph.entries == (("/", "freeflow.events"),)


def test_queues_of_the_same_name_in_two_vhosts_are_two() -> None:
    twins = (Queue(name="work"), Queue(name="work", vhost="other"))
    graph = build_graph(Topology(queues=twins))
    assert [block.main for block in graph.blocks] == [("/", "work"), ("other", "work")]
