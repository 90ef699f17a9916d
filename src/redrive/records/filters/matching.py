"""What a filter means: one function over a dead letter. A store may search in any way, but selects what this says.

A letter is asked as it was collected: its row, and the headers and the body that came with it, not what somebody made
of them since. A negated term is the complement: `-service:a` holds for letters without a service too.
"""

import unicodedata
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, assert_never

from redrive.records.body_paths import BodyValues, matches_glob, matches_header
from redrive.records.filters.terms import (
    BodyTerm,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    MomentField,
    NameField,
    NameTerm,
    NumberField,
    NumberTerm,
    Term,
    TimeTerm,
    WordsTerm,
)
from redrive.records.letters import DeadLetter
from redrive.records.search_text import search_text
from redrive.records.search_words import has_phrases, indexed_words, phrases_of
from redrive.records.states import Status

_NAMES: dict[NameField, Callable[[DeadLetter], tuple[str | None, ...]]] = {
    "id": lambda letter: (letter.id,),
    "vhost": lambda letter: (letter.vhost,),
    "queue": lambda letter: (letter.queue, letter.dlq),
    "dlq": lambda letter: (letter.dlq,),
    "exchange": lambda letter: (letter.exchange,),
    "topic": lambda letter: (letter.routing_key,),
    "service": lambda letter: (letter.service,),
    "type": lambda letter: (letter.type,),
    "reason": lambda letter: (letter.reason,),
    "status": lambda letter: (letter.status.value,),
    "group": lambda letter: (letter.group_id,),
    "message_id": lambda letter: (letter.message_id,),
    "correlation_id": lambda letter: (letter.correlation_id,),
    "error_type": lambda letter: (letter.error_type,),
    "operation": lambda letter: (letter.operation_id,),
}
_MOMENTS: dict[MomentField, Callable[[DeadLetter], int]] = {
    "dead": lambda letter: letter.dead_at_ms,
    "collected": lambda letter: letter.collected_at_ms,
    "updated": lambda letter: letter.updated_at_ms,
}
_NUMBERS: dict[NumberField, Callable[[DeadLetter], int | None]] = {
    "attempts": lambda letter: letter.attempts,
    "redrives": lambda letter: letter.redrives,
    "returns": lambda letter: letter.returns,
    "size": lambda letter: letter.size_bytes,
    "status_code": lambda letter: letter.status_code,
}

_REPLACED = dict.fromkeys((0, 0xFFFE, 0xFFFF), "\ufffd")


def matches(filter: Filter, letter: DeadLetter, *, headers: Mapping[str, Any], body: bytes, now_ms: int) -> bool:
    """Whether all terms hold for the letter; `headers` and `body` are those it was collected with."""
    message = _Message(letter, headers, body)
    return all(_holds(term, letter, message, now_ms) is not term.negated for term in filter.terms)


def storable(text: str) -> str:
    """A text as every store holds it: PostgreSQL has no NUL, half a surrogate pair is no UTF-8, and SQLite reads U+FFFE
    and U+FFFF as U+FFFD where a name has `*`."""
    if text.isascii():
        return text.replace("\x00", "\ufffd") if "\x00" in text else text
    return text.encode("utf-8", "replace").decode().translate(_REPLACED)


def fold(text: str) -> str:
    """A text in which case does not count, nor whether an accent is a character of its own. It has no U+FFFF: that is
    free to separate folded texts."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFC", text).casefold().replace("\uffff", "\ufffd")
    return unicodedata.normalize("NFC", folded)


class _Message:
    """What is read of a message once, for all terms that ask for it."""

    def __init__(self, letter: DeadLetter, headers: Mapping[str, Any], body: bytes) -> None:
        self._letter = letter
        self.headers = headers
        self._body = body

    @cached_property
    def words(self) -> list[str]:
        return indexed_words(search_text(self._letter, headers=self.headers, body=self._body))

    @cached_property
    def values(self) -> BodyValues:
        return BodyValues(self._body)


def _holds(term: Term, letter: DeadLetter, message: _Message, now_ms: int) -> bool:
    """Whether a term holds, as if it were not negated."""
    match term:
        case NameTerm():
            names = [name for name in _NAMES[term.field](letter) if name is not None]
            return any(matches_glob(storable(value), name) for value in term.values for name in names)
        case TimeTerm():
            moment_ms = _MOMENTS[term.field](letter)
            return (term.from_ms is None or moment_ms >= term.from_ms) and (
                term.until_ms is None or moment_ms < term.until_ms
            )
        case NumberTerm():
            number = _NUMBERS[term.field](letter)
            return (
                number is not None
                and (term.low is None or number >= term.low)
                and (term.high is None or number <= term.high)
            )
        case FlagTerm():
            return _is_marked(term, letter, now_ms)
        case ErrorTerm():
            text = fold(storable(term.text))
            return any(error is not None and text in fold(error) for error in (letter.error_type, letter.error_message))
        case WordsTerm():
            if not phrases_of(term):
                # Nothing is asked for, and of nothing there is no complement.
                return not term.negated
            return has_phrases(term, message.words)
        case BodyTerm():
            return message.values.has(term.path, term.value)
        case HeaderTerm():
            return matches_header(term.name, term.value, message.headers)
        case _:
            assert_never(term)


def _is_marked(term: FlagTerm, letter: DeadLetter, now_ms: int) -> bool:
    match term.flag:
        case "poison":
            return letter.is_poison
        case "edited":
            return letter.is_edited
        case "copy":
            return letter.copy_of is not None
        case "due":
            return letter.status is Status.PENDING and letter.due_at_ms is not None and letter.due_at_ms <= now_ms
        case _:
            assert_never(term.flag)
