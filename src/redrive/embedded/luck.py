"""Bad luck from a seed: how often what goes wrong, and the draws.

One draw for each frame and one for each confirm, whatever comes of it, from a sequence of its own each: what a run does
to its frames does not shift what it does to its confirms. Handshakes and heartbeats draw nothing; a client that never
gets connected tests nothing, and how many heartbeats there are is a matter of time.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from redrive import wire
from redrive.embedded.mishaps import Action, Firing


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """How often: chances from 0 to 1, the first five for each frame on a channel, the last three for each confirm.

    A delay or a block lasts up to `seconds_max`. After `faults_max` nothing more goes wrong, so that a run can end.
    """

    close_before: float = 0.0
    close_after: float = 0.0
    delay: float = 0.0
    block: float = 0.0
    restart: float = 0.0
    lose_confirm: float = 0.0
    nack_confirm: float = 0.0
    delay_confirm: float = 0.0
    seconds_max: float = 5.0
    faults_max: int = 1_000_000

    def __post_init__(self) -> None:
        frames = (self.close_before, self.close_after, self.delay, self.block, self.restart)
        confirms = (self.lose_confirm, self.nack_confirm, self.delay_confirm)
        if any(not 0 <= rate <= 1 for rate in (*frames, *confirms)):
            raise ValueError(f"{self}: a rate is a chance from 0 to 1")
        if sum(frames) > 1 or sum(confirms) > 1:
            raise ValueError(f"{self}: the rates of frames, and those of confirms, add up to 1 at most")
        if self.seconds_max < 0:
            raise ValueError(f"{self}: seconds_max can't be negative")


class Luck:
    """The draws of one seed."""

    def __init__(self, seed: int, rates: FaultRates) -> None:
        self._left = rates.faults_max
        self._ms_max = round(rates.seconds_max * 1000)
        self._frames = _Wheel(
            f"{seed}:frames",
            (
                (rates.close_before, Action.CLOSE_BEFORE),
                (rates.close_after, Action.CLOSE_AFTER),
                (rates.delay, Action.DELAY),
                (rates.block, Action.BLOCK),
                (rates.restart, Action.RESTART),
            ),
        )
        self._confirms = _Wheel(
            f"{seed}:confirms",
            (
                (rates.lose_confirm, Action.LOSE),
                (rates.nack_confirm, Action.NACK),
                (rates.delay_confirm, Action.DELAY),
            ),
        )

    def on_frame(self, event: wire.Event) -> Firing | None:
        """What becomes of a frame."""
        return self._fire(self._frames) if event.channel else None

    def on_confirm(self) -> Firing | None:
        """What becomes of a confirm."""
        return self._fire(self._confirms)

    def _fire(self, wheel: "_Wheel") -> Firing | None:
        action = wheel.turn()
        if action is None or self._left <= 0:
            return None
        self._left -= 1
        lasts = action in (Action.DELAY, Action.BLOCK)
        return Firing(action, wheel.whole(self._ms_max) if lasts else 0)


class _Wheel:
    """A wheel of fortune with a field as wide as each rate."""

    def __init__(self, seed: str, rates: Iterable[tuple[float, Action]]) -> None:
        self._random = random.Random(seed)
        self._fields: list[tuple[float, Action]] = []
        reach = 0.0
        for rate, action in rates:
            reach += rate
            if rate:
                self._fields.append((reach, action))
        self._reach = reach

    def turn(self) -> Action | None:
        at = self._random.random()
        if at >= self._reach:
            return None
        return next((action for reach, action in self._fields if at < reach), None)

    def whole(self, most: int) -> int:
        return self._random.randint(0, most)
