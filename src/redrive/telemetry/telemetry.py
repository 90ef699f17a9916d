"""Telemetry as an `Observer`: it logs events, counts for the metrics, and knows whether the process is ready.

Rooms that run consumers call, besides `note`:

    telemetry.acked(queue, handler_s, attempt)   for a plain ack instead of `runtime.decided`: a third of a µs
    telemetry.logs_acks                          True: acks are logged too, so `note` them in full
    telemetry.confirmed(queue)                   the broker confirmed a copy for a retry or for parking
    telemetry.watch(queue, in_hand=…, unready=…) functions that are called at a scrape or a probe

All of it belongs to the event loop's thread.
"""

import time
from collections.abc import Callable

from redrive.telemetry.catalogue import DECIDED, Level
from redrive.telemetry.log import Log
from redrive.telemetry.log_records import level_of
from redrive.telemetry.registry import MetricsRegistry

NOT_STARTED = "no consumer has started"


class Telemetry:
    """An observer that logs and counts. Without a log it only counts."""

    def __init__(self, log: Log | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.log = log
        self.metrics = MetricsRegistry(
            is_ready=lambda: not self.unready(), lines_dropped=lambda: 0 if log is None else log.dropped
        )
        self.logs_acks = log is not None and log.level <= Level.DEBUG
        self._clock = clock
        self._connections_lost = 0
        self._unready: dict[str, Callable[[], str | None]] = {}

    def note(self, event: str, /, **fields: object) -> None:
        """One event. Never blocks, never raises."""
        if event == DECIDED:
            self._count_decision(fields)
        else:
            self._count(event, fields)
        log = self.log
        if log is not None and level_of(event, fields) >= log.level:
            log.put(self._clock(), event, fields)

    def acked(self, queue: str, handler_s: float, attempt: int = 1) -> None:
        """Counts a delivery whose handler returned and that was acked. It is not logged."""
        queue_metrics = self.metrics.of(queue)
        queue_metrics.handler_s.observe(handler_s)
        if attempt == 1:
            queue_metrics.first_acks += 1
        else:
            queue_metrics.decisions["ack"] = queue_metrics.decisions.get("ack", 0) + 1
            queue_metrics.attempts.observe(attempt)

    def confirmed(self, queue: str) -> None:
        """Counts a confirmed copy of a delivery. An unconfirmed one is noted as `runtime.publish_failed`."""
        publishes = self.metrics.of(queue).publishes
        publishes["confirmed"] = publishes.get("confirmed", 0) + 1

    def watch(
        self,
        queue: str,
        *,
        in_hand: Callable[[], int] | None = None,
        unready: Callable[[], str | None] = lambda: None,
    ) -> None:
        """A queue is consumed from now on. `unready` returns why it takes no messages at the moment, None if it does.
        Without `in_hand` no handler runs for it, and no deliveries of it are counted."""
        if in_hand is not None:
            self.metrics.of(queue)
            self.metrics.in_hand[queue] = in_hand
        self._unready[queue] = unready

    def forget(self, queue: str) -> None:
        """A queue is not consumed any more; its counts stay."""
        self.metrics.in_hand.pop(queue, None)
        self._unready.pop(queue, None)

    def unready(self) -> list[str]:
        """Why this process is not ready; empty if it is. Every queue must be consumed, and none paused."""
        if not self._unready:
            return [NOT_STARTED]
        reasons = []
        for queue, unready in sorted(self._unready.items()):
            reason = unready()
            queue_metrics = self.metrics.queues.get(queue)
            if reason is None and queue_metrics is not None and queue_metrics.is_paused:
                reason = "paused"
            if reason is not None:
                reasons.append(f"{queue}: {reason}")
        return reasons

    def close(self) -> None:
        """Writes the lines that still wait, and closes the log."""
        if self.log is not None:
            self.log.close()

    def _count_decision(self, fields: dict[str, object]) -> None:
        queue_metrics = self.metrics.of(str(fields.get("queue", "")))
        decision = str(fields.get("decision"))
        queue_metrics.decisions[decision] = queue_metrics.decisions.get(decision, 0) + 1
        handler_s, attempt = fields.get("handler_s"), fields.get("attempt")
        if isinstance(handler_s, int | float) and handler_s >= 0:
            queue_metrics.handler_s.observe(handler_s)
        if decision in ("ack", "park") and isinstance(attempt, int) and attempt > 0:
            queue_metrics.attempts.observe(attempt)
        if decision == "park":
            reason = str(fields.get("reason"))
            queue_metrics.parked[reason] = queue_metrics.parked.get(reason, 0) + 1

    def _count(self, event: str, fields: dict[str, object]) -> None:
        match event:
            case "client.connected":
                # There may be several connections: one that opens while none is lost is no reconnect.
                if self._connections_lost:
                    self._connections_lost -= 1
                    self.metrics.reconnects += 1
            case "client.connection_lost":
                self._connections_lost += 1
            case "client.connect_failed":
                self.metrics.connect_failures += 1
            case "runtime.paused" | "runtime.resumed":
                self.metrics.of(str(fields.get("queue", ""))).is_paused = event == "runtime.paused"
            case "runtime.publish_failed":
                publishes = self.metrics.of(str(fields.get("queue", ""))).publishes
                outcome = _outcome_word(fields.get("outcome"))
                publishes[outcome] = publishes.get(outcome, 0) + 1
            case "consumer.resumed":
                self.metrics.of(str(fields.get("queue", ""))).restarts += 1
            case _:
                pass


_OUTCOMES = {"returned": "returned", "nacked": "nacked"}


def _outcome_word(outcome: object) -> str:
    """An outcome as a label. An event has it as a word or as the value itself; anything unclear is in doubt."""
    word = outcome if isinstance(outcome, str) else type(outcome).__name__
    return _OUTCOMES.get(word.lower(), "in_doubt")
