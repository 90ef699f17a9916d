"""The terms of a filter that no index answers: a value in a JSON body, a header's value. Read from a letter's content.

Full-text search finds the candidates by `words_wanted`, `passes` says which of them it really is. Pure.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from redrive.records import (
    UNSEARCHED_HEADERS,
    BodyPath,
    BodyValues,
    Content,
    HeaderIs,
    Meter,
    certain_words,
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


def passes(content: Content, checks: tuple[Check, ...], meter: Meter) -> bool:
    """All checks hold."""
    headers: Mapping[str, Any] | None = None
    values: BodyValues | None = None
    for check in checks:
        if isinstance(check, BodyPath):
            values = BodyValues(content.body, meter) if values is None else values
            holds = values.has(check.path, check.value)
        else:
            headers = headers_of(content.properties) if headers is None else headers
            holds = matches_header(check.name, check.value, headers)
        if holds is check.negated:
            return False
    return True


def headers_of(properties: bytes) -> Mapping[str, Any]:
    """The headers of a message; none where they are malformed."""
    try:
        return Properties(properties).headers or {}
    except ProtocolError:
        return {}
