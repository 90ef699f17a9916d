"""The declaration as a value: what an author declares, before any shape has turned it into a topology.

It has the exchanges and queues, their bindings, and how each queue retries. The YAML reader and the Python API
(`declare`) build the same value. `locate` gives the line of a path in the file, if there is a file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redrive.core import Finding, Position, Severity
from redrive.topology.argument_table import NO_ARGUMENTS, Arguments
from redrive.topology.model import DEFAULT_VHOST, Policy
from redrive.topology.option_types import Path

if TYPE_CHECKING:
    from redrive.topology.shapes.shape import Shape

Locate = Callable[[Path], Position | None]


def _nowhere(_path: Path) -> Position | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingSource:
    """One binding into a queue or exchange: from which exchange, with which key, with which arguments."""

    exchange: str
    key: str = ""
    arguments: Arguments = NO_ARGUMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredExchange:
    """An exchange as declared."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    arguments: Arguments = NO_ARGUMENTS
    sources: tuple[BindingSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredAutoRetry:
    """Whether the dead letters of a queue are redriven automatically: how often, after which pauses, and after how long
    without a recurrence one is resolved."""

    is_on: bool = True
    attempts: int = 3
    first_ms: int = 1_000
    max_ms: int = 60_000
    settle_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQueue:
    """A queue as declared. `type` None leaves it to the shape; `retry` None means no retry at all.

    `path` is its place in the declaration; `service` is the name under which its dead letters are filed. `pause_after`
    is the number of failures in a row, as of a dependency that is down, that pauses its consumers; None and 0 mean
    never. `auto_retry` None: the declaration does not mention it.
    """

    name: str
    type: str | None = None
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = NO_ARGUMENTS
    sources: tuple[BindingSource, ...] = ()
    retry: "Shape | None" = None
    service: str | None = None
    pause_after: int | None = None
    auto_retry: DeclaredAutoRetry | None = None
    path: Path = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A whole declaration. `broker` and `database` hold where --url and --database are not given."""

    vhost: str = DEFAULT_VHOST
    broker: str | None = None
    database: str | None = None
    exchanges: tuple[DeclaredExchange, ...] = ()
    queues: tuple[DeclaredQueue, ...] = ()
    policies: tuple[Policy, ...] = ()
    locate: Locate = field(default=_nowhere, compare=False, repr=False)


def finding_at(
    path: Path,
    *,
    locate: Locate,
    code: str,
    summary: str,
    hint: str = "",
    severity: Severity = Severity.ERROR,
) -> Finding:
    """A finding about a place in a declaration."""
    return Finding(
        code=code, severity=severity, address=address_of(path), summary=summary, hint=hint, position=locate(path)
    )


_SECTIONS = {
    "queues": "queue",
    "exchanges": "exchange",
    "services": "service",
    "policies": "policy",
    "operator_policies": "operator policy",
}


def address_of(path: Path) -> str:
    """A path for people: "queue orders, retry.delays[1]"."""
    if len(path) >= 2 and path[0] in _SECTIONS and isinstance(path[1], str):
        head = f"{_SECTIONS[str(path[0])]} {path[1]}"
        rest = _dotted(path[2:])
        return f"{head}, {rest}" if rest else head
    return _dotted(path) or "the file"


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else str(step))
    return text
