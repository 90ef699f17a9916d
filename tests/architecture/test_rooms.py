"""The rooms of the design hold: imports point down, pure rooms stay pure, exports are explained."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rooms import FOUNDATION, LAYERS, PARTS, PURE, ROOMS

SOURCE = Path(__file__).parents[2] / "src" / "redrive"
MODULES = sorted(SOURCE.rglob("*.py"))
IMPURE_MODULES = {
    "asyncio",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "urllib",
}


def room_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(module: Path) -> Iterator[tuple[str, int]]:
    """Every absolute name a module imports, with its line; type-only imports count too."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import; write the full name"
            yield node.module or "", node.lineno


def violations(module: Path, room: str, *, source: Path = SOURCE) -> list[str]:
    allowed = ROOMS.get(room, set())
    found = []
    for name, line in imports(module):
        parts = name.split(".")
        place = f"{module.relative_to(source.parent)}:{line}"
        if parts[0] == "redrive" and len(parts) > 1 and parts[1] != room and parts[1] not in FOUNDATION:
            if parts[1] not in allowed:
                found.append(f"{place}: {room} must not import {parts[1]}")
            elif len(parts) > 2:
                found.append(f"{place}: import from redrive.{parts[1]}, not from its inside ({name})")
        if room in PURE and parts[0] in IMPURE_MODULES:
            found.append(f"{place}: {room} is pure and must not import {parts[0]}")
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_downwards_and_only_what_others_export(module: Path) -> None:
    room = room_of(module)
    if room == "__init__":
        return
    assert room in ROOMS or room in FOUNDATION, f"{room} is no room of the design"
    assert violations(module, room) == []


def test_a_room_may_import_only_rooms_that_stand_before_it() -> None:
    before: set[str] = set()
    for layer in LAYERS:
        for room, allowed in layer.rooms.items():
            assert allowed <= before, f"{room} may not import {sorted(allowed - before)}"
            before.add(room)


def test_every_room_uses_what_it_may_import() -> None:
    used: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module in MODULES:
        for name, _ in imports(module):
            parts = name.split(".")
            if room_of(module) in used and parts[0] == "redrive" and len(parts) > 1:
                used[room_of(module)].add(parts[1])
    assert {room: sorted(allowed - used[room]) for room, allowed in ROOMS.items() if allowed - used[room]} == {}


@pytest.mark.parametrize("room", ["cli", "admin"])
def test_commands_and_the_admin_api_choose_no_parts(room: str) -> None:
    chosen = [
        f"{module.relative_to(SOURCE)}:{node.lineno}: {alias.name}"
        for module in MODULES
        if room_of(module) == room
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("redrive.")
        for alias in node.names
        if alias.name in PARTS
    ]
    assert chosen == []


def test_the_check_itself_notices_an_upward_import(tmp_path: Path) -> None:
    upward = tmp_path / "redrive" / "core" / "wrong.py"
    upward.parent.mkdir(parents=True)
    upward.write_text("import socket\nfrom redrive.cli import main\nfrom redrive.topology.model import Queue\n")
    found = violations(upward, "topology", source=tmp_path / "redrive")
    assert [text.split(": ", 1)[1] for text in found] == [
        "topology is pure and must not import socket",
        "topology must not import cli",
    ]
    found = violations(upward, "cli", source=tmp_path / "redrive")
    assert [text.split(": ", 1)[1] for text in found] == [
        "import from redrive.topology, not from its inside (redrive.topology.model)"
    ]


def public_definitions(module: Path) -> Iterator[tuple[str, int, str | None]]:
    tree = ast.parse(module.read_text())
    yield "the module", 1, ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, node.lineno, ast.get_docstring(node)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_and_public_definition_says_what_it_is(module: Path) -> None:
    missing = [f"{name} (line {line})" for name, line, docstring in public_definitions(module) if not docstring]
    assert missing == []


FORBIDDEN_NAMES = {"utils", "common", "helpers", "types", "misc"}


def test_no_module_is_a_drawer() -> None:
    assert [str(path.relative_to(SOURCE)) for path in MODULES if path.stem in FORBIDDEN_NAMES] == []
