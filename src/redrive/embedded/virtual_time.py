"""The broker's time: real by default, moved on by `advance`, or standing still until a test moves it.

The engine is passed the time and never asks for it. `VirtualClock` knows the time, `Timekeeper` passes it to the engine
and decides when the next deadline comes: by the wall clock, by a jump, or by `advance`. Only TTLs, expiry, delayed
retries, dead-letter retries, consumer timeouts and x-death's times follow it: heartbeats and clients' own timeouts are
in real time.

Automatic time jumps when nothing has happened for a moment of real time, no client holds a message, and none is in its
handshake. Ready messages without a consumer don't hold it up: a wait queue is full of them by design.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.embedded.server import Server

_UNACKED_QUIET_FACTOR = 12
"""How many times longer `advance` waits for silence while a client holds messages."""
_IDLE_JUMPS_MAX = 1_000
"""Automatic jumps in a row that send nothing to any client, before time stands still until a client sends something."""
_WAIT_S_MAX = 3_600.0


class TimeMode(StrEnum):
    """How time passes.

    REAL: with the wall clock, plus what was advanced. MANUAL: only by `advance`. AUTOMATIC: stands still while anything
    happens, and jumps to the next deadline when nothing does.
    """

    REAL = "real"
    MANUAL = "manual"
    AUTOMATIC = "automatic"


class VirtualClock:
    """Milliseconds since 1970, as the broker's messages see them."""

    def __init__(self, mode: TimeMode, *, start_ms: int, monotonic_s: Callable[[], float]) -> None:
        self.mode = mode
        self._monotonic_s = monotonic_s
        self._base_ms = start_ms
        self._base_s = monotonic_s()

    def now_ms(self) -> int:
        """The present moment."""
        if self.mode is not TimeMode.REAL:
            return self._base_ms
        # A tiny bit more than passed: a timer that fires exactly at its moment must not be a millisecond early.
        return self._base_ms + int((self._monotonic_s() - self._base_s) * 1000 + 1e-6)

    def follow(self, monotonic_s: Callable[[], float]) -> None:
        """Take real time from that function from now on; the present moment does not change."""
        self._base_ms = self.now_ms()
        self._monotonic_s = monotonic_s
        self._base_s = monotonic_s()

    def jump_to(self, at_ms: int) -> None:
        """Move to a moment; one in the past does nothing."""
        now_ms = self.now_ms()
        if at_ms > now_ms:
            self._base_ms += at_ms - now_ms

    def wait_s(self, until_ms: int) -> float | None:
        """Real seconds until a moment comes by itself; None if it never does."""
        if self.mode is not TimeMode.REAL:
            return None
        return max(0.0, (until_ms - self.now_ms()) / 1000)


class Timekeeper:
    """Moves a server's time."""

    def __init__(self, server: "Server", *, idle_s: float) -> None:
        self._server = server
        self._idle_s = idle_s
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._activity = 0
        self._idle_jumps = 0
        self._is_advancing = False
        self._is_closed = False

    def sync_engine(self) -> None:
        """Pass the present time to the engine, and note that a client is active."""
        self._activity += 1
        self._idle_jumps = 0
        self._server.engine.advance_to(self._server.clock.now_ms())

    def rearm(self) -> None:
        """Set the timer for the engine's next deadline, which may have changed."""
        next_ms = self._server.engine.next_deadline_ms
        if next_ms is None or self._is_closed:
            self.stop()
        elif self._server.clock.mode is TimeMode.REAL:
            if self._timer is None or next_ms != self._timer_ms:
                self.stop()
                self._timer_ms = next_ms
                wait_s = self._server.clock.wait_s(next_ms) or 0.0
                self._timer = self._server.loop.call_later(min(wait_s, _WAIT_S_MAX), self._ring)
        elif self._server.clock.mode is TimeMode.AUTOMATIC and not self._is_advancing:
            self.stop()
            self._timer = self._server.loop.call_later(self._idle_s, self._jump)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Cancel the timer for good."""
        self._is_closed = True
        self.stop()

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, deadline by deadline, with real time for clients to react to each before the next."""
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
        """Real time: the deadline is due."""
        self._timer = None
        self._server.engine.advance_to(self._server.clock.now_ms())
        self._server.finish_turn()

    def _jump(self) -> None:
        """Automatic time: nothing happened for a moment."""
        self._timer = None
        next_ms = self._server.engine.next_deadline_ms
        if next_ms is None or self._server.is_busy or not self._server.has_clients:
            return
        if self._idle_jumps >= _IDLE_JUMPS_MAX:
            return
        heard = self._go_to(next_ms)
        self._idle_jumps = 0 if heard else self._idle_jumps + 1

    def _go_to(self, at_ms: int) -> bool:
        """Move to a moment; whether anything is sent to a client because of it."""
        server = self._server
        server.clock.jump_to(at_ms)
        server.engine.advance_to(at_ms)
        heard = bool(server.engine.effects)
        server.finish_turn()
        return heard

    async def _wait_quiet(self) -> None:
        """Wait until no client has sent anything for a moment; longer while one holds messages."""
        while True:
            before = self._activity
            await asyncio.sleep(self._idle_s * (_UNACKED_QUIET_FACTOR if self._server.is_busy else 1))
            if self._activity == before:
                return
