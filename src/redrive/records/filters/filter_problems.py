"""What is wrong with a filter's text, and where in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.core import Finding, InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterProblem:
    """One thing that is wrong with the characters from `start` to before `end`, counted from 0."""

    code: str
    summary: str
    hint: str
    start: int
    end: int


class InvalidFilter(InvalidInput):
    """A text is no filter. `problems` has everything that is wrong with `text`, in reading order."""

    def __init__(self, text: str, problems: Sequence[FilterProblem]) -> None:
        self.text = text
        self.problems = tuple(problems)
        super().__init__(
            [
                Finding(
                    code=problem.code,
                    address=f"filter, column {problem.start + 1}",
                    summary=problem.summary,
                    hint=problem.hint,
                )
                for problem in self.problems
            ]
        )

    def __reduce__(self) -> tuple[type["InvalidFilter"], tuple[str, tuple[FilterProblem, ...]]]:
        return InvalidFilter, (self.text, self.problems)

    @property
    def pointer(self) -> str:
        """The text on one line and below it a mark at the first problem, for a terminal."""
        line = "".join(character if character.isprintable() else " " for character in self.text)
        first = self.problems[0]
        return f"{line}\n{' ' * first.start}{'^' * max(first.end - first.start, 1)}"


class UnreadableValue(Exception):
    """A value that can't be read, before it is known where it stood; never leaves the grammar."""

    def __init__(self, summary: str, hint: str = "", *, code: str = "invalid-value") -> None:
        self.code = code
        self.summary = summary
        self.hint = hint
        super().__init__(summary)
