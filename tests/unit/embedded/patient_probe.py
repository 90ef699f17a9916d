"""Runs the probe with a patient pika: `python patient_probe.py PROBE.PY HOST PORT [CASE …]`.

pika's process_data_events returns with the first batch of events, so what some questions see depends on how the
broker's bytes fell into packets: real brokers answer `round_robin_priority` and `single_active_consumer` differently
from one run to the next. Listening for the whole time asked for makes every answer complete.
"""

import runpy
import sys
import time
from typing import Any

import pika

_once = pika.BlockingConnection.process_data_events


def _patiently(self: Any, time_limit: float = 0) -> None:
    until = time.monotonic() + time_limit
    while True:
        _once(self, time_limit=max(0.0, until - time.monotonic()))
        if time.monotonic() >= until:
            return


if __name__ == "__main__":
    pika.BlockingConnection.process_data_events = _patiently
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
