"""Python's garbage collector in a process that does nothing but handle messages, or collect and redrive them.

A message is freed by counting references, and makes no cycles. The collector looks all the same: at the youngest
objects after every 700, and now and then at all there are, among them everything that was imported, which is there for
good. With hundreds of messages in hand that was a twentieth of the CPU and more. So what is there at the start
is left alone, and the youngest are looked at less often. Cycles are still found, some thousands of objects later.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_MAX = 10_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within it the collector leaves alone what is there now, and looks at the rest less often; then all is as before.

    For a process that is ours, entered when all is imported and before the first message: the last look at everything
    takes some hundredths of a second.
    """
    thresholds = gc.get_threshold()
    gc.collect()  # else what is garbage now would stay
    gc.freeze()
    if 0 < thresholds[0] < YOUNG_MAX:  # 0: somebody has turned it off, or chosen a rarer look
        gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
