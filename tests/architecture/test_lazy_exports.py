"""Packages that import their exports late: what type checkers, `__all__` and the program see is the same."""

import ast
import importlib
from pathlib import Path

import pytest

from redrive.lazy_exports import lazy_exports

SOURCE = Path(__file__).parents[2] / "src"
LAZY = sorted(path for path in SOURCE.rglob("__init__.py") if "lazy_exports(__name__" in path.read_text())


def package_of(path: Path) -> str:
    return ".".join(path.parent.relative_to(SOURCE).parts)


def typed_imports(path: Path, package: str) -> dict[str, str]:
    """Names imported below `if TYPE_CHECKING:`, with their modules relative to the package."""
    found = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                assert statement.module is not None
                home = statement.module.removeprefix(f"{package}.")
                found.update({alias.asname or alias.name: home for alias in statement.names})
    return found


def lazy_table(path: Path) -> dict[str, str]:
    """The table that the package gives to `lazy_exports`, as it stands in its source."""
    tables = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Dict)]
    assert len(tables) == 1
    table = ast.literal_eval(tables[0])
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize("path", LAZY, ids=package_of)
def test_a_lazy_table_is_what_type_checkers_read_and_is_exported(path: Path) -> None:
    package = package_of(path)
    table = lazy_table(path)
    assert table == typed_imports(path, package)
    module = importlib.import_module(package)
    assert set(table) <= set(module.__all__)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        getattr(module, name)


def test_a_lazy_export_is_looked_up_once_and_an_unknown_one_is_no_attribute() -> None:
    import redrive.core as package

    get, names = lazy_exports("redrive.core", {"Lazily": "errors", "RedriveError": "errors"})
    vars(package).pop("RedriveError")
    assert get("RedriveError") is package.RedriveError
    assert "Lazily" in names()
    with pytest.raises(AttributeError, match="has no attribute 'Unknown'"):
        get("Unknown")
