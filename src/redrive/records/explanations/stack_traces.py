"""The frame of a stack trace that distinguishes one failure from another: the innermost one of the application's own.

Python prints the innermost frame last, all others first. Line numbers, addresses and what compilers number are left
out: they change with every build while the failure stays the same. So does the directory that a release is installed
in: a file counts by its name, with the directory it is in only where the stack shows that the application goes on
beside that directory. Redrive's own frames say nothing about the failure, only which way a message came to it.
"""

import re
from collections.abc import Sequence
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
"""Headers that hold a stack, of every framework."""

_PYTHON = re.compile(r'^\s*File "([^"\n]{1,500})", line \d+(?:, in ([^\n]{1,200}))?', re.MULTILINE)
_AT = re.compile(r"^\s*at (?:async )?([^\n]{1,500})$", re.MULTILINE)
_ANY = re.compile(r"([\w-]{1,100}\.[a-zA-Z]{1,5})[:(]\d+\b")
"""Somebody else's: Go, Ruby, PHP. A file and a line is a frame."""

_HEAD = re.compile(
    r"^(?:Caused by: )?((?:[A-Za-z_$][\w$]{0,100}\.)+[A-Za-z_$][\w$]{0,100})(?:: ?([^\n]*))?$", re.MULTILINE
)
"""An error and its message, as Java prints it above its frames."""
_OURS = re.compile(r"(?:^|/)redrive/(?:runtime|core|client|wire|topology|telemetry)/[\w/]+\.py$")
_LIBRARIES = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[\d.]{0,9}/|/[Pp]ython\d{1,9}/[Ll]ib/|(?:^|/)node_modules/"
)
"""Where libraries are installed."""
_OTHERS_FILES = re.compile(rf"{_LIBRARIES.pattern}|<frozen|node:|\(internal/")
_LOADER = re.compile(r"^(?:[^/$\s(]{0,200}/){1,2}(?=[A-Za-z_])")
"""Java's loader and module, with their versions: `app//`, `app/com.acme.orders@1.2/`."""
_OTHERS_NAMES = re.compile(
    r"(?:[\w.@+-]{0,200}/){0,2}(?:System|Microsoft|MassTransit|GreenPipes|NServiceBus|Wolverine|JasperFx|RabbitMQ|Castle"
    r"|Polly|java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|akka|reactor|io\.netty|com\.rabbitmq"
    r"|org\.(?:springframework|apache|hibernate|aopalliance|junit))\."
)
_VARYING = re.compile(
    r"0x[0-9a-fA-F]+|(?<=__)\d+(?:_\d+)?|(?<=DisplayClass)\d+(?:_\d+)?|(?<=\|)\d+_\d+|(?<=\$)[0-9a-f]+(?=[.$/]|$)"
    r"|(?<=Accessor)\d+|@[0-9a-f]{5,16}\b"
)
_LINES = re.compile(r"(?::\d+){1,2}$")
_FRAME_MAX = 300


def top_frame(stack: str) -> str | None:
    """The application's innermost frame, or the innermost of all; None if no frame can be read."""
    # The message of an error differs from letter to letter, its frames don't: without the message, which stands below
    # them in Python and above them elsewhere, the answer is known from the last time.
    last = stack.rfind('File "')
    if last >= 0:
        end = stack.find("\n", last)
        found = _frame_of_python(stack if end < 0 else stack[:end])
        if found is not None:
            return found or None
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
    """None if it is no stack of Python's, empty if all of its frames are ours."""
    frames = [(path.replace("\\", "/"), function) for path, function in _PYTHON.findall(stack)]
    if not frames:
        return None
    theirs = [frame for frame in frames if _OURS.search(frame[0]) is None]
    if not theirs:
        return ""
    own = [frame for frame in theirs if _OTHERS_FILES.search(frame[0]) is None]
    path, function = (own or theirs)[-1]
    return _normal(f"{_place(path, [file for file, _ in own])} {function}".rstrip())


@lru_cache(maxsize=512)
def _frame_of_others(stack: str) -> str | None:
    """.NET's, Java's, JavaScript's: all say `at`."""
    frames = [frame.strip().replace("\\", "/") for frame in _AT.findall(stack)]
    if not frames:
        return None
    own = [frame for frame in frames if not _is_others(frame)]
    return _normal(_called((own or frames)[0], own))


@lru_cache(maxsize=512)
def _any_frame(stack: str) -> str | None:
    found = _ANY.search(stack)
    return None if found is None else _normal(found.group(1))


def _is_others(frame: str) -> bool:
    return _OTHERS_NAMES.match(frame) is not None or _OTHERS_FILES.search(frame) is not None


def _called(frame: str, own: Sequence[str]) -> str:
    """What was called, without arguments, file and line: `Shop.Orders.Place` of `Shop.Orders.Place(Order o) in …`."""
    name, file = _parts(frame)
    if file is None:
        return _LOADER.sub("", name)
    # JavaScript has a file's path in the brackets or alone, and a function's name alone says little.
    files = [other for _, other in map(_parts, own) if other is not None]
    return f"{name} {_place(file, files)}".strip()


def _parts(frame: str) -> tuple[str, str | None]:
    """The name of what was called and the path of its file, where the frame has one."""
    name, bracket, rest = frame.partition("(")
    name = name.strip()
    if not bracket:
        return ("", _LINES.sub("", name)) if "/" in name else (name, None)
    file = rest.rpartition(")")[0]
    return name, _LINES.sub("", file) if "/" in file and _LINES.search(file) is not None else None


def _place(path: str, own: Sequence[str]) -> str:
    """A file, wherever it is installed: of a library by its path there, of the application (`own` are the files of
    its frames) by its name.

    With the directory it is in where another file of the stack lies beside that directory, which then is one of the
    application's and not a release's; and where it is a Python package, which is named by its directory.
    """
    libraries = list(_LIBRARIES.finditer(path))
    if libraries:
        return path[libraries[-1].end() :]
    above, _, name = path.rpartition("/")
    beside, _, directory = above.rpartition("/")
    if not directory:
        return name
    has_more = bool(beside) and any(
        other.startswith(f"{beside}/") and not other.startswith(f"{above}/") for other in own
    )
    return f"{directory}/{name}" if has_more or name == "__init__.py" else name


def _normal(frame: str) -> str:
    return _VARYING.sub("", " ".join(frame.split()))[:_FRAME_MAX]
