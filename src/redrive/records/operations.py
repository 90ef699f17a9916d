"""Operations: what is to be done to a frozen selection of dead letters, how far it is, and how each one ended."""

from dataclasses import dataclass, field
from enum import StrEnum

from redrive.records.filters.terms import Filter
from redrive.records.letters import MessageContent


class OperationKind(StrEnum):
    """A person's redrive, one of auto-retry, or restoring messages to their DLQ (`return` is the stored word)."""

    REDRIVE = "redrive"
    AUTO_RETRY = "auto-retry"
    RESTORE = "return"


class OperationState(StrEnum):
    """`waiting` has no runner, or had one that is gone; the last two are ends."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"


class ItemState(StrEnum):
    """Of one dead letter in an operation. `sending`: the intent is committed, its end is not known yet."""

    QUEUED = "queued"
    SENDING = "sending"
    SENT = "sent"
    REFUSED = "refused"
    IN_DOUBT = "in_doubt"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters: by ids, or by a filter; at most `limit`, the longest dead first."""

    ids: tuple[str, ...] = ()
    filter: Filter | None = None
    filter_text: str = ""
    limit: int | None = None
    includes_in_doubt: bool = False
    """Without ids, doubtful ones are only taken when this says so: sending them again may make a duplicate."""
    ends_waiting: bool = False
    """For resolving, reopening and deleting: also those whose copy was sent and has not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveTarget:
    """Where copies go. By default (both None) to the failed queue, through the default exchange.

    `exchange` and `routing_key` may hold `{queue}`: `retry.{queue}` with key `retry` is the file pipeline's.
    """

    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOperation:
    """What somebody asks for."""

    kind: OperationKind
    selection: Selection
    target: RedriveTarget = field(default_factory=RedriveTarget)
    rate_per_s: float | None = None
    keep_attempts: bool = False
    """The copies carry the runs so far in `x-redrive-attempts-before`."""
    ramp: tuple[int, ...] = ()
    """Batches that begin small (1, 2, 5, 20 …); the last size goes on."""
    settle_s: float = 600.0
    """T: not come back for so long counts as resolved."""
    who: str = ""
    why: str = ""
    queues: tuple[str, ...] = ()
    """The queues that the caller is limited to, names with `*`; none: every queue. Every send is checked against
    them."""
    token_id: str = ""
    """With which token it was asked for."""
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A row of the store. The counts are of items; `total` was frozen when it was created."""

    id: str
    kind: OperationKind
    state: OperationState
    selection_text: str
    target: RedriveTarget
    rate_per_s: float | None
    keep_attempts: bool
    ramp: tuple[int, ...]
    settle_s: float
    who: str
    why: str
    total: int
    sent: int
    refused: int
    in_doubt: int
    skipped: int
    created_at_ms: int
    started_at_ms: int | None
    ended_at_ms: int | None
    note: str
    """Why it waits or stopped, in a sentence."""
    queues: tuple[str, ...] = ()
    """As in `NewOperation`."""
    token_id: str = ""

    @property
    def left(self) -> int:
        """Items that have not ended."""
        return self.total - self.sent - self.refused - self.in_doubt - self.skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedLetter:
    """A dead letter whose sending is committed: what to publish, and where it came from."""

    id: str
    vhost: str
    queue: str
    dlq: str
    dlq_exchange: str
    dlq_routing_key: str
    content: MessageContent
    """Edited, where somebody edited it."""
    exchange: str = ""
    routing_key: str = ""
    """How it was published first, as far as anybody knows."""
    redrives: int
    """Counting this one: `x-redriven-count`."""
    attempts: int | None
    was_in_doubt: bool
    """An earlier copy may be with the broker already."""
    operation_id: str = ""
    secret: bytes = field(default=b"", repr=False)
    """Of the operation: what the copy's mark is made with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """How a claimed dead letter ended: `sent` (confirmed), `refused` with the reason, `in_doubt` with the reason, or
    `queued`: certainly not sent, and still to do."""

    id: str
    state: ItemState
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationItem:
    """One dead letter in an operation, as a list shows it."""

    letter_id: str
    queue: str
    state: ItemState
    reason: str
    at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an operation would take, counted exactly: by failed queue, and how many it leaves alone by status."""

    total: int
    by_queue: dict[str, int]
    left_alone: dict[str, int]
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """By failed queue and where it was taken."""
