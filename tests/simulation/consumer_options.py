"""Draws the options of a queue's consumer; they are the same in every process that consumes the queue."""

from dataclasses import dataclass
from random import Random
from typing import Any

from redrive.core import Backoff, Exponential, Fixed, Immediate, Rule
from redrive.runtime import PAUSE_ON
from tests.simulation.errors import Broken, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """A consumer's options; None where the queue's declaration holds."""

    park_on: tuple[Any, ...] = ()
    retry_on: tuple[Any, ...] | None = None
    rules: tuple[Rule, ...] = ()
    backoff: Backoff | None = None
    jitter: float | None = None
    age_s_max: int | None = None
    timeout_s: float | None = None
    crashes_max: int | None = 3
    pause_after: int | None = None

    @property
    def pause_on(self) -> tuple[Any, ...]:
        """Consumers that pause soon also pause on timeouts. Not drawn, so that old seeds keep their meaning."""
        return (*PAUSE_ON, TimeoutError) if self.pause_after == 2 else PAUSE_ON

    def options(self) -> dict[str, Any]:
        """As `App.consumer` takes them."""
        return {
            "park_on": self.park_on,
            "retry_on": self.retry_on,
            "rules": self.rules,
            "backoff": self.backoff,
            "jitter": self.jitter,
            "age_max": self.age_s_max,
            "timeout": self.timeout_s,
            "crashes_max": self.crashes_max,
            "pause_after": self.pause_after,
            "pause_on": self.pause_on,
        }


def draw_consumer_options(random: Random) -> ConsumerOptions:
    """Options of all kinds; most consumers have few."""
    return ConsumerOptions(
        park_on=random.choice(((), (), (Refused,), (Refused, 418), (503,))),
        retry_on=random.choice((None, None, None, (Broken, ConnectionError, TimeoutError, range(500, 600)))),
        rules=random.choice(
            (
                (),
                (),
                (),
                (Rule(Refused, "ack"),),
                (Rule(Broken, "retry", attempts_max=2),),
                (Rule(Broken, "retry", backoff=Fixed(7)), Rule(range(500, 600), "retry", attempts_max=3)),
            )
        ),
        backoff=random.choice(
            (None, None, None, Fixed(12), Exponential(2, longest="1h"), Immediate(Fixed("40s"), times=1))
        ),
        jitter=random.choice((None, None, 0.2, 1.0)),
        age_s_max=random.choice((None, None, None, None, 600, 7200)),
        timeout_s=random.choice((None, None, 0.7, 5.0)),
        crashes_max=random.choice((3, 3, 2, 5, None)),
        pause_after=random.choice((20, None, 2)),
    )
