"""What in docs/ is made from code is up to date, and the README's promises can be followed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from docs.generate import outdated

ROOT = Path(__file__).parents[2]


def test_the_generated_docs_are_what_the_code_would_write() -> None:
    assert outdated() == [], "run make docs"


def test_every_relative_link_in_the_docs_leads_somewhere() -> None:
    broken = []
    templates = ROOT / "docs" / "templates"  # their links are those of the pages made from them, which are here too
    pages = [page for page in ROOT.glob("docs/**/*.md") if page.parent != templates]
    for page in [*ROOT.glob("*.md"), *pages]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} → {target}")
    assert broken == []


def defined_names(node: ast.AST, prefix: str = "") -> Iterator[str]:
    """`Class`, `Class.method`, `function`, and names that a module or a class assigns."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}{name}"
                if isinstance(child, ast.ClassDef):
                    yield from defined_names(child, f"{prefix}{name}.")
            case ast.Assign(targets=targets):
                yield from (f"{prefix}{one.id}" for one in targets if isinstance(one, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}{name}"


def test_the_walks_name_only_what_the_source_has() -> None:
    page = ROOT / "docs" / "explanation" / "walks.md"
    hops = re.findall(r"\[`([^`]+)`\]\(([^)#]+\.py)\)(?: `([\w.]+)`)?", page.read_text(encoding="utf-8"))
    assert len(hops) > 100
    wrong = []
    for shown, target, name in hops:
        file = page.parent / target
        if not target.endswith(shown) or not file.is_file():
            wrong.append(f"{shown}: there is no such module")
        elif name and name not in defined_names(ast.parse(file.read_text(encoding="utf-8"))):
            wrong.append(f"{shown} has no {name}")
    named = re.findall(r"`((?:docs|tests)/[\w/.-]+\.\w+)`", page.read_text(encoding="utf-8"))
    wrong += [f"{path}: there is no such file" for path in named if not (ROOT / path).is_file()]
    assert wrong == []


def test_the_readme_is_short_and_names_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert "make demo" in text
    assert "make test" in text
