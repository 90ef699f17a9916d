"""What the reference of filters shows can be typed, and it leaves no field out."""

import re
from pathlib import Path

import pytest

from redrive.records import parse_filter
from redrive.records.filters.grammar import ALIASES, FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "filters.md").read_text(encoding="utf-8")
SHOWN = [
    text
    for text in re.findall(r"`([^`\n]+)`", PAGE)
    if re.match(r"-?(?:not:)?[a-z_]+(?:\.[\w.*-]+|\.\"[^\"]+\")?:.", text) and not re.match(r"-?(?:not:)?field:", text)
]
BLOCKS = [block for block in re.findall(r"```\n(.*?)\n```", PAGE, re.DOTALL) if not block.startswith("filter, column")]


@pytest.mark.parametrize("text", SHOWN + BLOCKS)
def test_an_example_of_the_reference_is_a_filter(text: str) -> None:
    assert parse_filter(text, now_ms=1_793_534_400_000).terms


def test_the_reference_names_every_field_and_every_other_name() -> None:
    assert len(SHOWN) > 30
    missing = [name for name in (*FIELDS, *ALIASES) if re.search(rf"`{name}[`:.]", PAGE) is None]
    assert missing == []
