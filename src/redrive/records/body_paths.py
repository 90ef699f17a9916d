"""Values inside a message, as filters ask for them: at a path in a JSON body, or of a header.

Whatever the message holds, a question is answered with yes or no. Numbers are compared as they are written in the body,
so that what matches is also what full-text search finds: `42` is not `42.0`.

JSON that breaks the standard but that most parsers accept is read too (see `_as_commonly_read`): if a body can't be
read, a negated term selects its letter.

A body is taken apart only as far as the paths lead, each part once for all questions, and in small steps: a large one
must not hold up a process in one go. The caller may count the work with a `Meter` and end it.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

import msgspec

VALUES_BYTES_MAX = 4 << 20
"""A larger body has no values: nobody has the time to look for them."""
NODE_COST = 250
"""Handling a value costs as much as reading so many bytes."""

_TABLE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_SCALAR = msgspec.json.Decoder(str | bool | None)
_AT_ONCE = 200
_BLANK = b" \t\r\n"
_DIGITS = b"-0123456789"
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# One that is not closed goes on to the end: to look for another beginning inside of it would take squares of time.
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"?'
# Every escape is looked at, so that the second half of `\\ud800` is not taken for one.
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_HALF_PAIRS = re.compile("[\ud800-\udfff]")
_UNCOMMON = re.compile(rb"\\u[dD][89a-fA-F]|NaN|Infinity")
_NO_NUMBERS = re.compile(rb"(" + _STRING + rb")|(?<![\w.])(NaN|-?Infinity)\b(?!\s*:)", re.DOTALL)
_READING_AGAIN_COST = 30
"""Looking at each byte once more, with expressions, costs so much more than reading it."""
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Path = tuple[str, ...]
Container = dict[str, msgspec.Raw] | list[msgspec.Raw]


class Meter(Protocol):
    """Counts work, in bytes read."""

    def spend(self, cost: int) -> None:
        """So much is about to be done. Raises to end it."""


class Unmetered:
    """A meter without a limit."""

    def spend(self, cost: int) -> None:
        """Nothing is counted."""


class BodyValues:
    """The values of one body. One that is no JSON, no UTF-8, too large, or nested too deep for Python has none."""

    def __init__(self, body: bytes, meter: Meter | None = None) -> None:
        self._meter = Unmetered() if meter is None else meter
        self._nodes: dict[Path, list[msgspec.Raw]] = {(): _roots(body)}
        self._containers: dict[Path, list[Container]] = {}
        self._texts: dict[Path, dict[str, None]] = {}

    def has(self, path: Path, value: str) -> bool:
        """Whether the value is at the path. `*` in the value stands for any text, in the path for any key or place.

        A path that leads to a list also matches what is in it; tables never equal a value.
        """
        if not value.isascii():
            value = _HALF_PAIRS.sub("\ufffd", value)
        known = self._texts.get(path)
        if known is None:
            known = self._texts[path] = dict.fromkeys(self._read_texts(path))
        if "*" not in value:
            return value in known
        texts = list(known)
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            self._meter.spend(sum(map(len, some)) + NODE_COST * len(some))
            if any(matches_glob(value, text) for text in some):
                return True
        return False

    def _read_texts(self, path: Path) -> list[str]:
        texts: list[str | None] = []
        for nodes in self._some(self._at(path)):
            for node in nodes:
                if _begin(node) != b"[":
                    texts.append(_text(node))
                    continue
                for some in self._some(self._take_apart(node)):
                    texts += map(_text, some)
        return [text for text in texts if text is not None]

    def _at(self, path: Path) -> list[msgspec.Raw]:
        """What the path leads to."""
        known = self._nodes.get(path)
        if known is not None:
            return known
        *before, step = path
        place = int(step) if step.isascii() and step.isdigit() and len(step) < 10 else None
        found: list[msgspec.Raw] = []
        containers = self._containers_at(tuple(before))
        for number, container in enumerate(containers):
            if number % _AT_ONCE == 0:
                self._meter.spend(NODE_COST * min(_AT_ONCE, len(containers) - number))
            if isinstance(container, dict):
                if step in container:
                    found.append(container[step])
                elif step == "*":
                    found += container.values()
            elif step == "*":
                found += container
            elif place is not None and place < len(container):
                found.append(container[place])
        self._nodes[path] = found
        return found

    def _containers_at(self, path: Path) -> list[Container]:
        """The tables and lists there, taken apart."""
        known = self._containers.get(path)
        if known is None:
            known = []
            for nodes in self._some(self._at(path)):
                known += [self._take_apart(node) for node in nodes if _begin(node) in (b"{", b"[")]
            self._containers[path] = known
        return known

    def _take_apart(self, node: msgspec.Raw) -> Container:
        size = len(memoryview(node))
        self._meter.spend(size)
        try:
            return _decode(node)
        except RecursionError:
            return []
        except msgspec.DecodeError:
            # All of a body is read with its root, so this happens once a body.
            if not _UNCOMMON.search(node):
                return []
            self._meter.spend(_READING_AGAIN_COST * size)
        try:
            return _decode(msgspec.Raw(_as_commonly_read(bytes(node))))
        except _NO_JSON:
            return []

    def _some(self, nodes: Container) -> Iterator[list[msgspec.Raw]]:
        """A few at a time, paid for."""
        listed = list(nodes)
        for start in range(0, len(listed), _AT_ONCE):
            some: list[Any] = listed[start : start + _AT_ONCE]
            self._meter.spend(NODE_COST * len(some))
            yield some


def matches_header(name: str, value: str, headers: Mapping[str, Any]) -> bool:
    """Whether the header has the value; the name in any case if there is none of exactly this one."""
    found = [headers[name]] if name in headers else []
    if not found:
        wanted = name.casefold()
        found = [each for other, each in headers.items() if other.casefold() == wanted]
    return any(matches_glob(value, text) for each in found for text in header_texts(each))


def header_texts(value: Any) -> Iterator[str]:
    """A header's value as the texts it may be asked for by: one for a scalar, those of its values for a list."""
    match value:
        case list() | tuple():
            for one in value:
                if not isinstance(one, list | tuple):
                    yield from header_texts(one)
        case str():
            yield value
        case bytes() | bytearray():
            yield bytes(value).decode("utf-8", "replace")
        case None | bool():
            yield _LITERALS[value]
        case datetime():
            yield value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        case int() | float() | Decimal():
            yield format(value) if not isinstance(value, int) else format(int(value), "d")
        case _:
            return


