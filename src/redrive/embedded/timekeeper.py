"""When the next deadline is due, and who brings it about: the wall clock, a jump, or somebody's `advance`.

Automatic time jumps when nothing has happened for a moment of real time, no client holds a message, and none is in its
handshake. Ready messages that nobody consumes don't hold it up: a wait queue is full of them by design.
"""

import asyncio
from typing import TYPE_CHECKING

from redrive.embedded.clock import Flow

if TYPE_CHECKING:
    from redrive.embedded.server import Server

_HELD_QUIET = 12
"""How many times longer nothing must happen before `advance` goes on while a client holds messages."""
_JUMPS_FOR_NOTHING_MAX = 1_000
"""Automatic jumps in a row that nobody hears of, before time stands still until somebody speaks."""
_WAIT_S_MAX = 3_600.0


class Timekeeper:
    """Moves a server's time."""

    def __init__(self, server: "Server", *, idle_s: float) -> None:
        self._server = server
        self._idle_s = idle_s
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._activity = 0
        self._jumps_for_nothing = 0
        self._is_advancing = False
        self._is_closed = False

    def tell(self) -> None:
        """Tell the engine what time it is, and note that something happens."""
        self._activity += 1
        self._jumps_for_nothing = 0
        self._server.engine.advance_to(self._server.clock.now_ms())

    def rearm(self) -> None:
        """Something may be due at another moment than before."""
        next_ms = self._server.engine.next_deadline_ms
        if next_ms is None or self._is_closed:
            self.stop()
        elif self._server.clock.flow is Flow.REAL:
            if self._timer is None or next_ms != self._timer_ms:
                self.stop()
                self._timer_ms = next_ms
                wait_s = self._server.clock.wait_s(next_ms) or 0.0
                self._timer = self._server.loop.call_later(min(wait_s, _WAIT_S_MAX), self._ring)
        elif self._server.clock.flow is Flow.AUTOMATIC and not self._is_advancing:
            self.stop()
            self._timer = self._server.loop.call_later(self._idle_s, self._jump)

    def stop(self) -> None:
        """Wake nobody."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Wake nobody any more."""
        self._is_closed = True
        self.stop()

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, deadline by deadline, giving clients the time to react to each before the next."""
        server, engine = self._server, self._server.engine
        await self._wait_quiet()
        target_ms = server.clock.now_ms() + round(seconds * 1000)
        self._is_advancing = True
        try:
            while True:
                next_ms = engine.next_deadline_ms
                if next_ms is None or next_ms > target_ms:
                    break
                if self._go_to(next_ms):
                    await self._wait_quiet()
            self._go_to(target_ms)
            await self._wait_quiet()
        finally:
            self._is_advancing = False
            self.rearm()

    def _ring(self) -> None:
        """Real time: the deadline has come."""
        self._timer = None
        self._server.engine.advance_to(self._server.clock.now_ms())
        self._server.settle()

    def _jump(self) -> None:
        """Automatic time: nothing happened for a moment."""
        self._timer = None
        next_ms = self._server.engine.next_deadline_ms
        if next_ms is None or self._server.is_busy or not self._server.has_clients:
            return
        if self._jumps_for_nothing >= _JUMPS_FOR_NOTHING_MAX:
            return
        heard = self._go_to(next_ms)
        self._jumps_for_nothing = 0 if heard else self._jumps_for_nothing + 1

    def _go_to(self, at_ms: int) -> bool:
        """It is that moment; whether any client hears of what happens."""
        server = self._server
        server.clock.jump_to(at_ms)
        server.engine.advance_to(at_ms)
        heard = bool(server.engine.effects)
        server.settle()
        return heard

    async def _wait_quiet(self) -> None:
        """Until nobody has said anything for a moment; longer while somebody holds messages."""
        while True:
            before = self._activity
            await asyncio.sleep(self._idle_s * (_HELD_QUIET if self._server.is_busy else 1))
            if self._activity == before:
                return
