"""What all shapes share: options that check themselves, and the safe way to emit a queue.

A shape is a frozen set of options with two halves. `build` turns a declared queue into exchanges, queues, bindings and
an `RetryRoutes`; it refuses by raising `Invalid` with a path below the queue's own entry, and the compiler turns that
into a finding with its line. `commands` turns a decision about a delivery into what the broker is told; it never fails.
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
from redrive.topology.model import DEFAULT_EXCHANGE, Binding, Exchange, Queue, QueueType
from redrive.topology.option_types import Count, Flag, Invalid, option
from redrive.topology.retry_routes import MoveBy, RetryRoutes, Wait
from redrive.topology.shapes.traits import NO_TRAITS, Traits

DELIVERY_LIMIT_MAIN = 20
"""Returns before a main queue gives up, where its deaths go to parking: 4.x's own default, said aloud for 3.10."""

DELIVERY_LIMIT_NEVER = 1_000_000
"""As good as no limit. Not -1: 3.10 takes that for "discard on the first return". Used wherever reaching a limit would
drop a message: in wait and parking queues, and in main queues whose deaths go into a retry loop."""

_WHY = "attempts counts handler runs, the first one included: 1 means no retries"
ATTEMPTS = Count(1, 10_000, _WHY)
ATTEMPTS_BY_DELAYS = Count(1, 10_000, _WHY, optional=True)
"""Left out, there is one run more than there are delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a shape made of one queue."""

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
        """Puts every option into its canonical form. Raises `Invalid`, the option's name in its path."""
        for one in fields(self):
            try:
                parsed = one.metadata["kind"].parse(getattr(self, one.name))
            except Invalid as problem:
                raise Invalid(problem.summary, problem.hint, (one.name, *problem.path)) from None
            object.__setattr__(self, one.name, parsed)
        self.check()

    def check(self) -> None:  # noqa: B027 - most shapes have nothing to add
        """What concerns several options at once. Raises `Invalid`."""

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

    def commands(
        self, decision: Decision, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """What to tell the broker, in order; the last command settles the delivery, and no other does.

        An uncounted return is counted all the same by a quorum queue up to 4.0, towards its delivery limit only.
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
        """To the wait that is long enough: by reject where the queue's own loop is, else by a copy.

        By a copy, too, where the broker would take the way back for a cycle and drop the message, or count another's
        past as its own.
        """
        delay_ms = decision.delay_ms
        if self.rejects(decision, message, routes):
            return (RejectDelivery(),)
        return moves.copy_to_wait(delay_ms, decision.not_before_ms, message, routes, report, counted=True)

    def rejects(self, decision: Retry, message: ReceivedMessage, routes: RetryRoutes) -> bool:
        """Whether a plain reject sends it into its wait."""
        return (
            routes.retry_by is MoveBy.REJECT
            and decision.delay_ms <= routes.longest_wait_ms
            and not message_origin.must_be_copied(message)
        )

    def defer(
        self, decision: Defer, message: ReceivedMessage, routes: RetryRoutes, report: Report
    ) -> tuple[Command, ...]:
        """Into a wait for the rest of the time; a reject would count as an attempt, so always by a copy."""
        wait_ms = decision.wait_ms
        return moves.copy_to_wait(wait_ms, decision.not_before_ms, message, routes, report, counted=False)

    @property
    def skips_foreign(self) -> bool:
        """Whether other queues' tiered retries are acked unhandled; any queue bound to a tiered exchange gets them."""
        return True

    def handler_routing_key(self, message: ReceivedMessage) -> str:
        """The key to show to the handler: the original one, also on a retry."""
        return message_origin.handler_routing_key(message)

    def queue_type(self, queue: DeclaredQueue) -> str:
        """The type of the main queue, and so of those around it. Raises `Invalid` for one the shape can't have."""
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
        """The declared queue itself with the shape's arguments; the author's own may not contradict them."""
        _refuse_mortal(queue)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedShape(Shape):
    """A shape that a document prescribes: what it does not speak of is added only where queues are quorum."""

    at_least_once: bool = option(
        Flag(), True, "quorum only: dead-letter at least once, with reject-publish; false is the stock at-most-once"
    )
    safe_limits: bool = option(
        Flag(), True, "quorum only: delivery limits that never drop a message; false leaves the broker's default"
    )

    def type_arguments(self, queue: DeclaredQueue, *, limit: int, dead_letters: bool) -> dict[str, Any]:
        """What a queue of this shape carries beyond its document: on quorum queues what makes them safe.

        `classic` is written only if the author wrote it: then it holds in a vhost with another default queue type too,
        and otherwise the document's own form is kept.
        """
        kind = self.queue_type(queue)
        if kind != QueueType.QUORUM:
            return {} if queue.type is None else {"x-queue-type": kind}
        return {
            "x-queue-type": QueueType.QUORUM.value,
            **({"x-delivery-limit": limit} if self.safe_limits else {}),
            **(AT_LEAST_ONCE if dead_letters and self.at_least_once else {}),
        }

    def dead_letter_queue(self, queue: DeclaredQueue, name: str) -> Queue:
        """The queue where dead letters stay."""
        arguments = self.type_arguments(queue, limit=DELIVERY_LIMIT_NEVER, dead_letters=False)
        return Queue(name=name, arguments=Arguments(arguments))

    def reject_loop(
        self, queue: DeclaredQueue, *, rejected_to: Mapping[str, Any], wait: Wait, dlq: str
    ) -> tuple[Queue, Queue, Queue]:
        """The main queue whose rejected messages wait and come back by themselves, its wait queue and its DLQ.

        The main queue's other deaths go into the loop too, as the documents have it, so its delivery limit must never
        be reached, and what would let messages expire or overflow is refused.
        """
        loop = self.type_arguments(queue, limit=DELIVERY_LIMIT_NEVER, dead_letters=True)
        arguments = {**rejected_to, **loop}
        refuse_loop_deaths(queue, arguments, self.name)
        waiting = Arguments({**returning_to(queue.name), "x-message-ttl": wait.delay_ms, **loop})
        return (
            self.main_queue(queue, arguments),
            Queue(name=wait.queue, arguments=waiting),
            self.dead_letter_queue(queue, dlq),
        )


AT_LEAST_ONCE = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
"""Dead-lettering that waits for the target's confirm; with drop-head it would silently be at-most-once."""


def refuse_loop_deaths(queue: DeclaredQueue, arguments: Mapping[str, Any], shape: str) -> None:
    """Refuses what would kill messages into the shape's own retry loop.

    A death that is no reject (expiry, overflow) goes main → retry → main, and the broker drops it there as a cycle.
    """
    every = {**arguments, **queue.arguments}
    if "x-message-ttl" in every:
        raise Invalid(
            f"in shape {shape} an expired message would enter the retry loop, where RabbitMQ drops it",
            "leave x-message-ttl out, or use shape ladder, which parks it",
            ("arguments", "x-message-ttl"),
        )
    for key in ("x-max-length", "x-max-length-bytes"):
        if key in every and every.get("x-overflow") != "reject-publish":
            raise Invalid(
                f"in shape {shape} an overflowing message would enter the retry loop, where RabbitMQ drops it",
                "add x-overflow: reject-publish, or use shape ladder, which parks it",
                ("arguments", key),
            )


def _refuse_mortal(queue: DeclaredQueue) -> None:
    """Refuses a queue that the broker may delete: its messages, and those waiting to come back to it, go with it."""
    if "x-expires" in queue.arguments:
        raise Invalid(
            "a queue that expires is deleted with its messages, and its waiting retries have nowhere to go back to",
            "leave x-expires out, or say retry: false",
            ("arguments", "x-expires"),
        )
    for key, wanted in (("durable", True), ("auto_delete", False)):
        if getattr(queue, key) is not wanted:
            what = "is gone after a restart" if key == "durable" else "is deleted with its last consumer"
            raise Invalid(
                f"a queue that {what} loses its messages, and its waiting retries have nowhere to go back to",
                f"leave {key} out, or say retry: false",
                (key,),
            )


def bindings_of(queue: DeclaredQueue) -> tuple[Binding, ...]:
    """The bindings an author declared for a queue."""
    return tuple(
        Binding(source=one.exchange, destination=queue.name, routing_key=one.key, arguments=one.arguments)
        for one in queue.sources
    )


def returning_to(queue_name: str) -> dict[str, Any]:
    """Dead-letter straight to one queue, through the default exchange, and to nobody else."""
    return {"x-dead-letter-exchange": DEFAULT_EXCHANGE, "x-dead-letter-routing-key": queue_name}
