"""What a handler does with a message, run by run: drawn from the seed, the message and the queue, and nothing else."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "ok", "answer", "broken", "refused", "absent", "park", "again", "requeue", "cancel", "exit", "publish", "crash"
]
ENDINGS: tuple[Kind, ...] = ("ok", "ok", "ok", "ok", "broken", "refused", "park", "answer", "absent", "crash")
MIDDLES: tuple[Kind, ...] = (
    "broken", "broken", "broken", "refused", "absent", "again",
    "requeue", "answer", "cancel", "exit", "publish", "crash",
)  # fmt: skip
STATUSES = (200, 204, 302, 400, 404, 408, 409, 418, 425, 429, 500, 503)
LASTING_STATUSES = (200, 204, 400, 404, 500, 503)
"""Statuses that may repeat for ever: with a 425 a message would never end."""
CRASHING = 0.25
"""The share of drawn crashes that happen: each costs every unsettled message a redelivery."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One run: how it ends, after how long, and what goes with that (a delay, a pause, a status)."""

    kind: Kind
    takes_s: float = 0.0
    value_s: float | None = None
    status: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a script must not do for ever on this queue, because nobody would end it."""

    may_fail_for_ever: bool
    may_crash_for_ever: bool
    may_be_absent_for_ever: bool
    delay_s_max: float
    """A longer delay is had by going round the longest wait again and again: many steps for nothing new."""


def draw_script(seed: int, number: int, queue: str, limits: Limits) -> tuple[Step, ...]:
    """The runs of one message in one queue; the last repeats."""
    random = Random(f"{seed}:{number}:{queue}")
    longest_s = limits.delay_s_max
    count = random.choice((0, 0, 0, 1, 1, 2, 4))
    steps = [_draw_step(random, random.choice(MIDDLES), STATUSES, longest_s) for _ in range(count)]
    ending = random.choice(ENDINGS)
    if (
        (ending == "crash" and not (limits.may_crash_for_ever and random.random() < CRASHING))
        or (ending == "absent" and not limits.may_be_absent_for_ever)
        or (ending not in ("ok", "park") and not limits.may_fail_for_ever)
    ):
        ending = "ok"
    statuses = LASTING_STATUSES if limits.may_be_absent_for_ever else LASTING_STATUSES[:-1]
    last = _draw_step(random, ending, statuses, longest_s)
    if not (limits.may_be_absent_for_ever and limits.may_fail_for_ever):
        last = replace(last, takes_s=min(last.takes_s, 0.4))  # below every timeout: to run out of time is a failure too
    return (*steps, last)


def _draw_step(random: Random, kind: Kind, statuses: tuple[int, ...], longest_s: float) -> Step:
    if kind == "crash" and random.random() > CRASHING:
        kind = "broken"
    takes_s = random.choices((0.0, 0.013, 0.4, 2.1, 30.0), (20, 6, 6, 4, 1))[0]
    match kind:
        case "again":
            return Step(
                kind=kind, takes_s=takes_s, value_s=min(random.choice((0, 0.5, 9, 75, 1000, 20_000)), longest_s)
            )
        case "requeue":
            return Step(kind=kind, takes_s=takes_s, value_s=random.choice((None, 0, 2, 90)))
        case "answer":
            value_s = random.choice((None, None, 0, 3, min(4000, longest_s)))
            return Step(kind=kind, takes_s=takes_s, value_s=value_s, status=random.choice(statuses))
        case _:
            return Step(kind=kind, takes_s=takes_s)
