"""The literal tables of connection and channel states are complete and consistent."""

from enum import Enum
from typing import Any

import pytest

from redrive import wire
from redrive.wire.methods import Method
from redrive.wire.protocol_states import ProtocolHeader

TABLES: list[tuple[dict[Any, dict[Any, Any]], Enum]] = [
    (wire.CONNECTION, wire.ConnectionState.IDLE),
    (wire.CHANNEL, wire.ChannelState.CLOSED),
]


@pytest.mark.parametrize(("table", "first"), TABLES)
def test_every_state_has_a_row_and_can_be_reached(table: dict[Any, dict[Any, Any]], first: Enum) -> None:
    assert set(table) == set(type(first))
    reached, todo = {first}, [first]
    while todo:
        for state in table[todo.pop()].values():
            if state not in reached:
                reached.add(state)
                todo.append(state)
    assert reached == set(table)


@pytest.mark.parametrize(("table", "first"), TABLES)
def test_a_method_changes_the_state_only_when_its_speaker_sends_it(
    table: dict[Any, dict[Any, Any]], first: Enum
) -> None:
    for row in table.values():
        for speaker, step in row:
            if step is not ProtocolHeader:
                assert issubclass(step, Method)
                assert step.SPEAKER in (None, speaker)


@pytest.mark.parametrize(("table", "first"), TABLES)
def test_closing_looks_the_same_from_both_ends(table: dict[Any, dict[Any, Any]], first: Enum) -> None:
    def mirrored(state: Enum) -> str:
        swap = {"CLIENT_CLOSING": "SERVER_CLOSING", "SERVER_CLOSING": "CLIENT_CLOSING"}
        return swap.get(state.name, state.name)

    for state in table:
        if state.name.endswith("CLOSING"):
            twin = next(each for each in table if each.name == mirrored(state))
            assert {(speaker.peer, step): mirrored(after) for (speaker, step), after in table[state].items()} == {
                step: after.name for step, after in table[twin].items()
            }
