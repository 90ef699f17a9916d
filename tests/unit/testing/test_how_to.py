"""The simulation of docs/how-to/test-with-virtual-time.md runs as it stands there."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "test-with-virtual-time.md"


@pytest.mark.slow
def test_the_simulation_of_the_how_to_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "run_in_virtual_time" in block]
    assert "range(100)" in code
    exec(compile(code.replace("range(100)", "range(3)"), str(PAGE), "exec"), {"__name__": "how_to"})
