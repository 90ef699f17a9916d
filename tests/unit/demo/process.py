"""The demo as a process of its own, as people start it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ACCOUNT = re.compile(r"^(order-\d+) .*  (handled|parked) +(\d+)(?: +(\S+) \((\w+)\))?$", re.MULTILINE)
SUM = "8 sent = 5 handled + 3 parked. The broker agrees: every message is accounted for."

ENDS = [
    ("order-1", "handled", "1", "", ""),
    ("order-2", "handled", "2", "", ""),
    ("order-3", "parked", "3", "orders.parked", "attempts"),
    ("order-4", "parked", "0", "orders.parked", "undecodable"),
    ("order-5", "handled", "2", "", ""),
    ("order-6", "handled", "2", "", ""),
    ("order-7", "parked", "1", "orders.parked", "park"),
    ("order-8", "handled", "1", "", ""),
]
"""Order, end, attempts, where, why."""


def start_demo(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "redrive", "demo", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )


def run_demo(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a demo that ends by itself, within the half minute it may take."""
    process = start_demo(*arguments, **environment)
    try:
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return process.returncode, output, errors


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Ctrl-C, and what it says then."""
    process.send_signal(signal.SIGINT)
    try:
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return process.returncode, output, errors


def ends_told(output: str) -> list[tuple[str, ...]]:
    """The table at the end, the prefix of the queues' names taken off."""
    return [
        (order, end, attempts, re.sub(r"^redrive-demo-[0-9a-f]{6}\.", "", place), reason)
        for order, end, attempts, place, reason in ACCOUNT.findall(output)
    ]
