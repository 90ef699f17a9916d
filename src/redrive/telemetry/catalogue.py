"""The names of every event, log field and metric.

A test checks the reference (docs/reference/telemetry.md) against these tables. An event that is not in them is logged
too, at level info: a room may report a new event before it is added here.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Level(IntEnum):
    """How much a line matters; a log leaves out what is below its own level."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40

    @property
    def word(self) -> str:
        """As a log line has it: `warning`."""
        return self.name.lower()


DECIDED = "runtime.decided"
"""The event of every decision; its level is the decision's (`DECISIONS`)."""

DECISIONS = {
    "ack": Level.DEBUG,
    "retry": Level.WARNING,
    "requeue": Level.INFO,
    "park": Level.ERROR,
    "defer": Level.INFO,
    "skipped": Level.INFO,
}

EVENTS: dict[str, tuple[Level, str]] = {
    "runtime.started": (Level.INFO, "the consumers run"),
    "runtime.stopping": (Level.INFO, "no new messages are taken; running handlers may finish"),
    "runtime.stopped": (Level.INFO, "every delivery is settled or requeued"),
    "runtime.waiting_for_topology": (Level.WARNING, "a queue or exchange is missing; consuming waits for it"),
    "runtime.paused": (Level.WARNING, "a queue's consumer pauses itself: everything fails"),
    "runtime.probing": (Level.INFO, "one message is tried, to see whether the pause can end"),
    "runtime.resumed": (Level.INFO, "the pause is over"),
    "runtime.publish_failed": (
        Level.ERROR,
        "a copy was not confirmed; its message is kept unacked and the copy sent again for up to 600 s, then the"
        " message is requeued",
    ),
    "runtime.oversized": (
        Level.ERROR,
        "no copy of a message can ever be sent, because its headers fill a frame or its body is larger than the"
        " broker takes; says how it was kept instead",
    ),
    "runtime.stale": (
        Level.WARNING,
        "a handler ended after its channel was closed, so its outcome has no effect; comes_again says whether the"
        " message is delivered again (yes, no: its queue is gone, or unless its queue was deleted); logged once per"
        " channel",
    ),
    "runtime.lost": (
        Level.ERROR,
        "the queue of an unsettled message is gone (certain: true) or may be, and no copy of it could be parked:"
        " this line may be the last trace of it",
    ),
    "runtime.queue_differs": (
        Level.WARNING,
        "a queue exists without the dead-letter settings it is declared with; its messages are parked by"
        " publishing; names a command that sets them with a policy",
    ),
    "runtime.not_guaranteed": (
        Level.WARNING,
        "a quorum queue is declared, or exists, with settings that keep less than its shape promises; says what"
        " may be lost",
    ),
    "runtime.odd_deaths": (
        Level.WARNING,
        "a message that was to be rejected has an x-death that no broker wrote, on which RabbitMQ 3.10 crashes; a copy"
        " without it runs once more",
    ),
    "runtime.failed": (
        Level.ERROR,
        "Redrive itself failed while it handled a message; the message is requeued, and parked unread after three"
        " such failures",
    ),
    "runtime.loop_blocked": (
        Level.ERROR,
        "a handler blocks the event loop, so that no heartbeat can be sent: the broker is about to close the"
        " connection and deliver every unsettled message again; it counts as a crash of this message",
    ),
    "runtime.worker_started": (Level.INFO, "a worker process runs the app"),
    "runtime.worker_died": (
        Level.ERROR,
        "a worker process ended by itself, with these messages in its handlers, the latest first; another one is"
        " started after a pause",
    ),
    "deadletters.rules_left": (
        Level.WARNING,
        "a file declares another auto_retry than a person set for these queues; the person's rule holds until it"
        " is removed",
    ),
    "client.connected": (Level.INFO, "a connection to the broker is open"),
    "client.connect_failed": (Level.WARNING, "no host could be reached; the client tries again after a pause"),
    "client.connection_lost": (Level.WARNING, "the connection was lost; the client reconnects"),
    "client.blocked": (Level.WARNING, "the broker takes no publishes: memory or disk alarm"),
    "client.unblocked": (Level.INFO, "the broker takes publishes again"),
    "consumer.resumed": (Level.INFO, "a consumer that was lost consumes again"),
    "consumer.failed": (Level.WARNING, "a consumer can't start; it tries again"),
    "consumer.channel_lost": (Level.WARNING, "a consumer's channel was closed; the broker has its messages back"),
    "consumer.cancelled": (Level.WARNING, "the broker cancelled a consumer: its queue is deleted or moves"),
    "consumer.handler_failed": (Level.ERROR, "a callback raised, which must never happen; its message stays unsettled"),
    "publisher.failed": (Level.WARNING, "a publisher can't start; it tries again"),
    "publisher.channel_lost": (Level.WARNING, "a publisher's channel was closed; unconfirmed messages are in doubt"),
    "publisher.channel_replaced": (
        Level.WARNING,
        "the broker refused a publish; the publisher goes on with a new channel",
    ),
    "store.opened": (Level.INFO, "the database is open and its schema up to date"),
    "store.exposed": (
        Level.WARNING,
        "other users than its owner may read or write the database file (mode), which holds payloads; chmod 600 it",
    ),
    "store.clock_off": (
        Level.WARNING,
        "this machine's clock differs from the database's (off_ms: how far ahead); the database's clock decides",
    ),
    "store.clock_right": (Level.INFO, "this machine's clock agrees with the database's again"),
    "collector.started": (
        Level.INFO,
        "redrive collect begins: from which queues, and how many messages lie in each",
    ),
    "collector.stored": (Level.INFO, "a batch of dead letters is stored; known ones were stored before a crash"),
    "collector.came_back": (Level.WARNING, "dead letters that were redriven died again"),
    "collector.doubtful": (
        Level.WARNING,
        "after a crash: stored as copies, because it is unknown whether they were stored before",
    ),
    "collector.stopped": (Level.ERROR, "a queue is no longer collected: a message in it is near its delivery limit"),
    "collector.waiting": (Level.INFO, "a queue can't be collected now; the collector tries again"),
    "collector.failed": (Level.WARNING, "collecting a batch failed; its messages are requeued and collected again"),
    "deadletters.auto_retry_due": (Level.INFO, "dead letters are due and are sent again"),
    "deadletters.auto_retry_failed": (Level.WARNING, "one pass of auto-retry failed; the next one tries again"),
    "deadletters.settled": (Level.INFO, "redriven dead letters that did not come back are resolved"),
    "deadletters.refused": (Level.WARNING, "the broker refused copies; their dead letters are pending again"),
    "deadletters.in_doubt": (Level.WARNING, "it is unknown whether the broker has these copies"),
    "deadletters.waits_for_broker": (Level.WARNING, "an operation waits for a connection"),
    "deadletters.store_unavailable": (Level.WARNING, "the database does not answer; the operation tries again"),
    "deadletters.run_failed": (Level.ERROR, "an operation failed to run; it is tried again"),
    "deadletters.lease_lost": (Level.WARNING, "another instance has taken over the work"),
    "deadletters.lease_not_released": (Level.WARNING, "a lease could not be released; it expires by itself"),
    "deadletters.witness_heard": (Level.INFO, "the witness queue has settled doubtful copies"),
    "deadletters.witness_unheard": (Level.WARNING, "the witness queue could not be read; the copies stay in doubt"),
    "serve.started": (Level.INFO, "the admin API listens"),
    "serve.no_admin": (Level.WARNING, "there are tokens, but none of them is a valid admin token"),
    "serve.working": (Level.INFO, "the worker (collector, redriver, auto-retry) is connected and runs"),
    "serve.waiting": (Level.WARNING, "the worker waits for the broker or the database; it continues by itself"),
    "serve.collecting": (Level.INFO, "these queues are collected from now on"),
    "serve.queues_refused": (Level.ERROR, "queues that were named are not collected, with the reasons"),
    "serve.management_unavailable": (
        Level.WARNING,
        "the management API did not answer at the start: queues are neither found by name nor checked",
    ),
    "serve.stopping": (Level.INFO, "nothing new is accepted; running requests and batches may finish"),
    "serve.worker_stuck": (Level.WARNING, "the worker did not end in time; it is abandoned, as in a crash"),
    "serve.stopped": (Level.INFO, "every request and batch has ended"),
    "admin.answered": (
        Level.INFO,
        "a request was answered",
    ),
    "admin.probed": (Level.DEBUG, "the same for /healthz, /readyz and /metrics"),
    "admin.server": (Level.WARNING, "the web server logs something, such as a request that is not HTTP"),
    "admin.refused": (Level.WARNING, "a request without a valid token, or for more than its token allows"),
    "admin.failed": (Level.ERROR, "Redrive itself failed over a request; it was answered 500"),
    "admin.answer_not_kept": (
        Level.WARNING,
        "a request was done, but its response could not be kept for a repeated request",
    ),
    "admin.live_updates_failed": (Level.WARNING, "the database could not be read for the event streams"),
    "telemetry.serving": (Level.INFO, "metrics and health are served"),
    "telemetry.lines_dropped": (
        Level.WARNING,
        "the log was written more slowly than lines arrived; so many were dropped",
    ),
}

