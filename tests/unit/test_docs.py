"""What in docs/ is made from code is up to date, and the README's promises can be followed."""

import re
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


def test_the_readme_is_short_and_names_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert "make demo" in text
    assert "make test" in text
