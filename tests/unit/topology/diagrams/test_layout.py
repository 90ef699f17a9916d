"""Pictures that a person can read: nothing lies on anything else, no line runs through a box or a word."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from redrive.topology.arrangement import Arrangement
from redrive.topology.diagrams.graph import build_graph
from redrive.topology.diagrams.layout import lay_out
from redrive.topology.diagrams.scene import Bounds, Look, Scene
from redrive.topology.model import Topology
from tests.unit.topology.diagrams.samples import EXAMPLES
from tests.unit.topology.diagrams.strategies import arrangements, topologies


def scene_of(topology: Topology, arranged: Iterable[Arrangement]) -> Scene:
    return lay_out(build_graph(topology, arranged))


def assert_readable(scene: Scene) -> None:
    boxes = [box.bounds for box in scene.boxes if box.look != Look.CARD]
    cards = [box.bounds for box in scene.boxes if box.look == Look.CARD]
    words = [label.bounds for label in scene.labels]
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
@given(topologies, arrangements)
def test_nothing_lies_on_anything_else_in_any_picture(topology: Topology, arranged: tuple[Arrangement, ...]) -> None:
    assert_readable(scene_of(topology, arranged))


def test_fifty_queues_stand_in_columns_of_even_height() -> None:
    topology, arranged = EXAMPLES["fifty-queues"]()
    scene = scene_of(topology, arranged)
    cards = [box for box in scene.boxes if box.look == Look.CARD]
    columns = {x: max(card.bounds.bottom for card in cards if card.x == x) for x in {card.x for card in cards}}
    assert len(cards) == 50
    assert len(columns) > 1
    assert max(columns.values()) - min(columns.values()) <= 2 * max(card.height for card in cards)


def test_exchanges_stand_left_queues_in_the_middle_consumers_right() -> None:
    topology, arranged = EXAMPLES["ladder"]()
    boxes = {box.look: box for box in scene_of(topology, arranged).boxes}
    assert boxes[Look.ENTRY].bounds.right < boxes[Look.MAIN].x
    assert boxes[Look.MAIN].bounds.right < boxes[Look.CONSUMER].x
    assert boxes[Look.MAIN].bounds.bottom < boxes[Look.WAIT].y
    assert boxes[Look.WAIT].bounds.bottom < boxes[Look.PARKING].y


def test_what_several_queues_share_stands_at_the_bottom() -> None:
    topology, arranged = EXAMPLES["freeflow"]()
    boxes = scene_of(topology, arranged).boxes
    (parking,) = (box for box in boxes if box.look == Look.PARKING)
    assert parking.y > max(box.bounds.bottom for box in boxes if box.look in (Look.MAIN, Look.WAIT))
