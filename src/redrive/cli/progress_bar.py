"""Progress of a long operation: a bar with rate and eta on a terminal, elsewhere a plain line every 5 s."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from redrive.cli.text_tables import cut, duration_text

_BAR_WIDTH = 24
_REDRAW_INTERVAL_S = 0.1
_LINE_INTERVAL_S = 5.0
_RATE_OVER_S = 10.0


@dataclass(slots=True, kw_only=True)
class ProgressBar:
    """Writes to `stream` how many of `total` are done. `now_s` is a monotonic clock.

    `update` may be called at any rate. A total of 0 means that the total is not known. Call `end` before
    anything else is printed.
    """

    stream: TextIO
    total: int
    now_s: Callable[[], float]
    is_terminal: bool
    width: int = 80
    noun: str = "sent"
    _seen: deque[tuple[float, int]] = field(default_factory=deque)
    _drawn_at_s: float | None = None
    _is_drawn: bool = False
    _last_line: str = ""

    def update(self, done: int, note: str = "") -> None:
        """So many are done by now; `note` is what else matters (`3 refused`)."""
        now_s = self.now_s()
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _RATE_OVER_S:
            self._seen.popleft()
        pause_s = _REDRAW_INTERVAL_S if self.is_terminal else _LINE_INTERVAL_S
        if self._drawn_at_s is not None and now_s - self._drawn_at_s < pause_s:
            return
        if self._drawn_at_s is None and not self.is_terminal:
            self._drawn_at_s = now_s  # the first plain line comes after a while: a short operation needs none
            return
        self._drawn_at_s = now_s
        self._draw(done, note)

    def end(self, done: int | None = None, note: str = "") -> None:
        """Draws the last state, where a bar was drawn, and leaves the line."""
        if not self.is_terminal or not self._is_drawn:
            return
        if done is not None:
            self._seen.append((self.now_s(), done))
            self._draw(done, note)
        self.stream.write("\n")
        self.stream.flush()
        self._is_drawn = False

    @property
    def rate_per_s(self) -> float | None:
        """Over the last 10 seconds; None until two values are known."""
        if len(self._seen) < 2:
            return None
        (from_s, before), (until_s, after) = self._seen[0], self._seen[-1]
        return (after - before) / (until_s - from_s) if until_s > from_s else None

    def _draw(self, done: int, note: str) -> None:
        line = self._text(done, note)
        if not self.is_terminal:
            if line != self._last_line:
                self.stream.write(line + "\n")
        else:
            self.stream.write(f"\r\x1b[2K{cut(line, self.width - 1)}")
            self._is_drawn = True
        self._last_line = line
        self.stream.flush()

    def _text(self, done: int, note: str) -> str:
        parts = [f"{done:,} {self.noun}"]
        if self.total:
            share = min(done / self.total, 1.0)
            parts = [f"{done:,} of {self.total:,} {self.noun}", f"{share:.0%}"]
            if self.is_terminal:
                full = round(share * _BAR_WIDTH)
                parts.insert(0, "█" * full + "░" * (_BAR_WIDTH - full))
        rate = self.rate_per_s
        if rate:
            parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            if self.total and done < self.total:
                parts.append(f"eta {duration_text(int((self.total - done) / rate * 1000))}")
        if note:
            parts.append(note)
        return "  ".join(parts)
