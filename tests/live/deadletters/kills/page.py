"""The matrix as Markdown, and the windows in words."""

from collections.abc import Mapping, Sequence

from tests.live.deadletters.kills.cells import STORES, Flow, Victim, windows_of
from tests.live.deadletters.kills.ledger import Account

INTRODUCTION = """\
# The crash matrix of dead letters

Collector, redriver and auto-retry are killed with SIGKILL between any two steps and inside their transactions; the
broker and the database are killed while they stand there; and process and broker together, as when a machine loses its
power. Then a fresh process takes over, and every message is accounted for: in the store once, or in a queue. `make
matrix` plays it all and writes this page; `make test` plays a seeded sample. Last played {today}.

Two attackers are at work meanwhile. A forger publishes dead letters with every header that we read, some of which name
stored letters and bear the mark of a real copy: none may displace a letter. And an operator whose token is limited to
another queue tries to reach the letters and the queues of the cell by the endpoints of the API, six of them in each
cell, drawn from all: none may be reached.
A run of a sample plays some cells anew and leaves the others as they were; `kills under attack` counts those that were
played with the two.
"""


def write_page(results: Mapping[str, Sequence[Account]], words: str, today: str) -> str:
    """The whole page. `results`: the accounts by version; `words`: the windows, explained by hand."""
    lines = [INTRODUCTION.format(today=today), *_totals(results), "", words.strip(), ""]
    lines += [
        "## Every window",
        "",
        "In each cell: kills, messages lost, duplicates that are marked + those that are not, letters in doubt; summed",
        "over classic and quorum queues and over batches. A dash: there is no such window.",
        "",
    ]
    columns = [(version, store) for version in results for store in STORES]
    for flow in Flow:
        for victim in Victim:
            if not any((one.cell.flow, one.cell.victim) == (flow, victim) for of in results.values() for one in of):
                continue
            heads = " | ".join(f"{version} {store}" for version, store in columns)
            lines += [f"**{flow}: {_title(victim)}**", "", f"| window | {heads} |", f"|---|{'--:|' * len(columns)}"]
            windows = dict.fromkeys(window for store in STORES for window in windows_of(flow, victim, store))
            for window in windows:
                cells = " | ".join(
                    _cell(
                        [
                            one
                            for one in results[version]
                            if (one.cell.flow, one.cell.victim, one.cell.window, one.cell.store)
                            == (flow, victim, window, store)
                        ]
                    )
                    for version, store in columns
                )
                lines.append(f"| {window} | {cells} |")
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _totals(results: Mapping[str, Sequence[Account]]) -> list[str]:
    lines = [
        "| RabbitMQ | store | kills | messages | lost | duplicates, marked | duplicates, unmarked | in doubt "
        "| kills under attack | forged letters | displaced | attacks | reached |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for version, accounts in results.items():
        for store in STORES:
            chosen = [one for one in accounts if one.cell.store == store]
            if chosen:
                figures = " | ".join(str(figure) for figure in _figures(chosen))
                messages = sum(one.published for one in chosen)
                kills, _, rest = figures.partition(" | ")
                attacks = " | ".join(str(figure) for figure in _attack_figures(chosen))
                lines.append(f"| {version} | {store} | {kills} | {messages} | {rest} | {attacks} |")
    return lines


def _figures(accounts: Sequence[Account]) -> tuple[int, int, int, int, int]:
    """Kills, lost, marked, unmarked, doubts."""
    return (
        sum(one.reached for one in accounts),
        sum(len(one.lost) for one in accounts),
        sum(one.marked for one in accounts),
        sum(len(one.unmarked) for one in accounts),
        sum(one.doubts for one in accounts),
    )


def _attack_figures(accounts: Sequence[Account]) -> tuple[int, int, int, int, int]:
    """Kills while somebody attacked, forged, displaced, attacks, reached."""
    return (
        sum(one.reached and one.attacks > 0 for one in accounts),
        sum(one.forged for one in accounts),
        sum(len(one.displaced) for one in accounts),
        sum(one.attacks for one in accounts),
        sum(len(one.reached_by_attack) for one in accounts),
    )


def _cell(accounts: Sequence[Account]) -> str:
    if not accounts:
        return "–"
    kills, lost, marked, unmarked, doubts = _figures(accounts)
    return f"{kills}, {lost}, {marked}+{unmarked}, {doubts}"


def _title(victim: Victim) -> str:
    return {
        Victim.PROCESS: "the process is killed",
        Victim.BROKER: "the broker is killed",
        Victim.DATABASE: "PostgreSQL is killed; SQLite is locked by somebody else",
        Victim.MACHINE: "process and broker are killed",
    }[victim]
