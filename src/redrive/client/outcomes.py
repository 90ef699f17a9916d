"""What became of a publish: exactly one of four.

    Confirmed   the broker has it: in a queue, and on disk where that was promised
    Returned    no queue took it (mandatory); the broker gave it back, with code and text
    Nacked      the broker refused it: a full reject-publish queue, or an internal failure
    InDoubt     nobody can know: the connection or channel went before the confirm, or the deadline passed;
                `sent` is False where it is certain that nothing left this process; `late` is where its outcome is
                still going to be, if only the deadline has passed

Only `Confirmed` allows an ack of what the message was copied from. After `InDoubt` publish again with the same message
id: a duplicate may follow, a loss may not.
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
    """The message may or may not be with the broker; with `sent` False it certainly is not."""

    reason: str
    sent: bool = True
    late: "asyncio.Future[Outcome] | None" = field(default=None, compare=False, repr=False)


Outcome = Confirmed | Returned | Nacked | InDoubt

CONFIRMED = Confirmed()
NACKED = Nacked()
