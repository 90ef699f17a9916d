"""SIGTERM and SIGINT, by which people and supervisors end a program."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_end_signals(callback: Callable[[], None]) -> None:
    """Calls `callback` in the running event loop at each SIGTERM and SIGINT.

    Also where SIGINT is ignored, as in what a script starts in the background.
    """
    loop = asyncio.get_running_loop()
    for number in _END_SIGNALS:
        loop.add_signal_handler(number, callback)


@contextmanager
def end_signals_handled(callback: Callable[[], None]) -> Iterator[None]:
    """`on_end_signals` while the block runs; afterwards the signals do again what they did by default."""
    on_end_signals(callback)
    try:
        yield
    finally:
        loop = asyncio.get_running_loop()
        for number in _END_SIGNALS:
            loop.remove_signal_handler(number)
