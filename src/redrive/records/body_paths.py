"""Values inside a message, as filters ask for them: at a path in a JSON body, or of a header.

Whatever the message holds, a question is answered with yes or no. Numbers are compared as they are written in the body,
so that what matches is also what full-text search finds: `42` is not `42.0`.

A body is taken apart only as far as the paths lead, each part once for all questions, and in small steps: a large one
must not hold up a process in one go. Whoever asks may count the work with a `Meter` and end it.
"""

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
_SCALAR = msgspec.json.Decoder(float_hook=str)
_AT_ONCE = 200
_BLANK = b" \t\r\n"
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Path = tuple[str, ...]
Container = dict[str, msgspec.Raw] | list[msgspec.Raw]


class Meter(Protocol):
    """Counts work, in bytes read."""

    def spend(self, cost: int) -> None:
        """So much is about to be done. Raises to end it."""


class Unmetered:
    """A meter for whom nothing is too much."""

    def spend(self, cost: int) -> None:
        """As you like."""


class BodyValues:
    """The values of one body. A body that is no JSON, or no UTF-8, or too large, has none."""

    def __init__(self, body: bytes, meter: Meter | None = None) -> None:
        self._meter = Unmetered() if meter is None else meter
        self._nodes: dict[Path, list[msgspec.Raw]] = {(): _roots(body)}
        self._containers: dict[Path, list[Container]] = {}
        self._texts: dict[Path, dict[str, None]] = {}

    def has(self, path: Path, value: str) -> bool:
        """Whether the value is at the path. `*` in the value stands for any text, in the path for any key or place.

        A path that leads to a list also matches what is in it; tables never equal a value.
        """
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
        self._meter.spend(len(memoryview(node)))
        try:
            return _TABLE.decode(node) if _begin(node) == b"{" else _LIST.decode(node)
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
    return [msgspec.Raw(body.strip(_BLANK))]


def _begin(node: msgspec.Raw) -> bytes:
    return bytes(memoryview(node)[:1])


def _text(node: msgspec.Raw) -> str | None:
    """A scalar as text; None for tables, lists and what is no JSON."""
    if _begin(node) in (b"{", b"["):
        return None
    try:
        value = _SCALAR.decode(node)
    except _NO_JSON:
        return None
    match value:
        case str():
            return value
        case None | bool():
            return _LITERALS[value]
        case int():
            return format(value, "d") if abs(value) < 1 << 64 else None
        case _:
            return None
