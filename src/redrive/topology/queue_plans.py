"""All that a consumer needs to know about one declared queue, in one value.

`Compiled.queue(name)` makes it. A consumer asks it what counts the attempts, which policy holds where its handler says
nothing else, and what to tell the broker; whether the queue has a shape or `retry: false` makes no difference to it.
"""

from dataclasses import dataclass

from redrive.core import Command, Counter, Decision, Letter, Report, Retry
from redrive.core import Policy as RetryPolicy
from redrive.topology.arrangement import Arrangement, Way
from redrive.topology.declared import DeclaredQueue
from redrive.topology.model import Queue
from redrive.topology.shapes import unretried
from redrive.topology.shapes.base import Shape
from redrive.topology.shapes.origins import handler_routing_key, is_foreign_copy


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePlan:
    """One declared queue: as it was declared, as it was compiled, and what is arranged around it.

    `shape` and `arrangement` are None together, for `retry: false`; `dead_letters` matters only then: whether a
    rejected message goes anywhere.
    """

    declared: DeclaredQueue
    queue: Queue
    shape: Shape | None
    arrangement: Arrangement | None
    dead_letters: bool = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.name

    @property
    def shape_name(self) -> str:
        """The shape's name in a declaration; `none` without one."""
        return "none" if self.shape is None else self.shape.name

    @property
    def counted_by(self) -> Counter:
        """What to count retries by (`core.count_retries`)."""
        return unretried.COUNTED_BY if self.arrangement is None else self.arrangement.counted_by

    @property
    def policy(self) -> RetryPolicy:
        """When to retry and how often, as the queue's declaration says; a handler may change it."""
        if self.shape is None or self.arrangement is None:
            attempts_max = 1 if self.dead_letters else unretried.ATTEMPTS_UNBOUNDED
            return RetryPolicy(attempts_max=attempts_max, backoff=unretried.BACKOFF)
        return RetryPolicy(
            attempts_max=self.arrangement.attempts, backoff=self.shape.backoff(), other_4xx=self.shape.unlisted_4xx
        )

    def commands(self, decision: Decision, letter: Letter, report: Report) -> tuple[Command, ...]:
        """What to tell the broker, in order; the last command settles the delivery, and no other does."""
        if self.shape is None or self.arrangement is None:
            return unretried.commands(decision, letter, report, queue=self.queue, dead_letters=self.dead_letters)
        return self.shape.commands(decision, letter, self.arrangement, report)

    def rejects(self, decision: Retry, letter: Letter) -> bool:
        """Whether `commands` for it are one reject without requeue: what costs least to find out, and is done most."""
        return (
            self.shape is not None
            and self.arrangement is not None
            and self.arrangement.retry_by is Way.REJECT
            and self.shape.rejects(decision, letter, self.arrangement)
        )

    def is_foreign(self, letter: Letter) -> bool:
        """Whether a delivery is another queue's retry, to be acked unhandled (`Skip`)."""
        if self.shape is None or self.arrangement is None:
            return is_foreign_copy(letter)
        return self.shape.is_foreign(letter, self.arrangement)

    def handler_routing_key(self, letter: Letter) -> str:
        """The key to show to the handler: the original one, also on a retry."""
        return handler_routing_key(letter)
