"""What goes wrong in an author's module is one sentence that says where."""

from pathlib import Path

import pytest

from redrive.runtime import InvalidApp
from redrive.wiring import load_app

MODULES = {
    "rais": ("1 / 0\n", "module rais can't be imported: ZeroDivisionError: division by zero (rais.py, line 1)"),
    "deep": (
        "import json\n\n\ndef read():\n    return json.loads('{')\n\n\nread()\n",
        "module deep can't be imported: JSONDecodeError: Expecting property name enclosed in double quotes: line 1"
        " column 2 (char 1) (deep.py, line 5)",
    ),
    "typo": ("def place(:\n", "module typo can't be imported: SyntaxError: invalid syntax (typo.py, line 1)"),
    "lacking": (
        "\nimport no_such_package\n",
        "module lacking can't be imported: No module named 'no_such_package' (lacking.py, line 2)",
    ),
    "leaving": (
        "import sys\nsys.exit(3)\n",
        "module leaving can't be imported: it ends the process with sys.exit(3) (leaving.py, line 2); a module that has"
        ' an app must only define it; put the rest below `if __name__ == "__main__":`',
    ),
    "silent": ("raise RuntimeError\n", "module silent can't be imported: RuntimeError (silent.py, line 1)"),
    "optional": (
        'import redrive\n\napp = redrive.App()\napp.consumer("orders", prefetch=0)\n',
        "(optional.py, line 4)",
    ),
    "declared": (
        'from redrive.topology import declare\n\ndeclare(queues={"orders": {"retry": ["soon"]}})\n',
        "(declared.py, line 3)",
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_can_not_be_imported_is_told_with_its_file_and_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = MODULES[name]
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidApp) as refused:
        load_app(f"{name}:app")
    assert str(refused.value).endswith(said)
    assert "\n" not in str(refused.value)
    assert ("can't be imported" in str(refused.value)) == said.startswith("module ")


def test_a_module_of_a_package_is_told_by_its_path_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "__init__.py").write_text("")
    (tmp_path / "warehouse" / "stock.py").write_text("\n1 / 0\n")
    (tmp_path / "warehouse" / "main.py").write_text("import warehouse.stock\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidApp, match=r"\(warehouse/stock\.py, line 2\)$"):
        load_app("warehouse.main:app")


def test_a_module_outside_the_working_directory_is_named_and_not_the_module_of_ours_that_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, here = tmp_path / "library", tmp_path / "here"
    library.mkdir()
    here.mkdir()
    (library / "far_away.py").write_text('import redrive\n\nredrive.App().consumer("orders", prefetch=0)\n')
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(library))
    with pytest.raises(InvalidApp, match=r"far_away\.py, line 3\)$"):
        load_app("far_away:app")
