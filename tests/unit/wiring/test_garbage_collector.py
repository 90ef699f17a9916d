"""The garbage collector of a process that only handles messages looks less often, and as before afterwards."""

import gc
from collections.abc import Iterator

import pytest

from redrive.wiring import YOUNG_MAX, rare_garbage_collection


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    before, was_enabled = gc.get_threshold(), gc.isenabled()
    gc.enable()  # commands that end soon turn it off, and tests run them in this process
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    if not was_enabled:
        gc.disable()


def test_what_is_there_is_left_alone_until_it_is_over() -> None:
    gc.set_threshold(700, 10, 10)
    with rare_garbage_collection():
        assert gc.get_threshold() == (YOUNG_MAX, 10, 10)
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("chosen", [0, 5 * YOUNG_MAX])
def test_who_has_turned_it_off_or_down_is_not_overruled(chosen: int) -> None:
    gc.set_threshold(chosen, 10, 10)
    with rare_garbage_collection():
        assert gc.get_threshold() == (chosen, 10, 10)
    assert gc.get_threshold() == (chosen, 10, 10)


def test_a_failure_within_leaves_it_as_it_was() -> None:
    gc.set_threshold(700, 10, 10)
    with pytest.raises(RuntimeError), rare_garbage_collection():
        raise RuntimeError("no broker")
    assert (gc.get_threshold(), gc.get_freeze_count()) == ((700, 10, 10), 0)


def test_cycles_of_handlers_are_still_found() -> None:
    class Node:
        me: "Node"
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    with rare_garbage_collection():
        most = 0
        for _ in range(5 * YOUNG_MAX):
            Node()
            most = max(most, Node.alive)
    assert most <= 2 * YOUNG_MAX
