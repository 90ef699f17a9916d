"""A dead letter: what is known about it, its content, and what happened to it."""

from dataclasses import dataclass

from redrive.core import Attempt
from redrive.records.states import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the headers of a message say, of whatever framework. Where they say nothing, the field is None."""

    queue: str
    """The queue it failed in."""
    exchange: str
    routing_key: str
    """How it was published first; `routing_key` is the topic."""
    reason: str
    """Why it died: RabbitMQ's `rejected`, `expired`, `maxlen`, `delivery_limit`, why we parked it, MassTransit's word,
    `error` where another framework parked it after an error, or `unknown`."""
    told_by: str
    """Whose headers said so: `redrive`, `event-bus`, `masstransit`, `spring`, `nservicebus`, `wolverine`, `x-death`,
    `nobody`."""
    error_type: str | None
    error_message: str | None
    status_code: int | None
    stack: str | None
    attempts: int | None
    """Handler runs, where they were counted."""
    message_id: str | None
    correlation_id: str | None
    type: str | None
    service: str | None
    died_at_ms: int | None
    group_id: str
    """Equal for letters of one kind: queue, error type, status, top of the stack and codes or normalised message; else
    queue, reason, type."""
    group_title: str
    """The kind in a line, for people."""
    owner: str | None = None
    """Whose operators it belongs to: see `owner_of`. None: by the DLQ's name."""
    history: tuple[Attempt, ...] = ()
    """Attempts that its headers don't list. Those in the headers are read when somebody asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """The message itself: its properties as they were on the wire, and its body."""

    properties: bytes
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One message taken from a dead-letter queue, explained, not yet stored."""

    id: str
    vhost: str
    dlq: str
    dlq_exchange: str
    dlq_routing_key: str
    """How it was published into its dead-letter queue."""
    content: MessageContent
    fingerprint: bytes
    """Equal for the same message delivered twice."""
    explanation: Explanation
    search_text: str
    """What full-text search finds it by."""
    collected_at_ms: int
    redriven_id: str | None = None
    """The dead letter it was when it was redriven, and which of its redrives brought it."""
    redriven_count: int = 0
    redriven_mark: str | None = None
    """What may prove that: see `redriven_marks`. Without proof anybody may have written the two above."""
    own_id: str = ""
    """The message's own id exactly as it is, or else its `x-redrive-id`: what its mark was made of."""
    own_body: bytes | None = None
    """The message's own body, where its content is an envelope: what its mark was made of. None: the content's."""
    twin_of: str | None = None
    """The stored dead letter that it may be again: it has the same bytes and no id, and after a crash nobody can
    know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row of the store, without its content."""

    id: str
    version: int
    """Grows with every change: an ETag."""
    status: Status
    vhost: str
    dlq: str
    dlq_exchange: str
    dlq_routing_key: str
    queue: str
    exchange: str
    routing_key: str
    reason: str
    told_by: str
    error_type: str | None
    error_message: str | None
    status_code: int | None
    stack: str | None
    attempts: int | None
    message_id: str | None
    correlation_id: str | None
    type: str | None
    service: str | None
    group_id: str
    size_bytes: int
    dead_at_ms: int
    collected_at_ms: int
    updated_at_ms: int
    redrives: int
    """How often it was sent back."""
    returns: int
    """How often it came back after that: its recurrences."""
    is_poison: bool
    due_at_ms: int | None
    """When auto-retry may send it again; None when it will not."""
    silent_at_ms: int | None
    """When it counts as resolved unless it comes back."""
    status_reason: str | None
    """Why it has its status, in a sentence."""
    resolved_by: str | None
    copy_of: str | None
    """The dead letter of which it is another copy: it was redriven once and died twice."""
    operation_id: str | None
    """The operation that sends it, or sent it last."""
    is_edited: bool
    forgiven: int = 0
    """How many of `returns` auto-retry does not count: those up to the last redrive by a person."""

    @property
    def counted_recurrences(self) -> int:
        """The recurrences that auto-retry counts towards its attempts."""
        return max(self.returns - self.forgiven, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEntry:
    """One thing that happened to a dead letter."""

    at_ms: int
    event: str
    who: str
    detail: str
    operation_id: str | None
