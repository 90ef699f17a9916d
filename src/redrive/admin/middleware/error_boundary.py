"""The error boundary: every request ends in time and with an answer.

An error that means something to a client becomes its problem response. Any other error is a 500, and only its type and
place are logged, because its text may be somebody's payload.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.admin.problems import HttpProblem, internal, problem_of, unavailable
from redrive.admin.services import Services
from redrive.admin.settings import ApiSettings


class ErrorBoundary:
    """Limits the time of every request, and answers every error."""

    def __init__(self, app: ASGIApp, *, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request; anything but HTTP is passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        settings = self._services.settings
        loop = asyncio.get_running_loop()
        is_begun = False
        problem: HttpProblem | None = None

        async def watched(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                limit.reschedule(None if _is_event_stream(message) else loop.time() + settings.sending_s_max)
            await send(message)

        try:
            async with asyncio.timeout(settings.request_s_max) as limit:
                await self._app(scope, receive, watched)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever went wrong, a client is answered
            problem = _timed_out(settings) if limit.expired() else self._problem(error, scope)
        if problem is not None and not is_begun:
            await problem.response(scope["path"])(scope, receive, send)

    def _problem(self, error: Exception, scope: Scope) -> HttpProblem:
        problem = problem_of(error)
        if problem is None:
            problem = internal()
            self._services.observer.note(
                "admin.failed", error=type(error).__name__, at=_place_of(error), method=scope["method"]
            )
        return problem


def _is_event_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


def _timed_out(settings: ApiSettings) -> HttpProblem:
    detail = f"the request took longer than {settings.request_s_max:g} s and was stopped; ask for less, or again later"
    return unavailable("timed-out", "It took too long", detail)


def _place_of(error: BaseException) -> str:
    """The module and line that raised it: enough to find the fault, without the values involved."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
