"""The reference names every event, field, level and metric of the code, and rooms report nothing it does not know."""

import ast
import re
from pathlib import Path

import pytest

import redrive
from redrive import App
from redrive.core import Observer
from redrive.telemetry import DECISIONS, EVENTS, FIELDS, METRICS
from redrive.wiring import prepare_app

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "telemetry.md").read_text(encoding="utf-8")


def rows(head: str) -> list[tuple[str, ...]]:
    """The table below a head line, cell by cell, without code marks."""
    table = PAGE.split(f"{head}\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [tuple(cell.strip().replace("`", "") for cell in line.strip("|").split("|")) for line in table]


def test_every_field_is_documented() -> None:
    assert rows("| field | what |") == [(key, what.replace("`", "")) for key, what in FIELDS.values()]


def test_every_level_and_event_is_documented() -> None:
    assert rows("| decision | level |") == [(name, level.word) for name, level in DECISIONS.items()]
    assert rows("| event | level | |") == [(name, level.word, what) for name, (level, what) in EVENTS.items()]


def test_every_metric_is_documented() -> None:
    assert rows("| metric | type | labels | |") == [
        (one.name, one.type.value, ", ".join(one.labels) or "–", one.help) for one in METRICS
    ]


def test_every_event_a_room_reports_is_known_here() -> None:
    noted = set()
    for module in (ROOT / "src" / "redrive").rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        # Most rooms' modules report nothing, and needn't be parsed.
        for node in ast.walk(ast.parse(text)) if "note" in text else ():
            if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "note" or not node.args:
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                noted.add(first.value)
    assert len(noted) > 10
    assert noted - {"runtime.decided"} <= set(EVENTS)


def test_the_example_line_has_the_fields_of_the_table() -> None:
    line = re.search(r"```json\n(.*?)\n```", PAGE, re.S)
    assert line is not None
    told = set(re.findall(r'"(\w+)":', line.group(1))) - {"time", "level", "event"}
    assert told <= {key for key, _ in FIELDS.values()}


def test_the_example_in_python_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    (tmp_path / "redrive.yaml").write_text("queues: {orders: {retry: [30s]}}")
    monkeypatch.chdir(tmp_path)
    ran: list[str] = []

    def run(app: App, *, observer: Observer) -> None:
        ran.extend(one.plan.name for one in prepare_app(app).consumptions)

    monkeypatch.setattr(redrive, "run", run)
    exec(compile(code, "telemetry.md", "exec"), {})
    assert ran == ["orders"]
