"""Masks values in bodies for callers who may not see all of them; off the event loop where a body is long or costly.

A short body is masked at once, as long as that is little work. Another process masks the rest, for the reasons that
`search.offload` gives, and a body that can't be looked through in about a second is hidden whole (`records.masking`).
"""

import asyncio
import atexit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from redrive.records import TOO_COSTLY, MaskingTooExpensive, ShownBody, View
from redrive.stores.search.filter_process import FilterProcess, ProcessDied

HERE_BYTES_MAX = 16_000
HERE_WORK_MAX = 5_000
"""Some milliseconds."""

_THREAD = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redrive-masking")
_PROCESS = FilterProcess()
atexit.register(_PROCESS.close)


async def redact_body(view: View, body: bytes) -> ShownBody:
    """What a view shows of a body."""
    if not view.must_read(body):
        return view.show_body(body)
    if len(body) <= HERE_BYTES_MAX:
        try:
            return view.show_body(body, work_max=HERE_WORK_MAX)
        except MaskingTooExpensive:
            pass
    is_over = False
    try:
        return await asyncio.get_running_loop().run_in_executor(_THREAD, _show, view, body, lambda: is_over)
    except BaseException:
        is_over = True
        raise


def _show(view: View, body: bytes, is_over: Callable[[], bool]) -> ShownBody:
    """Runs in the thread."""
    try:
        return _PROCESS.show_body(view, body, is_over)
    except (MaskingTooExpensive, MemoryError, ProcessDied):
        return TOO_COSTLY
    except OSError:
        # No process can be started. The bounds of the work hold here too.
        return view.shown_body(body)
