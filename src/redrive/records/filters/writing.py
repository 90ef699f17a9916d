"""A filter as text: what `parse_filter` reads back as the same filter. Moments are written absolutely."""

import re

from redrive.records.filters.terms import (
    BodyTerm,
    ErrorTerm,
    Filter,
    FlagTerm,
    HeaderTerm,
    NameTerm,
    NumberTerm,
    Term,
    TimeTerm,
    WordsTerm,
)
from redrive.records.filters.values import write_moments, write_numbers

_PLAIN_VALUE = re.compile(r'[^\s",\\]+')
_PLAIN_PART = re.compile(r'[^\s",.:\\]+')
_PLAIN_HEADER = re.compile(r'[^\s",:\\]+')


def format_filter(filter: Filter) -> str:
    """The text of a filter, for "copy as CLI", a URL, a record. `parse_filter` gives the same filter back."""
    return " ".join(("-" if term.negated else "") + _write(term) for term in filter.terms)


def _write(term: Term) -> str:
    match term:
        case NameTerm(field=field, values=values):
            return f"{field}:" + ",".join(_quote(value, _PLAIN_VALUE) for value in values)
        case TimeTerm(field=moment_field, from_ms=from_ms, until_ms=until_ms):
            return f"{moment_field}:{write_moments(from_ms, until_ms)}"
        case NumberTerm(field=number_field, low=low, high=high):
            return f"{number_field}:{write_numbers(low, high)}"
        case FlagTerm(flag=flag):
            return f"is:{flag}"
        case ErrorTerm(text=text):
            return f"error:{_quote(text, _PLAIN_VALUE)}"
        case BodyTerm(path=path, value=value):
            return f"body.{'.'.join(_quote(part, _PLAIN_PART) for part in path)}:{_quote(value, _PLAIN_VALUE)}"
        case HeaderTerm(name=name, value=value):
            return f"header.{_quote(name, _PLAIN_HEADER)}:{_quote(value, _PLAIN_VALUE)}"
        case WordsTerm():
            return _write_words(term)


def _write_words(term: WordsTerm) -> str:
    star = "*" if term.is_prefix else ""
    text = " ".join(term.words)
    if term.is_phrase:
        return f'"{text}"{star}'
    # Several words in any order are one term only when they are said to be.
    return f"{text}{star}" if len(term.words) == 1 else f'words:"{text}{star}"'


def _quote(text: str, plain: "re.Pattern[str]") -> str:
    if plain.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
