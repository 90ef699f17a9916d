"""Python's garbage collector in a process that does nothing but handle messages, or collect and redrive them.

Messages are freed by reference counting and form no cycles. The collector runs all the same: over the youngest objects
after every 700, and now and then over all of them, including everything imported, which stays. With hundreds of
messages in flight that was a twentieth of the CPU and more. So objects that exist at the start are frozen, and the
youngest are scanned less often. Cycles are still found, some thousands of objects later.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_MAX = 10_000


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """While the block runs, the collector skips what exists now and scans the rest less often; then all is as before.

    For a process of our own; enter it when everything is imported and before the first message: the one full collection
    takes some hundredths of a second.
    """
    thresholds = gc.get_threshold()
    gc.collect()  # else today's garbage would be frozen and stay
    gc.freeze()
    if 0 < thresholds[0] < YOUNG_MAX:  # 0: it is turned off; a larger number: somebody has chosen rarer scans
        gc.set_threshold(YOUNG_MAX, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
