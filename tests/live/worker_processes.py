"""Processes that tests start and kill. They are forked from one that has imported everything, so that starting one
costs milliseconds, not seconds.
"""

import asyncio
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOADED = ("tests.live.runtime.kills.worker", "tests.live.deadletters.kills.worker")
"""All of them, whoever starts first: there is one such process, and it imports only when it starts."""

_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(list(PRELOADED))


def start_worker(target: Callable[..., None], *arguments: Any) -> Any:
    """A process of its own that runs `target`; it ends with this one."""
    process = _forking.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def make_pipe() -> tuple[Any, Any]:
    """Our end and the worker's end of a pipe that goes both ways."""
    ours, theirs = _forking.Pipe()
    return ours, theirs


async def wait_exit(process: Any, *, patience_s: float) -> int | None:
    """Its exit code, negative for the signal that killed it; None, and it is killed, if it does not end."""
    deadline_s = asyncio.get_running_loop().time() + patience_s
    while process.exitcode is None:
        if asyncio.get_running_loop().time() > deadline_s:
            process.kill()
            return None
        await asyncio.sleep(0.02)
    return int(process.exitcode)


def said(folder: Path) -> str:
    """What a worker had to say before it ended, in FOLDER/said."""
    path = folder / "said"
    return path.read_text()[-2000:] if path.exists() else ""
