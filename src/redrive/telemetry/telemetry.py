"""Telemetry as an `Observer`: every event to the log, what can be counted to the accounts; and whether we are ready.

What runs consumers uses, besides `note`:

    telemetry.acked(queue, handler_s, attempt)   for a plain ack instead of `runtime.decided`: a third of a µs
    telemetry.logs_acks                          True: someone wants acks as lines too, so `note` them in full
    telemetry.confirmed(queue)                   a copy for a retry or for parking was confirmed
    telemetry.watch(queue, in_hand=…, unready=…) what is asked when somebody looks, at a scrape or a probe

All of it belongs to the event loop's thread.
"""

import time
from collections.abc import Callable

from redrive.telemetry.accounts import Accounts
from redrive.telemetry.catalogue import DECIDED, Level
from redrive.telemetry.log import Log
from redrive.telemetry.records import level_of

NOT_STARTED = "no consumer has started"


class Telemetry:
    """An observer that logs and counts. Without a log it only counts."""

    def __init__(self, log: Log | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self.log = log
        self.accounts = Accounts()
        self.accounts.is_ready = lambda: not self.unready()
        if log is not None:
            self.accounts.lines_dropped = lambda: log.dropped
        self.logs_acks = log is not None and log.level <= Level.DEBUG
        self._clock = clock
        self._connections_missing = 0
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
        """A handler returned and its delivery was acked: counted, not logged."""
        account = self.accounts.of(queue)
        account.handler_s.observe(handler_s)
        if attempt == 1:
            account.first_acks += 1
        else:
            account.decisions["ack"] = account.decisions.get("ack", 0) + 1
            account.attempts.observe(attempt)

    def confirmed(self, queue: str) -> None:
        """A copy of a delivery of this queue was confirmed. Those that were not are noted: `runtime.publish_failed`."""
        publishes = self.accounts.of(queue).publishes
        publishes["confirmed"] = publishes.get("confirmed", 0) + 1

    def watch(
        self,
        queue: str,
        *,
        in_hand: Callable[[], int] | None = None,
        unready: Callable[[], str | None] = lambda: None,
    ) -> None:
        """A queue is consumed from now on. `unready` says why it takes no messages at the moment, None if it does.
        Without `in_hand` no handler has it, and nothing of one is counted."""
        if in_hand is not None:
            self.accounts.of(queue)
            self.accounts.in_hand[queue] = in_hand
        self._unready[queue] = unready

    def forget(self, queue: str) -> None:
        """A queue is not consumed any more; its counts stay."""
        self.accounts.in_hand.pop(queue, None)
        self._unready.pop(queue, None)

    def unready(self) -> list[str]:
        """Why this process is not ready, nothing if it is: every queue must be consumed, and none paused."""
        if not self._unready:
            return [NOT_STARTED]
        reasons = []
        for queue, unready in sorted(self._unready.items()):
            reason = unready()
            account = self.accounts.queues.get(queue)
            if reason is None and account is not None and account.is_paused:
                reason = "paused"
            if reason is not None:
                reasons.append(f"{queue}: {reason}")
        return reasons

    def close(self) -> None:
        """Writes what is left of the log."""
        if self.log is not None:
            self.log.close()

    def _count_decision(self, fields: dict[str, object]) -> None:
        account = self.accounts.of(str(fields.get("queue", "")))
        decision = str(fields.get("decision"))
        account.decisions[decision] = account.decisions.get(decision, 0) + 1
        handler_s, attempt = fields.get("handler_s"), fields.get("attempt")
        if isinstance(handler_s, int | float) and handler_s >= 0:
            account.handler_s.observe(handler_s)
        if decision in ("ack", "park") and isinstance(attempt, int) and attempt > 0:
            account.attempts.observe(attempt)
        if decision == "park":
            reason = str(fields.get("reason"))
            account.parked[reason] = account.parked.get(reason, 0) + 1

    def _count(self, event: str, fields: dict[str, object]) -> None:
        match event:
            case "client.connected":
                # There may be several connections; one that is made while none is missing is a new one.
                if self._connections_missing:
                    self._connections_missing -= 1
                    self.accounts.reconnects += 1
            case "client.connection_lost":
                self._connections_missing += 1
            case "client.connect_failed":
                self.accounts.connect_failures += 1
            case "runtime.paused" | "runtime.resumed":
                self.accounts.of(str(fields.get("queue", ""))).is_paused = event == "runtime.paused"
            case "runtime.publish_failed":
                publishes = self.accounts.of(str(fields.get("queue", ""))).publishes
                outcome = _outcome_word(fields.get("outcome"))
                publishes[outcome] = publishes.get(outcome, 0) + 1
            case "consumer.resumed":
                self.accounts.of(str(fields.get("queue", ""))).restarts += 1
            case _:
                pass


_OUTCOMES = {"returned": "returned", "nacked": "nacked"}


def _outcome_word(outcome: object) -> str:
    """An outcome as a label, whether it is told as a word or as the value itself; what is unclear is in doubt."""
    word = outcome if isinstance(outcome, str) else type(outcome).__name__
    return _OUTCOMES.get(word.lower(), "in_doubt")
