"""SIGTERM and SIGINT, by which people and supervisors end a program."""

import asyncio
import signal
from collections.abc import Callable


def on_end_signals(callback: Callable[[], None]) -> None:
    """Calls `callback` in the running event loop at each SIGTERM and SIGINT.

    Also where SIGINT is ignored, as in what a script starts in the background.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, callback)
