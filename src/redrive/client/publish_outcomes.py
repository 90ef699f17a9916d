"""The outcome of a publish: exactly one of four.

    Confirmed   the broker has it: in a queue, and on disk where that was promised
    Returned    no queue took it (mandatory): the broker's basic.return, with code and text
    Nacked      the broker refused it: a full reject-publish queue, or an internal failure
    InDoubt     not known: the connection or channel was lost before the confirm, or the deadline passed;
                `sent` is False where it is certain that nothing left this process; `late` is the future of the real
                outcome where only the deadline has passed

Only `Confirmed` allows an ack of the message that this one is a copy of. After `InDoubt` publish again with the same
message id: there may be a duplicate, but no loss.
"""

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The broker has the message."""


@dataclass(frozen=True, slots=True)
class Returned:
    """No queue took the message: 312 NO_ROUTE and the like."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Nacked:
    """The broker refused the message."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The broker may or may not have the message; with `sent` False it certainly has not."""

    reason: str
    sent: bool = True
    late: "asyncio.Future[Outcome] | None" = field(default=None, compare=False, repr=False)


Outcome = Confirmed | Returned | Nacked | InDoubt

CONFIRMED = Confirmed()
NACKED = Nacked()
