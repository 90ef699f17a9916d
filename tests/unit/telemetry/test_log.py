"""The log never blocks, never raises, and says what it left out."""

import io
import json
import threading
from typing import Any

from redrive.telemetry import Level, Log, Telemetry


def lines_in(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class StuckStream(io.StringIO):
    """A terminal somebody stopped with Ctrl-S: writing waits until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.writing = threading.Event()

    def write(self, text: str) -> int:
        self.writing.set()
        assert self.go.wait(10)
        return super().write(text)


class BrokenStream(io.StringIO):
    """A full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_every_line_is_written_in_order_before_close_returns() -> None:
    stream = io.StringIO()
    log = Log(stream)
    for number in range(2000):
        log.put(0.0, "runtime.decided", {"decision": "retry", "attempt": number})
    log.close()
    assert [line["attempt"] for line in lines_in(stream)] == list(range(2000))


def test_a_stuck_stream_blocks_nobody_and_dropped_lines_are_reported() -> None:
    stream = StuckStream()
    log = Log(stream, lines_max=10)
    log.put(0.0, "client.connected", {})
    assert stream.writing.wait(10)
    for _ in range(25):
        log.put(0.0, "client.connected", {})
    assert log.dropped == 15
    stream.go.set()
    log.close()
    lines = lines_in(stream)
    assert [line["event"] for line in lines].count("client.connected") == 11
    assert [line["lines"] for line in lines if line["event"] == "telemetry.lines_dropped"] == [15]


def test_a_broken_stream_is_counted_and_raises_nowhere() -> None:
    log = Log(BrokenStream())
    log.put(0.0, "client.connected", {})
    log.close()
    assert log.dropped == 1


def test_a_value_that_can_not_be_written_costs_its_line_not_the_log() -> None:
    class Sly(str):
        def encode(self, *_: object) -> bytes:
            raise RuntimeError("no")

        def __getitem__(self, _: object) -> "Sly":
            raise RuntimeError("no")

    stream = io.StringIO()
    log = Log(stream)
    log.put(0.0, "client.connected", {"address": Sly("x")})
    log.put(0.0, "client.unblocked", {})
    log.close()
    assert [line["event"] for line in lines_in(stream)] == ["client.connected", "client.unblocked"]


def test_plain_acks_are_lines_at_debug_only() -> None:
    for level, expected in ((Level.INFO, ["retry"]), (Level.DEBUG, ["ack", "retry"])):
        stream = io.StringIO()
        telemetry = Telemetry(Log(stream, level=level), clock=lambda: 0.0)
        telemetry.note("runtime.decided", queue="q", decision="ack", attempt=1)
        telemetry.note("runtime.decided", queue="q", decision="retry", attempt=1)
        telemetry.close()
        assert [line["decision"] for line in lines_in(stream)] == expected
        assert telemetry.logs_acks is (level is Level.DEBUG)


def test_json_goes_to_a_file_and_words_to_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        log = Log(stream, colour=False)
        log.put(0.0, "client.unblocked", {})
        log.close()
    assert terminal.getvalue() == "00:00:00.000 client.unblocked the broker takes publishes again\n"
    assert lines_in(file)[0]["event"] == "client.unblocked"
