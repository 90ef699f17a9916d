"""The results as a table for a terminal and as docs/mutations.md."""

from collections.abc import Mapping, Sequence

from tests.mutations.mutation import ROOT, Mutation
from tests.mutations.trial import Outcome

PAGE = ROOT / "docs" / "mutations.md"

_HEAD = """\
# Seeded bugs

Do the embedded broker's tests notice when its semantics change? Each line below is a bug put into a copy of its source,
one at a time; then its quick tests (`tests/unit/embedded`) are run on the copy and must fail. Which test failed first,
and after how long, is on the right. The engine's own tests, which know no clock, no sockets and no chance, are run
first; a failure of the others counts only if the same test fails again when run alone.
"""
_FOOT = """\
`python -m tests.mutations` tries them again (`--write` renews this page; names after it try only those); the bugs are
in `tests/mutations/bugs`. `make test-quick` says when a bug no longer fits the source.
"""


def lines(mutations: Sequence[Mutation], outcomes: Mapping[str, Outcome]) -> list[str]:
    """One line for each, aligned."""
    width = max(len(mutation.name) for mutation in mutations)
    return [line(mutation, outcomes[mutation.name], width) for mutation in mutations]


def line(mutation: Mutation, outcome: Outcome, width: int = 0) -> str:
    """One mutation's line."""
    verdict = "SURVIVED" if outcome.killer is None else f"killed by {_short(outcome.killer)}"
    return f"{mutation.name:<{width}}  {outcome.seconds:5.1f} s  {verdict}"


def page(mutations: Sequence[Mutation], outcomes: Mapping[str, Outcome], control: Outcome) -> str:
    """docs/mutations.md."""
    killed = sum(outcomes[mutation.name].killer is not None for mutation in mutations)
    summary = (
        f"{killed} of {len(mutations)} bugs were caught. The control, without a bug, passed all {control.passed} tests "
        f"in {control.seconds:.0f} s."
    )
    parts = [_HEAD, summary + "\n"]
    for area in dict.fromkeys(mutation.area for mutation in mutations):
        parts.append(f"## {area}\n")
        rows = ["| what a user would see | in | caught by | after |", "|---|---|---|---|"]
        for mutation in (one for one in mutations if one.area == area):
            outcome = outcomes[mutation.name]
            killer = "**nothing**" if outcome.killer is None else f"`{_short(outcome.killer)}`"
            sees = mutation.sees.replace("|", "\\|")
            rows.append(f"| {sees} | `{mutation.file}` | {killer} | {outcome.seconds:.1f} s |")
        parts.append("\n".join(rows) + "\n")
    return "\n".join([*parts, _FOOT])


def _short(test: str) -> str:
    return test.rpartition("/")[2].replace("|", "\\|")
