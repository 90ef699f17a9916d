"""Writes the generated parts of docs/: references of shapes, decisions and simulations; pictures of the examples;
the drawing of the rooms in ARCHITECTURE.md.

`make docs` writes; a test calls `outdated` and fails when what stands there is not what the code would write.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from tests.architecture.rooms import draw_rooms

from docs.decisions_reference import decisions_reference
from docs.simulate_reference import simulate_reference
from redrive.topology import (
    SHAPES,
    Compiled,
    Shape,
    compile_declaration,
    declare,
    read_declaration,
    render_mermaid,
    render_svg,
    render_tree,
)

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MEASURED = (
    "amqp",
    "embedded",
    "runtime",
    "push",
    "dead_letters",
    "dead_letter_reads",
    "admin_reads",
    "admin_two_instances",
)
"""Benchmarks whose tables, bench/results/*.md, go into docs/performance.md."""
EXAMPLES = {
    "ladder": "the recommended shape",
    "native": "RabbitMQ 4.3's own delayed retry",
    "freeflow": "tiers per domain (`tiered`)",
    "event-bus": "a loop per service (`service`)",
    "file-pipeline": "a loop per queue (`per-queue`)",
    "ratatoskr": "a quorum loop (`quorum`)",
    "bookly": "immediate requeues (`requeue`)",
}


def generated() -> Iterator[tuple[Path, str]]:
    """Every generated file with its content."""
    yield DOCS / "reference" / "shapes.md", shapes_reference()
    yield DOCS / "reference" / "decisions.md", decisions_reference()
    yield DOCS / "reference" / "simulate.md", simulate_reference()
    pictures = {name: example(name) for name in EXAMPLES} | {"fifty-queues": fifty_queues()}
    for name, compiled in pictures.items():
        svg = render_svg(compiled.topology, compiled.retry_routes, title=name)
        yield DOCS / "diagrams" / f"{name}.svg", svg
    yield DOCS / "diagrams" / "README.md", gallery()
    yield DOCS / "performance.md", performance()
    yield ROOT / "ARCHITECTURE.md", architecture()


def outdated() -> list[str]:
    """The generated files that are not what the code would write now."""
    return [
        str(path.relative_to(ROOT))
        for path, content in generated()
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]


def example(name: str) -> Compiled:
    """An example of the examples folder, compiled."""
    file = ROOT / "examples" / name / "redrive.yaml"
    return compile_declaration(read_declaration(file.read_text(encoding="utf-8"), file=str(file)))


def fifty_queues() -> Compiled:
    """A company's worth of queues: five exchanges, fifty queues, two shapes."""
    areas = ("orders", "billing", "shipping", "customers", "catalogue")
    steps = ("import", "check", "enrich", "index", "notify", "export", "audit", "archive", "report", "sync")
    queues = {
        f"{area}.{step}": {
            "from": {f"{area}.events": [f"{area}.{step}.#"]},
            "retry": ["30s", "5m"] if step != "audit" else {"shape": "per-queue"},
        }
        for area in areas
        for step in steps
    }
    return compile_declaration(declare(exchanges={f"{area}.events": "topic" for area in areas}, queues=queues))


def shapes_reference() -> str:
    """docs/reference/shapes.md."""
    parts = [
        "# Shapes",
        "Made from the code by `make docs`. A shape goes into a queue's `retry:`, or into `defaults:`.",
        "`retry: [30s, 5m]` is short for `retry: {shape: ladder, delays: [30s, 5m]}`.",
        _HISTORIES,
        _EXPIRATIONS,
    ]
    return "\n\n".join([*parts, *(_shape_reference(shape) for shape in SHAPES.values())]) + "\n"


_HISTORIES = """\
A parked message says in every shape how often it was retried (`x-final-retry-count`) and how it failed at last
(`x-final-error`). Which of its runs are in `x-redrive-history` depends on how the shape retries:

| shape | a retry is | runs in `x-redrive-history` |
|---|---|---|
| `ladder`, `tiered`, `requeue` | a copy | all; of more than 20 the newest |
| `service`, `per-queue`, `quorum` | a reject | the last one |
| `native`, `requeue: nack` | a requeue | the last one |

A reject or a requeue can change no header, so the runs before the last are in the log only. A `RetryAfter` longer than
such a shape's own delay is a copy there too, and the run that raised it is kept. With `park: reject` (`tiered`,
`requeue`) nothing is written at the end: a dead message has `x-retry-count` and the history up to its last retry, and
nothing of its last run."""
"""tests/unit/runtime/test_attempt_history.py and tests/live/runtime/test_parking_by_reject.py hold it to this."""

_EXPIRATIONS = """\
A publisher's own `expiration` is the publisher's choice, and what becomes of a message that expires in the main queue,
before a consumer has it, is the broker's. In `ladder`, `tiered` and `requeue` it goes to the dead letters, without
headers of ours. In the reject loops (`service`, `per-queue`, `quorum`) it goes into the retry queue and would come back
from there without ever having been rejected, which the broker takes for a cycle: classic queues drop it, and a quorum
retry queue that dead-letters at least once holds it for good. Do not publish to such queues with an `expiration`. A
copy of ours never has the publisher's."""
"""tests/unit/topology/test_expirations.py and tests/live/topology/test_expirations.py hold it to this."""


def _shape_reference(shape: type[Shape]) -> str:
    module = __import__(shape.__module__, fromlist=["__doc__"])
    head, _, rest = (module.__doc__ or "").strip().partition("\n\n")
    diagram, _, prose = rest.partition("\n\n")
    lines = "\n".join(line.removeprefix("    ") for line in diagram.splitlines())
    rows = [
        f"| `{one.name}` | {_default(one.default)} | {one.metadata['doc']} |"
        for one in sorted(fields(shape), key=lambda one: one.name in ("at_least_once", "safe_limits"))
    ]
    table = "\n".join(["| option | default | |", "|---|---|---|", *rows])
    return f"## {shape.name}\n\n{head}\n\n```text\n{lines}\n```\n\n{prose.strip()}\n\n{table}"


def _default(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def gallery() -> str:
    """docs/diagrams/README.md: every picture, and one example in all three forms."""
    ladder = example("ladder")
    tree = render_tree(ladder.topology, ladder.retry_routes, colour=False)
    mermaid = render_mermaid(ladder.topology, ladder.retry_routes)
    parts = [
        "# Pictures",
        "Made from the examples by `make docs`, with `redrive compile FILE --format svg`.",
        *(f"## {name}: {what}\n\n![{name}]({name}.svg)" for name, what in EXAMPLES.items()),
        "## Fifty queues\n\n![fifty queues](fifty-queues.svg)",
        "## The ladder as text\n\n`--format tree`:\n\n```text\n" + tree.rstrip("\n") + "\n```",
        "`--format mermaid`:\n\n```mermaid\n" + mermaid.rstrip("\n") + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def performance() -> str:
    """docs/performance.md: the template with the last measurements in it."""
    text = (DOCS / "templates" / "performance.md").read_text(encoding="utf-8")
    results = ROOT / "bench" / "results"
    topology = results / "topology.json"
    missing = "Not measured yet: run `make bench`."
    text = text.replace(
        "<!-- topology -->", _topology_table(json.loads(topology.read_text())) if topology.exists() else missing
    )
    for name in MEASURED:
        table = results / f"{name}.md"
        text = text.replace(
            f"<!-- {name} -->", table.read_text(encoding="utf-8").strip() if table.exists() else missing
        )
    return text


def architecture() -> str:
    """ARCHITECTURE.md, with the drawing of the rooms between its marks."""
    begin, end = "<!-- rooms: made by make docs from tests/architecture/rooms.py -->", "<!-- end of rooms -->"
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{draw_rooms()}\n{end}{tail}"


def _topology_table(result: dict[str, Any]) -> str:
    rows = [
        f"| {one['shape']} | {one['declared']:,} | {one['queues']:,} | {one['read_s']:.2f} | {one['compile_s']:.2f} |"
        f" {one['export_s']:.2f} | {one['total_s']:.2f} | {one['total_s'] / one['declared'] * 1e6:.0f} |"
        for one in result["cases"]
    ]
    head = "| shape | declared | queues made | read | compile | export | total | µs for each declared |"
    setting = result["setting"]
    return "\n".join([f"{setting['date']}, Python {setting['python']}.", "", head, "|---|" + "---:|" * 7, *rows])


def main() -> None:
    """Writes every generated file."""
    for path, content in generated():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
