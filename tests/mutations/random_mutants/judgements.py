"""What people found out about mutants that no test notices: `judgements.toml`, by the mutant's identity.

    [3f2a9c01bd]
    kind = "equivalent"          # nothing that anybody can see changes
    reason = "the list is sorted again by its only reader"

`kind` is `equivalent`, `timing` (only how long something takes or how much is done at once), `wording` (only what a
log line or a help text says) or `hole` (a fault that the tests do not notice, and why that is borne).
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FILE = Path(__file__).parent / "judgements.toml"

Kind = Literal["equivalent", "timing", "wording", "hole"]
KINDS: tuple[Kind, ...] = ("equivalent", "timing", "wording", "hole")
NO_BEHAVIOUR: tuple[Kind, ...] = ("equivalent", "timing", "wording")
"""What does not count among the mutants that change behaviour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Why a survivor survives."""

    kind: Kind
    reason: str


def read_judgements(file: Path = FILE) -> dict[str, Judgement]:
    """All judgements by identity. Raises ValueError for one without a known kind or without a reason."""
    found: dict[str, Judgement] = {}
    for identity, entry in tomllib.loads(file.read_text(encoding="utf-8")).items():
        kind, reason = entry.get("kind"), entry.get("reason")
        if kind not in KINDS or not reason:
            raise ValueError(f"{file.name}: [{identity}] needs a kind ({', '.join(KINDS)}) and a reason")
        found[identity] = Judgement(kind=kind, reason=reason)
    return found
