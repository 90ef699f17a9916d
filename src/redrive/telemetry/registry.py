"""The metrics registry: counters and histograms of each queue and of the process, as Prometheus text.

A plain ack is the hot path and costs a fifth of a microsecond here: integers and one bisect, no locks. So everything is
counted in the event loop's thread, and scraped there too.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable

from redrive.telemetry.catalogue import ATTEMPT_BOUNDS, HANDLER_S_BOUNDS, METRICS, Metric, MetricType

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, in the metric's order, and the number."""


class Histogram:
    """Counts values by bucket, and sums them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class QueueMetrics:
    """The counters and histograms of one queue."""

    __slots__ = ("attempts", "decisions", "first_acks", "handler_s", "is_paused", "parked", "publishes", "restarts")

    def __init__(self) -> None:
        self.first_acks = 0
        """Plain acks of the first attempt, the common case: neither in `decisions` nor in `attempts`."""
        self.decisions: dict[str, int] = {}
        self.parked: dict[str, int] = {}
        self.publishes: dict[str, int] = {}
        self.attempts = Histogram(ATTEMPT_BOUNDS)
        self.handler_s = Histogram(HANDLER_S_BOUNDS)
        self.restarts = 0
        self.is_paused = False

    def all_decisions(self) -> dict[str, int]:
        """Decisions, the plain acks among them."""
        acks = self.first_acks + self.decisions.get("ack", 0)
        return {**self.decisions, "ack": acks} if acks else dict(self.decisions)

    def all_attempts(self) -> Histogram:
        """The attempts messages ended with, the plain acks among them."""
        merged = Histogram(ATTEMPT_BOUNDS)
        merged.counts = list(self.attempts.counts)
        merged.counts[0] += self.first_acks
        merged.total = self.attempts.total + self.first_acks
        return merged


class MetricsRegistry:
    """All metrics of a process. A queue is added with its first event.

    `is_ready` and `lines_dropped` are called at every scrape, as are the functions in `in_hand`.
    """

    def __init__(self, *, is_ready: Callable[[], bool], lines_dropped: Callable[[], int]) -> None:
        self.queues: dict[str, QueueMetrics] = {}
        self.in_hand: dict[str, Callable[[], int]] = {}
        """By queue: how many deliveries are taken and not settled."""
        self._is_ready = is_ready
        self._lines_dropped = lines_dropped
        self.reconnects = 0
        self.connect_failures = 0

    def of(self, queue: str) -> QueueMetrics:
        """The metrics of one queue."""
        try:
            return self.queues[queue]
        except KeyError:
            made = self.queues[queue] = QueueMetrics()
            return made

    def exposition(self) -> str:
        """All metrics in Prometheus' text format, families in the catalogue's order, queues by name."""
        queues = sorted(self.queues.items())
        lines: list[str] = []
        for metric in METRICS:
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {metric.type}")
            if metric.type is MetricType.HISTOGRAM:
                for queue, counted in queues:
                    is_attempts = metric.name == "redrive_attempts"
                    lines += _histogram(metric, queue, counted.all_attempts() if is_attempts else counted.handler_s)
            else:
                lines += [_line(metric.name, metric.labels, *sample) for sample in self._samples(metric.name, queues)]
        return "\n".join(lines) + "\n"

    def _samples(self, name: str, queues: list[tuple[str, QueueMetrics]]) -> Iterable[Sample]:
        match name:
            case "redrive_deliveries_total":
                return [((queue,), sum(one.all_decisions().values())) for queue, one in queues]
            case "redrive_decisions_total":
                return [((q, word), n) for q, one in queues for word, n in sorted(one.all_decisions().items())]
            case "redrive_parked_total":
                return [((q, reason), n) for q, one in queues for reason, n in sorted(one.parked.items())]
            case "redrive_publishes_total":
                return [((q, outcome), n) for q, one in queues for outcome, n in sorted(one.publishes.items())]
            case "redrive_consumer_restarts_total":
                return [((queue,), one.restarts) for queue, one in queues]
            case "redrive_paused":
                return [((queue,), int(one.is_paused)) for queue, one in queues]
            case "redrive_in_hand":
                return [((queue,), count()) for queue, count in sorted(self.in_hand.items())]
            case "redrive_reconnects_total":
                return [((), self.reconnects)]
            case "redrive_connect_failures_total":
                return [((), self.connect_failures)]
            case "redrive_ready":
                return [((), int(self._is_ready()))]
            case "redrive_log_lines_dropped_total":
                return [((), self._lines_dropped())]
            case _:
                raise AssertionError(f"{name} is in the catalogue, but the registry does not count it")


def _histogram(metric: Metric, queue: str, histogram: Histogram) -> Iterable[str]:
    count = 0
    for bound, inside in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        count += inside
        limit = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield _line(f"{metric.name}_bucket", (*metric.labels, "le"), (queue, limit), count)
    yield _line(f"{metric.name}_sum", metric.labels, (queue,), histogram.total)
    yield _line(f"{metric.name}_count", metric.labels, (queue,), count)


def _line(name: str, labels: tuple[str, ...], values: tuple[str, ...], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
    return f"{name}{{{pairs}}} {number!r}" if pairs else f"{name} {number!r}"


def _escaped(value: str) -> str:
    """A label's value. Half a surrogate pair is replaced: it would make the whole page unreadable."""
    plain = value.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
