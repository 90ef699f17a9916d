"""What failed in a handler, as text that fits into headers and logs whatever its size was.

A header frame above about 131 kB closes the connection, so every text is cut here, in bytes, between characters. Both
ends are kept, because the beginning says what failed and the end often says why.
"""

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, TracebackType
from typing import assert_never

from redrive.core.outcomes import Answered, Crashed, Outcome, Raised, Succeeded, TimedOut, Undecodable

MESSAGE_BYTES_MAX = 2_000
STACK_BYTES_MAX = 8_000
TYPE_BYTES_MAX = 200
_CRASHED = "its consumers died with it in hand, or took longer than the broker waits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error's type, message, the top of its stack, and the HTTP status it came with; bounded."""

    type: str
    message: str
    stack: str = ""
    status: int | None = None
    text: str = field(init=False, repr=False, compare=False)
    """`Type: message`, as the `x-final-error` header has it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", f"{self.type}: {self.message}" if self.message else self.type)

    def __hash__(self) -> int:
        return hash(self.text)  # Python caches it; failures with one text seldom differ in the rest


def describe_error(error: BaseException, *, status: int | None = None, stack: bool = True) -> Failure:
    """An error as a failure. Works even if the error's own `__str__` raises.

    `stack` False leaves out the stack, which costs more than all the rest and is needed only on a dead letter.
    """
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - a __str__ of the handler's
        message = f"(its text can't be made: {type(broken).__name__})"
    if len(message) > MESSAGE_BYTES_MAX:  # what is cached below must be small
        message = shorten(message, MESSAGE_BYTES_MAX)
    written = _write_stack(error.__traceback__) if stack else ""
    return _known_failure(type(error).__qualname__, message, written, status)


@lru_cache(maxsize=128)
def _known_failure(kind: str, message: str, stack: str, status: int | None) -> Failure:
    """One value for all failures that are alike: when a dependency is down, thousands are."""
    kind, message = shorten(kind, TYPE_BYTES_MAX), shorten(message, MESSAGE_BYTES_MAX)
    return Failure(type=kind, message=message, stack=stack, status=status)


def describe_outcome(outcome: Outcome, *, stack: bool = True) -> Failure | None:
    """What failed in a run, None if nothing did; with or without the stack."""
    if type(outcome) is Raised:  # most are
        return describe_error(outcome.error, stack=stack)
    match outcome:
        case Raised(error=error) | Undecodable(error=error):
            return describe_error(error, stack=stack)
        case Succeeded():
            return None
        case Answered(status=status) if 200 <= status < 300:
            return None
        case Answered(status=status, error=BaseException() as error):
            return describe_error(error, status=status, stack=stack)
        case Answered(status=status, detail=detail):
            return Failure(type=f"HTTP {status}", message=shorten(detail, MESSAGE_BYTES_MAX), status=status)
        case TimedOut(after_ms=after_ms):
            return Failure(type="TimeoutError", message=f"the handler did not end within {after_ms / 1000:g} s")
        case Crashed(deliveries=deliveries):
            return Failure(type="Crashed", message=f"{_CRASHED}, {deliveries} times")
        case _:
            assert_never(outcome)


def _write_stack(top: TracebackType | None) -> str:
    """The stack as Python prints it, without the markers below the expressions: these cost a parse of each line."""
    places = []
    one = top
    while one is not None:
        code = one.tb_frame.f_code
        # Python takes two functions for equal that read alike in two files.
        places.append((code, code.co_filename, one.tb_lineno))
        one = one.tb_next
    key = tuple(places)
    written = _STACKS.get(key)
    if written is None:
        written = shorten("".join(_write_places(top)), STACK_BYTES_MAX)
        if len(key) <= _PLACES_MAX:
            if len(_STACKS) >= _STACKS_MAX:
                _STACKS.clear()
            _STACKS[key] = written
    return written


def _write_places(top: TracebackType | None) -> Iterator[str]:
    while top is not None:
        frame, number = top.tb_frame, top.tb_lineno
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {number}, in {code.co_name}\n'
        if line := linecache.getline(code.co_filename, number, frame.f_globals).strip():
            yield f"    {line}\n"
        top = top.tb_next


# Messages fail at few places, over and over. An endless recursion is not cached: its key alone would be large.
_STACKS: dict[tuple[tuple[CodeType, str, int], ...], str] = {}
_STACKS_MAX, _PLACES_MAX = 128, 64


def shorten(text: str, bytes_max: int) -> str:
    """A text of at most so many bytes of UTF-8, its middle left out; lone surrogates become `?`."""
    if len(text) <= bytes_max and text.isascii():
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= bytes_max:
        return raw.decode()
    gap = f"… {len(raw) - bytes_max:,} bytes left out …".encode()
    if bytes_max < 2 * len(gap):
        return raw[:bytes_max].decode("utf-8", "ignore")
    room = bytes_max - len(gap)
    head, tail = raw[: room - room // 3], raw[len(raw) - room // 3 :]
    return head.decode("utf-8", "ignore") + gap.decode() + tail.decode("utf-8", "ignore")
