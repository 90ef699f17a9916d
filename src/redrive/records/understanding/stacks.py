"""The frame of a stack trace that tells one failure from another: the innermost one of the application's own.

Python prints the innermost frame last, all others first. Line numbers, addresses and what compilers number are left
out: they change with every build while the failure stays the same.
"""

import re
from functools import lru_cache

STACK_HEADERS = frozenset(
    {
        "x-redrive-stack",
        "x-exception-stacktrace",
        "MT-Fault-StackTrace",
        "NServiceBus.ExceptionInfo.StackTrace",
        "exception-stack",
    }
)
"""Where stacks are, in whoever's headers."""

_PYTHON = re.compile(r'^\s*File "([^"\n]{1,500})", line \d+(?:, in ([^\n]{1,200}))?', re.MULTILINE)
_AT = re.compile(r"^\s*at (?:async )?([^\n]{1,500})$", re.MULTILINE)
_ANY = re.compile(r"((?:[\w.-]{1,100}/)?[\w-]{1,100}\.[a-zA-Z]{1,5})[:(]\d+\b")
"""Somebody else's: Go, Ruby, PHP. A file and a line is a frame."""

_HEAD = re.compile(
    r"^(?:Caused by: )?((?:[A-Za-z_$][\w$]{0,100}\.)+[A-Za-z_$][\w$]{0,100})(?:: ?([^\n]*))?$", re.MULTILINE
)
"""An error and its message, as Java prints it above its frames."""
_OTHERS_FILES = re.compile(
    r"site-packages|dist-packages|/lib/python\d|<frozen|node_modules|node:|\(internal/|/redrive/runtime/"
)
_OTHERS_NAMES = re.compile(
    r"(?:[\w.]+/{1,2})?(?:System|Microsoft|MassTransit|GreenPipes|NServiceBus|Wolverine|JasperFx|RabbitMQ|Castle|Polly"
    r"|java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|akka|reactor|io\.netty|com\.rabbitmq"
    r"|org\.(?:springframework|apache|hibernate|aopalliance|junit))\."
)
_VARYING = re.compile(
    r"0x[0-9a-fA-F]+|(?<=__)\d+(?:_\d+)?|(?<=\$)[0-9a-f]+(?=[.$/]|$)|(?<=Accessor)\d+|@[0-9a-f]{5,16}\b"
)
_FRAME_MAX = 300


def top_frame(stack: str) -> str | None:
    """The application's innermost frame, or the innermost of all; None if it has no frames that can be told."""
    # The message of an error differs from letter to letter, its frames don't: without the message, which stands below
    # them in Python and above them elsewhere, the answer is known from the last time.
    last = stack.rfind('File "')
    if last >= 0:
        end = stack.find("\n", last)
        found = _frame_of_python(stack if end < 0 else stack[:end])
        if found is not None:
            return found
    head, _, frames = stack.partition("\n")
    found = _frame_of_others(stack if head.lstrip().startswith("at ") else frames)
    return found if found is not None else _any_frame(stack)


def top_lines(stack: str, count: int = 3) -> str:
    """The first lines of a stack, or for Python's the last: those about the failure itself."""
    lines = [line.strip() for line in stack.splitlines() if line.strip()]
    return "\n".join(lines[-count:] if _PYTHON.search(stack) else lines[:count])


def cause_in(stack: str, message: str | None) -> tuple[str | None, str]:
    """The type of the error in a printed stack, and the part of the stack that is about it.

    Java prints an error and then each of its causes; the one that has the message is the one that was meant, the first
    one if none has.
    """
    heads = [(found.group(1), found.group(2) or "", found.start()) for found in _HEAD.finditer(stack)]
    if not heads:
        return None, stack
    for kind, said, start in heads:
        if message and said.strip() == message.strip().partition("\n")[0].strip():
            return kind, stack[start:]
    kind, _, start = heads[0]
    return kind, stack[start:]


@lru_cache(maxsize=512)
def _frame_of_python(stack: str) -> str | None:
    python = _PYTHON.findall(stack)
    if not python:
        return None
    own = [frame for frame in python if _OTHERS_FILES.search(frame[0]) is None] or python
    path, function = own[-1]
    return _normal(f"{_tail(path)} {function}".rstrip())


@lru_cache(maxsize=512)
def _frame_of_others(stack: str) -> str | None:
    """.NET's, Java's, JavaScript's: all say `at`."""
    frames = [frame.strip() for frame in _AT.findall(stack)]
    if not frames:
        return None
    own = [frame for frame in frames if not _is_others(frame)] or frames
    return _normal(_called(own[0]))


@lru_cache(maxsize=512)
def _any_frame(stack: str) -> str | None:
    found = _ANY.search(stack)
    return None if found is None else _normal(found.group(1))


def _is_others(frame: str) -> bool:
    return _OTHERS_NAMES.match(frame) is not None or _OTHERS_FILES.search(frame) is not None


def _called(frame: str) -> str:
    """What was called, without arguments, file and line: `Shop.Orders.Place` of `Shop.Orders.Place(Order o) in …`."""
    name, bracket, rest = frame.partition("(")
    name = name.strip()
    if name and not _looks_like_path(name):
        # JavaScript has the file in the brackets, and a function's name alone says little.
        file = rest.rpartition(")")[0] if bracket else ""
        return f"{name} {_tail(file)}" if "/" in file and ":" in file else name
    return _tail(name)


def _looks_like_path(name: str) -> bool:
    return "/" in name and not name.split("/", 1)[0].endswith(("java.base", "app"))


def _tail(path: str) -> str:
    """A file by its last two parts, without lines and columns: where it is installed differs from host to host."""
    plain = re.sub(r"(?::\d+)+$", "", path.replace("\\", "/"))
    return "/".join(plain.split("/")[-2:])


def _normal(frame: str) -> str:
    return _VARYING.sub("", " ".join(frame.split()))[:_FRAME_MAX]
