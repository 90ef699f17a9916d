"""Which mutants are tried: drawn by a seed, so that anybody can draw the same ones again."""

import hashlib
from collections import defaultdict
from pathlib import Path

from tests.mutations.random_mutants.operators import Mutant, is_python, mutants

PACKAGE = "src/redrive"
EACH_ROOM_MIN = 6
"""However small a room is, some of its mutants are tried."""


def all_mutants(root: Path) -> list[Mutant]:
    """Every mutant of every module, in the order of paths and places."""
    found: list[Mutant] = []
    for file in sorted((root / PACKAGE).rglob("*.py")):
        found += mutants(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))
    return found


def draw(candidates: list[Mutant], root: Path, *, seed: int, count: int) -> list[Mutant]:
    """`count` mutants: rooms by their size, within a room each operator as often as any other.

    There are many more swapped arguments and numbers than, say, broken loops; without the second rule the sample would
    consist of what every test notices. A hash of the seed and the mutant decides, not a generator: a change of one
    function then leaves the mutants of all the others drawn.
    """
    rooms: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for mutant in candidates:
        rooms[mutant.room][mutant.operator].append(mutant)
    drawn: list[Mutant] = []
    for room, quota in _quotas(rooms, count).items():
        turns = {
            operator: sorted(found, key=lambda mutant: _chance(seed, mutant.identity), reverse=True)
            for operator, found in rooms[room].items()
        }
        while quota > 0 and turns:
            for operator in sorted(turns, key=lambda name: _chance(seed, f"{room} {name}")):
                mutant = turns[operator].pop()
                if quota > 0 and is_python(mutant, (root / mutant.path).read_bytes()):
                    drawn.append(mutant)
                    quota -= 1
                if not turns[operator]:
                    del turns[operator]
    return drawn


def _chance(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def _quotas(rooms: dict[str, dict[str, list[Mutant]]], count: int) -> dict[str, int]:
    sizes = {room: sum(map(len, operators.values())) for room, operators in sorted(rooms.items())}
    least = min(EACH_ROOM_MIN, count // len(sizes))
    rest = count - least * len(sizes)
    exact = {room: rest * size / sum(sizes.values()) for room, size in sizes.items()}
    quotas = {room: least + int(share) for room, share in exact.items()}
    # What rounding left over goes to those it took most from.
    for room in sorted(exact, key=lambda room: int(exact[room]) - exact[room])[: count - sum(quotas.values())]:
        quotas[room] += 1
    return quotas
