"""Counts of dead letters in Prometheus' text format. A process's own metrics are telemetry's."""

from collections.abc import Iterator

from redrive.stores import LetterStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def dead_letter_metrics(stats: LetterStats) -> str:
    """Gauges by status, and by queue and status for the queues with the most dead letters."""
    return "\n".join(_lines(stats)) + "\n"


def _lines(stats: LetterStats) -> Iterator[str]:
    yield "# HELP redrive_dead_letters Dead letters in the database, by status."
    yield "# TYPE redrive_dead_letters gauge"
    for status, count in sorted(stats.by_status.items()):
        yield f'redrive_dead_letters{{status="{_escaped(status)}"}} {count}'
    yield "# HELP redrive_queue_dead_letters Dead letters by the queue they failed in, and by status."
    yield "# TYPE redrive_queue_dead_letters gauge"
    for queue, standing in sorted(stats.by_queue.items()):
        for status, count in sorted(standing.items()):
            yield f'redrive_queue_dead_letters{{queue="{_escaped(queue)}",status="{_escaped(status)}"}} {count}'


def _escaped(value: str) -> str:
    plain = value.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
