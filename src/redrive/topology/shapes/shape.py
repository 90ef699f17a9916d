"""`Shape`, the base class of every shape: a frozen set of options with two halves.

`build` turns a declared queue into exchanges, queues, bindings and `RetryRoutes`. It refuses by raising `Invalid` with
a path below the queue's entry; the compiler turns that into a finding with its line.

`commands` turns a decision about a delivery into commands for the broker, and never fails. Most shapes inherit it: it
follows from the routes that `build` gave. A shape whose retries need other moves overrides `retry` and `defer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, assert_never

from redrive.core import (
    AckDelivery,
    Backoff,
    Command,
    Decision,
    Defer,
    Done,
    Parked,
    ReceivedMessage,
    RejectDelivery,
    Report,
    Requeued,
    Retry,
    Skip,
)
from redrive.topology.argument_table import Arguments
from redrive.topology.declaration.model import DeclaredQueue
from redrive.topology.deliveries import message_origin, moves
from redrive.topology.model import Binding, Exchange, Queue, QueueType
from redrive.topology.option_types import Count, Invalid
from redrive.topology.retry_routes import MoveBy, RetryRoutes
from redrive.topology.shapes.safe_queues import refuse_temporary
from redrive.topology.shapes.traits import NO_TRAITS, Traits

_WHY = "attempts counts handler runs, the first one included: 1 means no retries"
ATTEMPTS = Count(1, 10_000, _WHY)
ATTEMPTS_BY_DELAYS = Count(1, 10_000, _WHY, optional=True)
"""Left out, there is one run more than there are delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a shape built around one queue, the queue itself included."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...] = ()
    routes: RetryRoutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(ABC):
    """The options of one shape around one queue, from YAML or from Python: `LadderShape(delays=["30s", "5m"])`."""

    name: ClassVar[str]
    traits: ClassVar[Traits] = NO_TRAITS

    def __post_init__(self) -> None:
        """Puts every option into its canonical form. Raises `Invalid` with the option's name in its path."""
        for one in fields(self):
            try:
                parsed = one.metadata["type"].parse(getattr(self, one.name))
            except Invalid as problem:
                raise Invalid(problem.summary, problem.hint, (one.name, *problem.path)) from None
            object.__setattr__(self, one.name, parsed)
        self.check()

    def check(self) -> None:  # noqa: B027 - most shapes have nothing to add
        """Checks that concern several options at once. Raises `Invalid`."""

    @abstractmethod
    def build(self, queue: DeclaredQueue) -> Built:
        """The topology around `queue`. Raises `Invalid` with a path below the queue's entry."""

    @abstractmethod
    def backoff(self) -> Backoff:
        """How long to wait before each retry, where the handler says nothing else."""

    @property
    def unlisted_4xx(self) -> Literal["park", "retry"]:
        """What a 4xx other than 408, 409, 425 and 429 means, where the handler says nothing else."""
        return "park"

    # Building

    def queue_type(self, queue: DeclaredQueue) -> str:
        """The type of the main queue and of the queues around it. Raises `Invalid` for one the shape can't have."""
        kind = queue.type
        if kind == QueueType.STREAM:
            raise Invalid(
                "a stream can't retry: it neither rejects nor dead-letters",
                "use a quorum queue, or retry: false",
                ("type",),
            )
        if self.traits.quorum_only and kind == QueueType.CLASSIC:
            raise Invalid(
                f"shape {self.name} needs quorum queues", "leave type out, or choose another shape", ("type",)
            )
        return kind or (QueueType.QUORUM if self.traits.quorum_only else QueueType.CLASSIC)

    def main_queue(self, queue: DeclaredQueue, arguments: Mapping[str, Any]) -> Queue:
        """The declared queue itself with the shape's arguments; the author's arguments may not contradict them."""
        refuse_temporary(queue)
        for key, value in arguments.items():
            if key in queue.arguments and queue.arguments[key] != value:
                raise Invalid(
                    f"{key} is {value!r} in shape {self.name}, not {queue.arguments[key]!r}",
                    "leave it out, or choose another shape",
                    ("arguments", key),
                )
        return Queue(
            name=queue.name,
            durable=queue.durable,
            auto_delete=queue.auto_delete,
            arguments=Arguments({**arguments, **queue.arguments}),
        )

    def source_exchange(self, queue: DeclaredQueue, chosen: str | None) -> str:
        """The exchange a shape is built around: the chosen one, else the only one the queue is bound to."""
        if chosen is not None:
            return chosen
        exchanges = list(dict.fromkeys(source.exchange for source in queue.sources))
        if len(exchanges) == 1:
            return exchanges[0]
        many = f"it is bound to {', '.join(exchanges)}" if exchanges else "it is bound to none"
        raise Invalid(
            f"shape {self.name} needs to know its exchange, and {many}",
            "say retry: {exchange: NAME}",
            ("retry",),
        )

    # Commands

    def commands(
        self, decision: Decision, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """The commands in order; the last one settles the delivery, and no other does.

        Quorum queues up to 4.0 count even an uncounted requeue, but only towards their delivery limit.
        """
        match decision:
            case Done() | Skip():
                return (AckDelivery(),)
            case Requeued(pause_ms=pause_ms):
                return moves.requeue(pause_ms, message, report, routes.counted_by)
            case Retry():
                return self.retry(decision, message, routes, report)
            case Defer():
                return self.defer(decision, message, routes, report)
            case Parked():
                return moves.park(decision, message, routes, report)
            case _:
                assert_never(decision)

    def retry(
        self, decision: Retry, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """To the wait that is long enough: by a reject where the queue dead-letters into its wait, else by a copy.

        A copy is also needed where the broker would take the way back for a cycle and drop the message, or would count
        another message's deaths as this one's.
        """
        delay_ms = decision.delay_ms
        if self.rejects(decision, message, routes):
            return (RejectDelivery(),)
        return moves.copy_to_wait(delay_ms, decision.not_before_ms, message, routes, report, counted=True)

    def rejects(self, decision: Retry, message: ReceivedMessage, routes: RetryRoutes) -> bool:
        """Whether a reject sends the message into its wait."""
        return (
            routes.retry_by is MoveBy.REJECT
            and decision.delay_ms <= routes.longest_wait_ms
            and not message_origin.must_be_copied(message)
        )

    def defer(
        self, decision: Defer, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """Into a wait for the rest of the time. Always by a copy: a reject would count as an attempt."""
        wait_ms = decision.wait_ms
        return moves.copy_to_wait(wait_ms, decision.not_before_ms, message, routes, report, counted=False)

    @property
    def skips_foreign(self) -> bool:
        """Whether the consumer acks copies of other queues' tiered retries unhandled. Every queue that is bound to an
        exchange of shape `tiered` gets such copies."""
        return True
