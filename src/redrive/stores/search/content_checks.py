"""The terms of a filter that no index answers: a value in a JSON body, or of a header. Read from a letter's content.

Full-text search finds candidates by `words_wanted`. `passes_checks` checks one of them, `check_contents` several,
within limits. Pure: `offload` decides in which thread or process it runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from redrive.records import (
    UNSEARCHED_HEADERS,
    BodyTerm,
    BodyValues,
    HeaderTerm,
    MessageContent,
    Meter,
    certain_words,
    matches_header,
)
from redrive.stores.message_contents import headers_of, unwrap_envelope
from redrive.wire import may_be_envelope

Check: TypeAlias = BodyTerm | HeaderTerm
CONTENT_COST = 4_000
"""What it costs to check any content, however small."""

_SLICE_COST = 200_000
"""After so much work it asks whether the caller still waits."""
_NOT_INDEXED = frozenset(name.casefold() for name in UNSEARCHED_HEADERS)


def words_wanted(check: Check) -> tuple[str, ...]:
    """Words that every letter has that passes; none when full text can't help."""
    if check.negated or (isinstance(check, HeaderTerm) and check.name.casefold() in _NOT_INDEXED):
        return ()
    return certain_words(check.value)


def passes_checks(content: MessageContent, checks: tuple[Check, ...], meter: Meter) -> bool:
    """All checks hold."""
    headers: Mapping[str, Any] | None = None
    values: BodyValues | None = None
    for check in checks:
        if isinstance(check, BodyTerm):
            values = BodyValues(content.body, meter) if values is None else values
            holds = values.has(check.path, check.value)
        else:
            headers = headers_of(content.properties) if headers is None else headers
            holds = matches_header(check.name, check.value, headers)
        if holds is check.negated:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """How much work is done in one go, in bytes read (see `records.Meter`); more for one letter is too much."""

    piece_cost: int
    letter_cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Whether the first contents pass, as many as were looked at, and what that cost."""

    answers: list[bool]
    cost: int
    is_letter_too_expensive: bool = False
    """The next letter costs more than the limit."""


class CheckCancelled(Exception):
    """Nobody waits for the answer any more."""


def check_contents(
    contents: Iterable[MessageContent | None],
    checks: tuple[Check, ...],
    limits: CheckLimits,
    is_over: Callable[[], bool],
) -> CheckResult:
    """Checks one content after the other until `piece_cost` is spent. A missing content does not pass. Raises
    CheckCancelled."""
    meter = _Meter(limits.letter_cost, is_over)
    answers: list[bool] = []
    for content in contents:
        meter.begin_letter()
        try:
            if content is not None:
                # Reading what is written there comes first: headers are decoded as a whole.
                meter.spend(CONTENT_COST + len(content.properties))
                if may_be_envelope(content.properties):
                    content = unwrap_envelope(content)
                    meter.spend(len(content.properties))
            answers.append(content is not None and passes_checks(content, checks, meter))
        except _LetterTooExpensive:
            return CheckResult(answers=answers, cost=meter.spent, is_letter_too_expensive=True)
        if meter.spent >= limits.piece_cost:
            break
    return CheckResult(answers=answers, cost=meter.spent)


class _LetterTooExpensive(Exception):
    """One letter costs more than the limit."""


class _Meter:
    def __init__(self, letter_cost: int, is_over: Callable[[], bool]) -> None:
        self.spent = 0
        self._letter_cost = letter_cost
        self._is_over = is_over
        self._of_letter = 0
        self._of_slice = 0

    def begin_letter(self) -> None:
        self._of_letter = 0

    def spend(self, cost: int) -> None:
        self.spent += cost
        self._of_letter += cost
        self._of_slice += cost
        if self._of_letter > self._letter_cost:
            raise _LetterTooExpensive
        if self._of_slice >= _SLICE_COST:
            self._of_slice = 0
            if self._is_over():
                raise CheckCancelled
