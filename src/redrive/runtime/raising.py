"""A handler that raised: how its run has ended, and whether the error is the handler's at all.

The runtime's own cancellation goes through handlers too. It is told apart here, so that nothing that was not the
handler's doing counts against its message.
"""

import asyncio

from redrive.core import Answered, Outcome, Raised, TimedOut, outcome_of
from redrive.runtime.calling import OutOfTime

_HAVE_ERRORS = (Raised, Answered)


class Untouched(asyncio.CancelledError):
    """We were cancelled before the handler had ended: nothing has been said about the delivery."""


def read_error(error: BaseException, *, now_ms: int, timeout_ms: int | None) -> Outcome:
    """How a handler that raised has ended. Raises `Untouched`, or the error again, if it is not the handler's."""
    if isinstance(error, Exception):
        return outcome_of(error, now_ms=now_ms)
    match error:
        case OutOfTime():
            return TimedOut(after_ms=timeout_ms or 0)
        case asyncio.CancelledError():
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # else it is we who are ended, and the delivery goes back
                return Raised(error)
            raise Untouched from error
        case GeneratorExit() if _came_through_a_call(error):
            return Raised(error)
        case KeyboardInterrupt() | GeneratorExit():
            raise error
        case _:  # SystemExit, a panic of a Rust library: one message must not take the others with it
            return Raised(error)


def _came_through_a_call(error: BaseException) -> bool:
    """Whether it was raised below whoever caught it. When a coroutine is closed Python closes what it awaits first, and
    then raises a new GeneratorExit in it: one that came from below is a handler's own."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


async def raise_later(error: BaseException) -> None:
    """Raises it where it is awaited."""
    raise error


def begin_stack_at_handler(outcome: Outcome) -> None:
    """Leaves our own frames out of what is kept of an error's stack: its first line is the handler's."""
    error = outcome.error if isinstance(outcome, _HAVE_ERRORS) else None
    if error is None:
        return
    top = frame = error.__traceback__
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("redrive.runtime."):
        frame = frame.tb_next
    if frame is not None and frame is not top:
        BaseException.with_traceback(error, frame)  # an error may be frozen, and allow nobody to set anything