FIELDS: dict[str, tuple[str, str]] = {
    "correlation_id": ("correlationId", "the message's correlation_id property"),
    "queue": ("queue", "the queue it was consumed from"),
    "routing_key": ("routingKey", "the key it was published with, the original one after a retry"),
    "message_type": ("messageType", "the message's type property"),
    "message_id": ("messageId", "the message's message_id property, else its x-redrive-id"),
    "attempt": ("attempt", "this run of the handler; the first is 1"),
    "attempts_max": ("attemptsMax", "the runs its queue allows; a rule may allow more or fewer"),
    "decision": ("decision", "ack, retry, requeue, park, defer or skipped"),
    "delay_ms": ("delay", "milliseconds until the next run, or of the local pause"),
    "error": ("error", "`Type: message`, bounded"),
    "reason": ("reason", "why it was parked, or why a connection or consumer went"),
    "status": ("status", "the HTTP status, where there was one"),
    "handler_s": ("handlerSeconds", "how long the handler ran"),
    "shape": ("shape", "the queue's shape"),
    "tag": ("tag", "a word to alert on: RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"),
}
"""A field by its name in `note`: its key in a JSON line, and what it is. Other fields become camelCase by rule."""

CONSUMER_STATUS = {"ack": "ACK", "skipped": "ACK", "park": "ACK", "retry": "DROP", "requeue": "REQUEUE"}
"""`consumerStatus`, only where the shape is `service`: a decision in the words of the service's document, which calls a
message that is moved to the dead letters acked."""


