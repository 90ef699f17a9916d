"""The terms of a filter that no index answers: a value in a JSON body, a header's value. Read from a letter's content.

Full-text search finds the candidates by `words_wanted`, `passes` says which of them it really is. Pure. What full-text
search does not know of a letter (the end of a body above 64 KiB) is not found by this either.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from redrive.records import (
    UNSEARCHED_HEADERS,
    BodyPath,
    Content,
    HeaderIs,
    certain_words,
    matches_body,
    matches_header,
)
from redrive.wire import Properties, ProtocolError

Check: TypeAlias = BodyPath | HeaderIs
_NOT_INDEXED = frozenset(name.casefold() for name in UNSEARCHED_HEADERS)


def words_wanted(check: Check) -> tuple[str, ...]:
    """Words that every letter has which passes; none when full text can't help."""
    if check.negated or (isinstance(check, HeaderIs) and check.name.casefold() in _NOT_INDEXED):
        return ()
    return certain_words(check.value)


def passes(content: Content, checks: tuple[Check, ...]) -> bool:
    """All checks hold."""
    for check in checks:
        if isinstance(check, BodyPath):
            if not matches_body(check, content.body):
                return False
        elif not matches_header(check, _headers(content.properties)):
            return False
    return True


def _headers(properties: bytes) -> Mapping[str, Any]:
    """The headers; none where they are malformed."""
    try:
        return Properties(properties).headers or {}
    except ProtocolError:
        return {}
