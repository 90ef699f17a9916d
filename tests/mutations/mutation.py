"""A mutation: one literal change of a source file that makes the embedded broker wrong, and what a user would see."""

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = "src/redrive/embedded"


class Stale(Exception):
    """The source has changed under a mutation: its old text must occur exactly once."""

    def __init__(self, mutation: "Mutation", count: int) -> None:
        self.mutation = mutation
        self.count = count
        super().__init__(
            f"{mutation.name}: its old text occurs {count} times in {mutation.path}, not once; "
            f"write the mutation anew for what the source says now:\n{mutation.old}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A seeded bug. `file` is below src/redrive/embedded; `sees` is what is wrong from a user's side."""

    name: str
    area: str
    file: str
    old: str
    new: str
    sees: str

    @property
    def path(self) -> str:
        """The file, from the root of the tree."""
        return f"{SOURCE}/{self.file}"

    def mutated(self, source: str) -> str:
        """The file's text with the bug in it. Raises Stale, or SyntaxError where the bug is not even Python."""
        count = source.count(self.old)
        if count != 1:
            raise Stale(self, count)
        text = source.replace(self.old, self.new)
        ast.parse(text)
        return text

    def apply(self, root: Path) -> None:
        """Put the bug into the tree at `root`. Raises Stale."""
        file = root / self.path
        file.write_text(self.mutated(file.read_text(encoding="utf-8")), encoding="utf-8")
