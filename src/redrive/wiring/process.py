"""A Redrive program as a process: its log and metrics, and an exit that waits for no handler that hangs."""

import asyncio
import os
import sys
import threading
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from redrive.core import Observer
from redrive.telemetry import Level, Log, LogFormat, MetricsEndpoint, Telemetry

_STUCK_S_MAX = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryOptions:
    """What an operator sees of a program: the log on stderr, and metrics if a port is given."""

    log_level: str = "info"
    log_format: LogFormat | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None

    def telemetry(self) -> Telemetry:
        """The observer that writes the log and counts. Close it at the end."""
        return Telemetry(Log(sys.stderr, level=Level[self.log_level.upper()], form=self.log_format))

    def endpoint(self, telemetry: Telemetry) -> AbstractAsyncContextManager[object]:
        """Serves metrics and health while the block runs, if a port is given. Entering it raises `EndpointFailed`."""
        if self.metrics_port is None:
            return nullcontext()
        return MetricsEndpoint(telemetry, host=self.metrics_host, port=self.metrics_port)


async def cancel_other_tasks() -> bool:
    """Cancels every other task of the running loop; whether all of them ended."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    return not tasks or not (await asyncio.wait(tasks, timeout=_STUCK_S_MAX))[1]


def is_thread_alive(name_prefix: str) -> bool:
    """Whether a thread whose name begins like this still runs: Python would wait for it at the end."""
    return any(one.name.startswith(name_prefix) for one in threading.enumerate())


def exit_now(observer: Observer) -> None:
    """Ends the process with code 0 without waiting for handlers that can't be ended; everything else is closed."""
    close = getattr(observer, "close", None)
    if close is not None:
        close()  # a thread writes the log, and would not get to its last lines
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
