"""JSON text to plain values, and back from a path in them to the line and column.

Refused is what RabbitMQ's own versions read differently, so that no reading would be right: of a key given twice 3.10
takes the last value and 4.x the first; only 3.10 takes a lone surrogate; all refuse NaN and numbers beyond a double.
All take NUL, which is refused here because no tool and no database can hold it.

Python's own parser does the work, with the cheapest possible checks. Only a text that fails them, or in which the
reader finds a fault, is tokenised to find the positions.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from redrive.core import Finding, InvalidDefinitions, Position

Path: TypeAlias = tuple[str | int, ...]
"""Where a value is: ("queues", 3, "durable")."""

_BYTE_ORDER_MARK = "\ufeff"
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_SUSPECT = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text that is JSON, with its content."""

    file: str
    text: str
    content: Any

    def positions(self, paths: Iterable[Path]) -> dict[Path, Position]:
        """Where each path is, or the nearest thing around it that exists."""
        return _Places(self.file, self.text).find(paths)


def parse_json(text: str | bytes, *, file: str) -> Document:
    """The text's content. Raises `InvalidDefinitions` with every fault of the syntax, its line and its column."""
    decoded = _decode(text, file).removeprefix(_BYTE_ORDER_MARK)
    places = _Places(file, decoded)
    if not decoded.strip():
        raise _invalid("not-json", "the file is empty", "a definitions file is a JSON object")
    repeated: list[str] = []
    try:
        content = json.loads(
            decoded,
            object_pairs_hook=lambda pairs: _object(pairs, repeated),
            parse_constant=_refuse_number,
            parse_float=_finite,
        )
    except json.JSONDecodeError as problem:
        place = places.at(problem.pos)
        raise _invalid("not-json", f"is not JSON: {problem.msg}", "see what stands just before", place) from None
    except RecursionError:
        raise _invalid("too-deep", "is nested too deeply for anyone", "no definitions are") from None
    except ValueError:  # a number; its own text may be too long for a message
        raise InvalidDefinitions(places.faults() or [_finding("bad-number", "holds a number that is none")]) from None
    if repeated or _is_suspect(decoded):
        faults = places.faults()
        if faults:
            raise InvalidDefinitions(faults)
    return Document(file=file, text=decoded, content=content)


def written(path: Path) -> str:
    """A path for people: `queues[3].durable`; "" for the whole file."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _decode(text: str | bytes, file: str) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as problem:
        if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise _invalid("not-utf-8", "is UTF-16", "save it as UTF-8, the only encoding RabbitMQ reads") from None
        before = text[: problem.start]
        place = Position(file=file, line=before.count(b"\n") + 1, column=problem.start - (before.rfind(b"\n") + 1) + 1)
        raise _invalid("not-utf-8", "is not UTF-8", "save it as UTF-8", place) from None


def _object(pairs: list[tuple[str, Any]], repeated: list[str]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        repeated.append("")
    return found


def _is_suspect(text: str) -> bool:
    # The plain searches come first: they are much cheaper than the patterns, and decide for most files.
    return ("\\u" in text and _SUSPECT.search(text) is not None) or (
        not text.isascii() and _HALF_PAIR.search(text) is not None
    )


def _finite(literal: str) -> float:
    number = float(literal)
    if number in (float("inf"), float("-inf")):
        _refuse_number(literal)
    return number


def _refuse_number(literal: str) -> None:
    raise ValueError(literal)


def _invalid(code: str, summary: str, hint: str = "", position: Position | None = None) -> InvalidDefinitions:
    return InvalidDefinitions([_finding(code, summary, hint, position)])


def _finding(code: str, summary: str, hint: str = "", position: Position | None = None, path: Path = ()) -> Finding:
    return Finding(code=code, address=written(path) or "definitions", summary=summary, hint=hint, position=position)


class _Token(NamedTuple):
    path: Path
    text: str
    offset: int
    is_key: bool


class _Places:
    """The text as tokens with paths: iterative, so that no nesting is too deep, and one pass for many paths."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines: list[int] = []

    def at(self, offset: int) -> Position:
        """The line and column of an offset."""
        if not self._lines:
            self._lines = [-1, *(one.start() for one in re.finditer("\n", self._text))]
        line = bisect_left(self._lines, offset)
        return Position(file=self._file, line=line, column=offset - self._lines[line - 1])

    def find(self, paths: Iterable[Path]) -> dict[Path, Position]:
        """Each path's value, or the nearest thing around it."""
        asked = set(paths)
        wanted = {path[:length] for path in asked for length in range(len(path) + 1)}
        offsets: dict[Path, int] = {}
        for path, _, offset, is_key in self._tokens():
            if not is_key and path in wanted:
                offsets[path] = offset
                if len(offsets) == len(wanted):
                    break
        found = {}
        for path in asked:
            near = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in offsets), None)
            if near is not None:
                found[path] = self.at(offsets[near])
        return found

    def faults(self) -> list[Finding]:
        """Keys given twice, numbers and characters that RabbitMQ's versions can't agree on."""
        found = []
        seen: set[Path] = set()
        for token in self._tokens():
            first = token.text[0]
            problem = _string_problem(token.text) if first == '"' else _number_problem(token.text)
            if problem is not None:
                found.append(_finding(*problem, self.at(token.offset), token.path))
            if token.is_key:
                if token.path in seen:
                    summary = "is given twice: of the two values 3.10 takes the last and 4.x the first"
                    found.append(_finding("repeated-key", summary, "keep one", self.at(token.offset), token.path))
                seen.add(token.path)
        return found

    def _tokens(self) -> Iterator[_Token]:
        """Every key, scalar and opening bracket. The text is known to be JSON, or nearly."""
        path: list[str | int] = []
        brackets: list[str] = []
        key_next = False
        for match in _TOKEN.finditer(self._text):
            text = match.group()
            if text in "]}":
                if brackets:
                    brackets.pop()
                    path.pop()
                key_next = False
            elif text == ",":
                if brackets and brackets[-1] == "[":
                    index = path[-1]
                    path[-1] = index + 1 if isinstance(index, int) else 0
                key_next = bool(brackets) and brackets[-1] == "{"
            elif text == ":":
                key_next = False
            elif key_next:
                path[-1] = _unquoted(text)
                yield _Token(tuple(path), text, match.start(), is_key=True)
            else:
                yield _Token(tuple(path), text, match.start(), is_key=False)
                if text in "[{":
                    brackets.append(text)
                    path.append(0 if text == "[" else "")
                    key_next = text == "{"


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token


def _string_problem(token: str) -> tuple[str, str, str] | None:
    if "\\u" not in token and not _HALF_PAIR.search(token):
        return None
    value = _unquoted(token)
    if _HALF_PAIR.search(value):
        return "half-character", "holds half of a surrogate pair, which is no character", "write the character itself"
    if "\0" in value:
        return "nul-character", "holds a NUL character", "leave it out"
    return None


def _number_problem(token: str) -> tuple[str, str, str] | None:
    shown = token if len(token) <= 40 else f"{token[:20]}…"
    if token in ("NaN", "Infinity", "-Infinity"):
        return "bad-number", f"is {shown}, which JSON does not have", "RabbitMQ refuses the file"
    try:
        if token[:1] in "-0123456789" and abs(float(token)) == float("inf"):
            return "bad-number", f"is {shown}, which is larger than any number RabbitMQ reads", "write a smaller one"
    except ValueError:
        return None
    return None
