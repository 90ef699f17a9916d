"""The log: a thread of its own writes events as lines, so that a slow disk or a stopped terminal stops no consumer.

`put` takes an event and returns; it costs some microseconds, never blocks and never raises. The number of waiting lines
is bounded: beyond it lines are dropped and counted, and a line reports how many when there is room again.
"""

import atexit
import functools
import os
import queue
import threading
from collections.abc import Mapping
from typing import TextIO

from redrive.telemetry.catalogue import Level
from redrive.telemetry.log_records import LogFormat, Render, make_record, render_json, render_text

LINES_MAX = 10_000
BATCH_MAX = 500
CLOSE_S_MAX = 2.0

_Item = tuple[float, str, Mapping[str, object]]


class Log:
    """Writes events to a stream, from a daemon thread that begins with the first one."""

    def __init__(
        self,
        stream: TextIO,
        *,
        level: Level = Level.INFO,
        form: LogFormat | None = None,
        colour: bool | None = None,
        lines_max: int = LINES_MAX,
    ) -> None:
        is_terminal = _is_terminal(stream)
        self.level = level
        self.dropped = 0
        self._stream = stream
        self._render: Render = render_json
        if form == "text" or (form is None and is_terminal):
            wanted = is_terminal and "NO_COLOR" not in os.environ if colour is None else colour
            self._render = functools.partial(render_text, colour=wanted)
        self._lines_max = lines_max
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reported_dropped = 0
        self._is_closed = False

    def put(self, time_s: float, event: str, fields: Mapping[str, object]) -> None:
        """Queues one event for writing. The caller must not change its fields afterwards."""
        if self._items.qsize() >= self._lines_max or self._is_closed:
            self.dropped += 1
            return
        self._items.put((time_s, event, fields))
        if self._thread is None:
            self._start()

    def close(self, timeout_s: float = CLOSE_S_MAX) -> None:
        """Writes the waiting lines, as far as the stream takes them in time. Later events are dropped."""
        self._is_closed = True
        atexit.unregister(self.close)
        if self._thread is not None:
            self._items.put(None)
            self._thread.join(timeout_s)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="redrive log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        is_open = True
        while is_open:
            batch = [self._items.get()]
            while len(batch) < BATCH_MAX and not self._items.empty():
                batch.append(self._items.get())
            is_open = None not in batch
            self._write([item for item in batch if item is not None])

    def _write(self, items: list[_Item]) -> None:
        if self.dropped > self._reported_dropped and items:
            lost, self._reported_dropped = self.dropped - self._reported_dropped, self.dropped
            items.append((items[-1][0], "telemetry.lines_dropped", {"lines": lost}))
        lines = [self._line(item) for item in items]
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except (OSError, ValueError, UnicodeError):
            # A full disk, a reader that went away, a closed stream: messages matter more than lines about them.
            self.dropped += len(lines)
            self._reported_dropped = self.dropped

    def _line(self, item: _Item) -> str:
        time_s, event, fields = item
        try:
            return self._render(make_record(time_s, event, fields)) + "\n"
        except Exception as error:  # noqa: BLE001 - whatever a value was, the log goes on
            return self._render(make_record(time_s, event, {"error": f"not writable: {type(error).__name__}"})) + "\n"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False
