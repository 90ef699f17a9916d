"""The verdicts for a terminal, as JSON, and as docs/random-mutants.md."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from tests.mutations.mutation import ROOT
from tests.mutations.random_mutants.judgements import NO_BEHAVIOUR, Judgement
from tests.mutations.random_mutants.mutant_trial import Verdict

PAGE = ROOT / "docs" / "random-mutants.md"


def line(verdict: Verdict) -> str:
    """One verdict on one line."""
    mutant = verdict.mutant
    what = f"{mutant.identity} {mutant.path}:{mutant.line} {mutant.function} {mutant.operator}: {_change(verdict)}"
    ended = "SURVIVED" if verdict.killer is None else f"killed by {verdict.killer}"
    return f"{what}\n    {ended} ({verdict.stage}, {verdict.tests} tests, {verdict.seconds:.0f} s)"


def as_json(verdicts: Sequence[Verdict], *, seed: int) -> str:
    """Everything that is known, for later."""
    rows = [
        {
            "identity": each.mutant.identity,
            "path": each.mutant.path,
            "line": each.mutant.line,
            "function": each.mutant.function,
            "operator": each.mutant.operator,
            "old": each.mutant.old,
            "new": each.mutant.new,
            "killer": each.killer,
            "stage": each.stage,
            "tests": each.tests,
            "seconds": round(each.seconds, 1),
        }
        for each in verdicts
    ]
    return json.dumps({"seed": seed, "mutants": rows}, indent=1)


def share(verdicts: Sequence[Verdict], judgements: Mapping[str, Judgement]) -> tuple[int, int]:
    """How many were killed, of how many that change behaviour."""
    killed = sum(each.killer is not None for each in verdicts)
    idle = sum(
        each.killer is None
        and each.mutant.identity in judgements
        and judgements[each.mutant.identity].kind in NO_BEHAVIOUR
        for each in verdicts
    )
    return killed, len(verdicts) - idle


def page(verdicts: Sequence[Verdict], judgements: Mapping[str, Judgement], *, seed: int) -> str:
    """docs/random-mutants.md."""
    killed, changing = share(verdicts, judgements)
    stages = Counter(each.stage for each in verdicts if each.killer is not None)
    by_stage = ", ".join(f"{count} by {stage} tests" for stage, count in stages.most_common())
    parts = [
        "# Random mutants",
        "",
        "Do the tests notice when the source changes? A seed draws small changes (a comparison, a condition, a call",
        "left out, two arguments swapped) from every room, each room by its size and each kind of change as often as",
        "any other; each is tried alone, with the tests that run the changed line.",
        "",
        f"Seed {seed}, {len(verdicts)} mutants: {killed} of the {changing} that change behaviour were noticed "
        f"({100 * killed / max(1, changing):.1f} %): {by_stage}.",
        "",
        "| room | drawn | noticed | no behaviour | holes |",
        "|---|---|---|---|---|",
    ]
    for room in sorted({each.mutant.room for each in verdicts}):
        mine = [each for each in verdicts if each.mutant.room == room]
        noticed, changed = share(mine, judgements)
        parts.append(f"| {room} | {len(mine)} | {noticed} | {len(mine) - changed} | {changed - noticed} |")
    parts += ["", "## Survivors", "", "| where | change | kind | why |", "|---|---|---|---|"]
    for each in verdicts:
        if each.killer is not None:
            continue
        known = judgements.get(each.mutant.identity)
        kind, why = (known.kind, known.reason) if known else ("hole", "not looked at yet")
        where = f"`{each.mutant.path.removeprefix('src/redrive/')}` `{each.mutant.function}`"
        parts.append(f"| {where} | `{_cell(_change(each))}` | {kind} | {_cell(why)} |")
    parts += [
        "",
        f"`python -m tests.mutations.random_mutants --count {len(verdicts)} --seed {seed} --write` tries them again.",
        "",
    ]
    return "\n".join(parts)


def _change(verdict: Verdict) -> str:
    old, new = (" ".join(text.split()) for text in (verdict.mutant.old, verdict.mutant.new))
    return f"{_short(old)} → {_short(new) or 'nothing'}"


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}…"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
