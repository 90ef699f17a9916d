"""SIGTERM and SIGINT, by which people and supervisors end a program."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signals(callback: Callable[[], None]) -> None:
    """Calls `callback` in the running event loop at each SIGTERM and SIGINT.

    Also where SIGINT is ignored, as in what a script starts in the background.
    """
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, callback)


@contextmanager
def stop_signals_handled(callback: Callable[[], None]) -> Iterator[None]:
    """`on_stop_signals` while the block runs; afterwards the signals do again what they did by default."""
    on_stop_signals(callback)
    try:
        yield
    finally:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