def matches_glob(pattern: str, text: str) -> bool:
    """Whether a text is what the pattern says, `*` standing for any text. Linear, however many stars there are."""
    first, *others = pattern.split("*")
    if not others:
        return first == text
    last = others.pop()
    if len(first) + len(last) > len(text) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in others:
        found = text.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def glob_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a text is what one of the patterns says; for many of both."""
    known = frozenset(patterns)
    exact, open_ones = frozenset(one for one in known if "*" not in one), [one for one in known if "*" in one]
    return lambda text: text in exact or any(matches_glob(one, text) for one in open_ones)


_LITERALS = {None: "null", True: "true", False: "false"}


def _roots(body: bytes) -> list[msgspec.Raw]:
    """The whole body, if it may be JSON."""
    if len(body) > VALUES_BYTES_MAX:
        return []
    try:
        body.decode()
    except UnicodeDecodeError:
        return []
    return [msgspec.Raw(body.removeprefix(codecs.BOM_UTF8).strip(_BLANK))]


def _decode(node: msgspec.Raw) -> Container:
    return _TABLE.decode(node) if _begin(node) == b"{" else _LIST.decode(node)


def _as_commonly_read(text: bytes) -> bytes:
    """JSON as Python, JavaScript and others write it, made such that a strict parser reads the same.

    Half of a surrogate pair, which can't be anything in UTF-8, becomes U+FFFD; `NaN` and `Infinity`, which are no
    numbers in JSON, become the text they are written as.
    """
    text = _ESCAPES.sub(lambda found: found[0] if found[1] is None else rb"\ufffd", text)
    if b"NaN" in text or b"Infinity" in text:
        text = _NO_NUMBERS.sub(lambda found: found[0] if found[2] is None else b'"' + found[2] + b'"', text)
    return text


def _begin(node: msgspec.Raw) -> bytes:
    return bytes(memoryview(node)[:1])


def _text(node: msgspec.Raw) -> str | None:
    """A scalar as text; None for tables, lists and what is no JSON."""
    begin = _begin(node)
    if begin in (b"{", b"["):
        return None
    if begin and begin in _DIGITS:
        # As it is written, and never made a number of: that takes long for a long one.
        return bytes(node).decode() if _NUMBER.fullmatch(node) else None
    try:
        value = _SCALAR.decode(node)
    except _NO_JSON:
        return None
    return value if isinstance(value, str) else _LITERALS[value]
