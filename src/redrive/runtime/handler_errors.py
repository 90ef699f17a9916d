"""What a handler raised: how its run has ended, and whether the error is the handler's at all.

The runtime's own cancellation passes through handlers too. It is told apart here, so that it does not count against the
message.
"""

import asyncio

from redrive.core import Answered, Outcome, Raised, TimedOut, outcome_of
from redrive.runtime.handler_call import HandlerTimedOut

_HAVE_ERRORS = (Raised, Answered)


class CancelledByRuntime(asyncio.CancelledError):
    """The runtime was cancelled before the handler had ended: nothing is known about the delivery."""


def read_error(error: BaseException, *, now_ms: int, timeout_ms: int | None) -> Outcome:
    """The outcome of a handler that raised. Raises `CancelledByRuntime`, or the error again, if it is not the
    handler's."""
    if isinstance(error, Exception):
        return outcome_of(error, now_ms=now_ms)
    match error:
        case HandlerTimedOut():
            return TimedOut(after_ms=timeout_ms or 0)
        case asyncio.CancelledError():
            task = asyncio.current_task()
            if task is None or not task.cancelling():  # else the runtime was cancelled, and the delivery is requeued
                return Raised(error)
            raise CancelledByRuntime from error
        case GeneratorExit() if _came_through_a_call(error):
            return Raised(error)
        case KeyboardInterrupt() | GeneratorExit():
            raise error
        case _:  # SystemExit, a panic of a Rust library: one message must not take the others with it
            return Raised(error)


def _came_through_a_call(error: BaseException) -> bool:
    """Whether it was raised below the frame that caught it. When a coroutine is closed Python first closes what it
    awaits and then raises a new GeneratorExit in it: one that came from below is the handler's own."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is not None


async def raise_later(error: BaseException) -> None:
    """Raises it where it is awaited."""
    raise error


def begin_stack_at_handler(outcome: Outcome) -> None:
    """Removes our own frames from the top of an error's stack, so that it begins in the handler."""
    error = outcome.error if isinstance(outcome, _HAVE_ERRORS) else None
    if error is None:
        return
    top = frame = error.__traceback__
    while frame is not None and str(frame.tb_frame.f_globals.get("__name__")).startswith("redrive.runtime."):
        frame = frame.tb_next
    if frame is not None and frame is not top:
        BaseException.with_traceback(error, frame)  # an error may be frozen, and allow nobody to set anything
