"""Every module that ARCHITECTURE.md or a package's docstring names exists: a rename can't leave the map behind."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.rooms import ROOMS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "redrive"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)

NO_MODULES = {
    "admin/routes": {"router"},
    "admin/schemas": {"letter_json"},
    "http1": {"read_request", "read_request_line", "response_bytes"},
    "testing": {"broker", "run_in_virtual_time"},
    "topology/shapes": {"name", "backoff", "build", "commands", "retry", "defer"},
    "wire": {"struct"},
    "wire/methods": {"heartbeat_s", "global", "per_channel"},
}
"""Functions, options, fields and fixtures that are named there too, by package."""


def sections() -> dict[str, str]:
    """The sections of ARCHITECTURE.md by room."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^## (\w+)/\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))


def named(text: str) -> set[str]:
    """What may be a module in a text: lower-case words in backticks, with `/` between packages."""
    return {name.rstrip("/") for name in re.findall(r"`([a-z][a-z0-9_]*(?:/[a-z0-9_]+)*/?)`", text)}


def modules(room: str) -> Iterator[str]:
    """A room's modules and packages, by every end of their paths: `stores/search/walk`, `search/walk`, `walk`."""
    for path in (SOURCE / room).rglob("*.py"):
        module = path.parent if path.name == "__init__.py" else path.with_suffix("")
        parts = module.relative_to(SOURCE).parts
        yield from ("/".join(parts[start:]) for start in range(len(parts)))


def missing(text: str, package: str) -> set[str]:
    """The names in the text that are no module of the package's room, and neither a room nor a path from one."""
    known = set(modules(package.split("/")[0])) | ROOMS.keys() | NO_MODULES.get(package, set())
    return {
        name
        for name in named(text) - known
        if not ("/" in name and ((SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file()))
    }


def test_the_map_has_a_section_for_every_room() -> None:
    assert sections().keys() == {room for room in ROOMS if (SOURCE / room).is_dir()}


@pytest.mark.parametrize("room", sections())
def test_the_map_names_only_modules_that_exist(room: str) -> None:
    assert missing(sections()[room], room) == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_package_docstring_names_only_modules_that_exist(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert missing(text, package.relative_to(SOURCE).as_posix()) == set()


def test_the_check_itself_notices_a_module_that_is_gone() -> None:
    text = "`store`, `search/walk`, `letters/` and `records/letters` exist, `evaluating` and `search/tallies` do not."
    assert missing(text, "stores") == {"evaluating", "search/tallies"}
