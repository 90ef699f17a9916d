"""Pictures that a person can read: nothing lies on anything else, no line runs through a box or a word."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from redrive.topology.argument_table import Arguments
from redrive.topology.diagrams.graph import build_graph
from redrive.topology.diagrams.layout import lay_out
from redrive.topology.diagrams.scene import Look, Scene
from redrive.topology.model import Binding, DestinationType, Exchange, Queue, Topology
from redrive.topology.retry_routes import MoveBy, Parking, RetryRoutes, Wait
from tests.unit.topology.diagrams.bounds import Bounds, bounds_of
from tests.unit.topology.diagrams.samples import EXAMPLES
from tests.unit.topology.diagrams.strategies import retry_routes, topologies


def scene_of(topology: Topology, arranged: Iterable[RetryRoutes]) -> Scene:
    return lay_out(build_graph(topology, arranged))


def assert_readable(scene: Scene) -> None:
    boxes = [bounds_of(box) for box in scene.boxes if box.look != Look.CARD]
    cards = [bounds_of(box) for box in scene.boxes if box.look == Look.CARD]
    words = [bounds_of(label) for label in scene.labels]
    lines = [line for wire in scene.wires for line in map(_line, pairwise(wire.points))]
    assert _overlapping(boxes, boxes) == []
    assert _overlapping(cards, cards) == []
    assert _overlapping(words, words) == []
    assert _overlapping(words, boxes) == []
    assert _overlapping(lines, boxes) == []
    assert _overlapping(lines, words) == []
    for one in (*boxes, *cards, *words, *lines):
        assert one.left >= 0, one
        assert one.right <= scene.width, one
        assert one.top >= 0, one
        assert one.bottom <= scene.height, one


def _line(ends: tuple[tuple[float, float], tuple[float, float]]) -> Bounds:
    (x1, y1), (x2, y2) = ends
    assert x1 == x2 or y1 == y2, "lines are horizontal or vertical"
    thin = 0.01
    return Bounds(left=min(x1, x2), right=max(x1, x2) + thin, top=min(y1, y2), bottom=max(y1, y2) + thin)


def _overlapping(some: list[Bounds], others: list[Bounds]) -> list[tuple[Bounds, Bounds]]:
    # Lines end on the edge of a box, so boxes count as a little smaller than they are.
    shrunk = [
        Bounds(left=one.left + 0.5, right=one.right - 0.5, top=one.top + 0.5, bottom=one.bottom - 0.5) for one in others
    ]
    return [
        (one, other)
        for place, one in enumerate(some)
        for number, other in enumerate(shrunk)
        if (some is not others or number > place) and one.overlaps(other)
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_in_an_example_lies_on_anything_else(name: str) -> None:
    topology, arranged = EXAMPLES[name]()
    assert_readable(scene_of(topology, arranged))


@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_lies_on_anything_else_when_only_the_broker_is_known(name: str) -> None:
    topology, _ = EXAMPLES[name]()
    assert_readable(scene_of(topology, ()))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(topologies, retry_routes)
def test_nothing_lies_on_anything_else_in_any_picture(topology: Topology, arranged: tuple[RetryRoutes, ...]) -> None:
    assert_readable(scene_of(topology, arranged))


def test_fifty_queues_stand_in_columns_of_even_height() -> None:
    topology, arranged = EXAMPLES["fifty-queues"]()
    scene = scene_of(topology, arranged)
    cards = [box for box in scene.boxes if box.look == Look.CARD]
    columns = {x: max(bounds_of(card).bottom for card in cards if card.x == x) for x in {card.x for card in cards}}
    assert len(cards) == 50
    assert len(columns) > 1
    assert max(columns.values()) - min(columns.values()) <= 2 * max(card.height for card in cards)


@pytest.mark.parametrize("number", [*range(22, 27), *range(87, 92)])
def test_columns_are_added_until_the_picture_is_not_much_narrower_than_half_its_height(number: int) -> None:
    names = [f"orders.{place:02}" for place in range(number)]
    topology = Topology(
        exchanges=(Exchange(name="shop", type="topic"),),
        queues=tuple(Queue(name=name) for name in names),
        bindings=tuple(Binding(source="shop", destination=name, routing_key="#") for name in names),
    )
    scene = scene_of(topology, ())
    assert scene.width >= 0.416 * scene.height


def test_exchanges_stand_left_queues_in_the_middle_consumers_right() -> None:
    topology, arranged = EXAMPLES["ladder"]()
    boxes = {box.look: box for box in scene_of(topology, arranged).boxes}
    assert bounds_of(boxes[Look.ENTRY]).right < boxes[Look.MAIN].x
    assert bounds_of(boxes[Look.MAIN]).right < boxes[Look.CONSUMER].x
    assert bounds_of(boxes[Look.MAIN]).bottom < boxes[Look.WAIT].y
    assert bounds_of(boxes[Look.WAIT]).bottom < boxes[Look.PARKING].y


def test_what_several_queues_share_stands_at_the_bottom() -> None:
    topology, arranged = EXAMPLES["freeflow"]()
    boxes = scene_of(topology, arranged).boxes
    (parking,) = (box for box in boxes if box.look == Look.PARKING)
    assert parking.y > max(bounds_of(box).bottom for box in boxes if box.look in (Look.MAIN, Look.WAIT))


def test_the_line_of_an_exchange_meets_every_queue_it_feeds_in_whatever_column() -> None:
    """`late` feeds none of the first column, and stands there all the same: exchanges bound together stay together."""
    early = [f"early.{number:02}" for number in range(20)]
    late = [f"late.{number:02}" for number in range(20)]
    topology = Topology(
        exchanges=(Exchange(name="early", type="topic"), Exchange(name="late", type="topic")),
        queues=tuple(Queue(name=name) for name in (*early, *late)),
        bindings=(
            Binding(source="early", destination="late", destination_type=DestinationType.EXCHANGE, routing_key="#"),
            *(Binding(source="early", destination=name, routing_key="#") for name in early),
            *(Binding(source="late", destination=name, routing_key="#") for name in late),
        ),
    )
    scene = scene_of(topology, ())
    mains = {box.title: bounds_of(box) for box in scene.boxes if box.look == Look.MAIN}
    assert len({bounds.left for bounds in mains.values()}) > 1
    ends = [wire.points[-1] for wire in scene.wires]
    met = {
        name for name, bounds in mains.items() for x, y in ends if x == bounds.left and bounds.top <= y <= bounds.bottom
    }
    assert met == {*early, *late}


def test_not_bound_stands_beside_the_queue_it_is_said_of() -> None:
    topology = Topology(
        exchanges=(Exchange(name="shop", type="topic"),),
        queues=(Queue(name="bound"), Queue(name="forgotten"), Queue(name="bound too")),
        bindings=tuple(Binding(source="shop", destination=name, routing_key="#") for name in ("bound", "bound too")),
    )
    scene = scene_of(topology, ())
    (said,) = [bounds_of(label) for label in scene.labels if label.text == "not bound"]
    (queue,) = [bounds_of(box) for box in scene.boxes if box.look == Look.MAIN and box.title == "forgotten"]
    assert queue.top <= said.top
    assert said.bottom <= queue.bottom


def test_the_wait_queue_that_the_broker_fills_stands_next_to_its_queue() -> None:
    """What is rejected goes down one short way, and the lines of the handler's copies pass it by."""
    topology = Topology(
        queues=(
            _queue("orders", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.rejected"}),
            _queue("orders.asked", {"x-message-ttl": 1_000, **BACK}),
            _queue("orders.rejected", {"x-message-ttl": 5_000, **BACK}),
            Queue(name="orders.parked"),
        ),
    )
    arranged = RetryRoutes(
        shape="ladder",
        queue="orders",
        attempts=3,
        retry_by=MoveBy.PUBLISH,
        park_by=MoveBy.PUBLISH,
        waits=(
            Wait(delay_ms=1_000, queue="orders.asked", exchange="", routing_key="orders.asked"),
            Wait(delay_ms=5_000, queue="orders.rejected", exchange="", routing_key="orders.rejected"),
        ),
        parking=Parking(queue="orders.parked", exchange="", routing_key="orders.parked"),
    )
    waits = sorted(
        (box for box in scene_of(topology, [arranged]).boxes if box.look == Look.WAIT), key=lambda box: box.y
    )
    assert [box.title for box in waits] == ["orders.rejected", "orders.asked"]


BACK = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}


def _queue(name: str, arguments: dict[str, str | int]) -> Queue:
    return Queue(name=name, arguments=Arguments(arguments))
