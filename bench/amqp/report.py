"""Turns measurements into a table: medians, spreads, CPU and ratios, as text, as Markdown and as JSON.

Pure but for `keep`. A ratio is the median of the rounds' own ratios: in one round the two ran within seconds of each
other, so that a machine that was slower for a minute slows both.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.amqp.cases import BODY_BYTES, PREFETCH, WINDOW, WORKLOADS, Client, Workload
from bench.amqp.harness import Measurement

HEADINGS = ("client", "messages", "msg/s", "spread", "CPU s/10k", "of C", "of pika")
NONE = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One client in one workload over all rounds; with a `note` and no numbers when there are none."""

    workload: Workload
    client: str
    title: str
    messages: int | None = None
    rate: float | None = None
    rate_min: float | None = None
    rate_max: float | None = None
    cpu_s_per_10k: float | None = None
    ratio_to_c: float | None = None
    ratio_to_pika: float | None = None
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """As the headings name them."""
        if self.rate is None or self.rate_min is None or self.rate_max is None:
            return (self.title, NONE, self.note or NONE, "", "", "", "")
        cpu = NONE if self.cpu_s_per_10k is None else f"{self.cpu_s_per_10k:.3f}"
        return (
            self.title,
            f"{self.messages:,}",
            f"{self.rate:,.0f}" + (f" ({self.note})" if self.note else ""),
            f"{self.rate_min:,.0f}–{self.rate_max:,.0f}",
            cpu,
            _ratio(self.ratio_to_c),
            _ratio(self.ratio_to_pika),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and when it was measured."""

    date: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    clients: Mapping[str, str]
    rounds: int

    def sentence(self) -> str:
        machine = ", ".join(self.machine.values())
        broker = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        rounds = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        return f"{self.date}, {rounds}, on {machine}. {broker}. Clients: {'; '.join(self.clients.values())}."


def make_rows(
    clients: Sequence[Client],
    workloads: Sequence[Workload],
    measurements: Sequence[Measurement],
    missing: Mapping[str, str],
) -> list[Row]:
    """A row for each client in each workload it has, in order; `missing` says why a client has no numbers."""
    return [
        _row(client, workload, measurements, missing.get(client.name))
        for workload in workloads
        for client in clients
        if workload in client.messages
    ]


def render_text(rows: Sequence[Row], setting: Setting) -> str:
    """The table for a terminal."""
    lines = [setting.sentence()]
    shown = [HEADINGS, *(row.cells() for row in rows if row.rate is not None)]
    widths = [max(len(cells[column]) for cells in shown) for column in range(len(HEADINGS))]
    for workload in dict.fromkeys(row.workload for row in rows):
        lines += ["", f"{workload}  {WORKLOADS[workload]}", _padded(HEADINGS, widths)]
        for row in rows:
            if row.workload == workload and row.rate is not None:
                lines.append(_padded(row.cells(), widths))
            elif row.workload == workload:
                lines.append(f"  {row.title.ljust(widths[0])}  {row.note or NONE}")
    return "\n".join(lines)


def render_markdown(rows: Sequence[Row], setting: Setting) -> str:
    """The same, to be included in a document."""
    lines = [setting.sentence()]
    lines.append(f"{BODY_BYTES}-byte persistent JSON bodies, quorum queues, window {WINDOW:,}, prefetch {PREFETCH}.")
    for workload in dict.fromkeys(row.workload for row in rows):
        lines += ["", f"**{workload}** {WORKLOADS[workload]}", "", f"| {' | '.join(HEADINGS)} |"]
        lines.append("|---|" + "--:|" * (len(HEADINGS) - 1))
        lines += [f"| {' | '.join(row.cells())} |" for row in rows if row.workload == workload]
    return "\n".join(lines) + "\n"


def keep(
    folder: Path, name: str, rows: Sequence[Row], setting: Setting, measurements: Sequence[Measurement]
) -> list[Path]:
    """Write NAME.json, with every single measurement, and NAME.md."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        **dataclasses.asdict(setting),
        "parameters": {"body_bytes": BODY_BYTES, "window": WINDOW, "prefetch": PREFETCH, "queues": "quorum"},
        "workloads": dict(WORKLOADS),
        "rows": [dataclasses.asdict(row) for row in rows],
        "measurements": [dataclasses.asdict(each) for each in measurements],
    }
    raw, table = folder / f"{name}.json", folder / f"{name}.md"
    raw.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    table.write_text(render_markdown(rows, setting), encoding="utf-8")
    return [raw, table]


def _row(client: Client, workload: Workload, measurements: Sequence[Measurement], missing: str | None) -> Row:
    mine = [each for each in measurements if each.workload == workload and each.client == client.name]
    rates = {each.round: each.rate for each in mine if each.rate is not None}
    errors = [each.error for each in mine if each.error is not None]
    row = Row(workload=workload, client=client.name, title=client.title)
    if missing is not None:
        return dataclasses.replace(row, note=f"not measured: {missing}")
    if not rates:
        return dataclasses.replace(row, note=f"error: {errors[0]}" if errors else "not measured")
    return dataclasses.replace(
        row,
        messages=max(each.messages for each in mine),
        rate=statistics.median(rates.values()),
        rate_min=min(rates.values()),
        rate_max=max(rates.values()),
        cpu_s_per_10k=median_cpu_s_per_10k(mine),
        ratio_to_c=_median_ratio(rates, workload, "c", measurements),
        ratio_to_pika=_median_ratio(rates, workload, "pika", measurements),
        note=f"{len(errors)} of {len(mine)} failed" if errors else "",
    )


def median_cpu_s_per_10k(mine: Sequence[Measurement]) -> float | None:
    """Without what starting costs; None when that can't be told from noise."""
    starting = [each.start_up_cpu_s for each in mine if each.start_up_cpu_s is not None]
    if not starting:
        return None
    start_up_cpu_s = statistics.median(starting)
    working = [(each.cpu_s - start_up_cpu_s) / each.messages * 10_000 for each in mine if each.cpu_s is not None]
    return statistics.median(working) if working and statistics.median(working) > 0 else None


def _median_ratio(
    rates: Mapping[int, float], workload: Workload, reference: str, measurements: Sequence[Measurement]
) -> float | None:
    theirs = {
        each.round: each.rate
        for each in measurements
        if each.workload == workload and each.client == reference and each.rate is not None
    }
    ratios = [rate / theirs[number] for number, rate in rates.items() if number in theirs]
    return statistics.median(ratios) if ratios else None


def _ratio(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.2f}"


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  " + "  ".join([cells[0].ljust(widths[0]), *numbers])