class MetricType(StrEnum):
    """A metric's type, in Prometheus' words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric family; labels in the order in which they are written."""

    name: str
    type: MetricType
    labels: tuple[str, ...]
    help: str


METRICS = (
    Metric(
        name="redrive_deliveries_total",
        type=MetricType.COUNTER,
        labels=("queue",),
        help="Deliveries for which Redrive made a decision.",
    ),
    Metric(
        name="redrive_decisions_total",
        type=MetricType.COUNTER,
        labels=("queue", "decision"),
        help="What was decided: ack, retry, requeue, park, defer, skipped.",
    ),
    Metric(
        name="redrive_parked_total",
        type=MetricType.COUNTER,
        labels=("queue", "reason"),
        help="Messages moved to the dead letters, by reason.",
    ),
    Metric(
        name="redrive_attempts",
        type=MetricType.HISTOGRAM,
        labels=("queue",),
        help="The attempt with which a message ended, acked or parked.",
    ),
    Metric(
        name="redrive_handler_seconds",
        type=MetricType.HISTOGRAM,
        labels=("queue",),
        help="How long handlers ran, in seconds.",
    ),
    Metric(
        name="redrive_in_hand",
        type=MetricType.GAUGE,
        labels=("queue",),
        help="Unacked deliveries.",
    ),
    Metric(
        name="redrive_paused",
        type=MetricType.GAUGE,
        labels=("queue",),
        help="1 while a queue's consumer pauses itself.",
    ),
    Metric(
        name="redrive_publishes_total",
        type=MetricType.COUNTER,
        labels=("queue", "outcome"),
        help="Copies made for retries and parking: confirmed, returned, nacked, in_doubt.",
    ),
    Metric(
        name="redrive_consumer_restarts_total",
        type=MetricType.COUNTER,
        labels=("queue",),
        help="Consumers that were lost and consume again.",
    ),
    Metric(
        name="redrive_reconnects_total",
        type=MetricType.COUNTER,
        labels=(),
        help="Connections made again after one was lost.",
    ),
    Metric(
        name="redrive_connect_failures_total",
        type=MetricType.COUNTER,
        labels=(),
        help="Attempts to connect that failed for every host.",
    ),
    Metric(
        name="redrive_ready",
        type=MetricType.GAUGE,
        labels=(),
        help="1 while /readyz says yes.",
    ),
    Metric(
        name="redrive_log_lines_dropped_total",
        type=MetricType.COUNTER,
        labels=(),
        help="Log lines left out because they could not be written fast enough.",
    ),
)

HANDLER_S_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ATTEMPT_BOUNDS = (1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 11.0, 16.0, 32.0)
