"""Faults: what goes wrong between a client and the broker, and when. Scripted one by one, or drawn from a seed.

A scripted fault waits for its moment (the nth frame of a kind, the nth confirm), fires once, and is gone. With a seed
(`Faults.from_seed`) every frame and every confirm makes one draw, and the same traffic always draws the same. Seconds
are the broker's own, so that they pass as its time does. Without any fault the hot path only reads `watching`.

`Faults` decides, the client's session acts. Frames and confirms draw from a sequence each, so that the draws of one
don't shift those of the other. Handshakes and heartbeats draw nothing: a client that never connects tests nothing, and
how many heartbeats there are is a matter of time.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from redrive import wire

FIRED_MAX = 10_000
"""How many of the faults that fired are remembered."""


class FaultAction(Enum):
    """What a fault does."""

    CLOSE_BEFORE = "cut before it"
    """The connection is cut before the frame is handled: it never arrived."""
    CLOSE_AFTER = "cut after it"
    """The connection is cut after the frame took effect and before anything is answered."""
    DELAY = "delayed"
    """A frame, and all that follows it from that client, is handled later; or a confirm is sent later."""
    BLOCK = "publishers blocked"
    """Publishers are blocked for a while, beginning with this frame."""
    RESTART = "restarted after it"
    """The broker restarts after the frame took effect and before anything is answered."""
    LOSE = "lost"
    """A confirm is not sent; the message is in its queue."""
    NACK = "made a refusal"
    """A confirm becomes a basic.nack; the message is in its queue all the same."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that fires; `for_ms` is how long a delay or a block lasts."""

    action: FaultAction
    for_ms: int = 0


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


class RandomFaults:
    """Faults drawn from a seed."""

    def __init__(self, seed: int, rates: FaultRates) -> None:
        self._left = rates.faults_max
        self._ms_max = round(rates.seconds_max * 1000)
        self._frames = _WeightedDraw(
            f"{seed}:frames",
            (
                (rates.close_before, FaultAction.CLOSE_BEFORE),
                (rates.close_after, FaultAction.CLOSE_AFTER),
                (rates.delay, FaultAction.DELAY),
                (rates.block, FaultAction.BLOCK),
                (rates.restart, FaultAction.RESTART),
            ),
        )
        self._confirms = _WeightedDraw(
            f"{seed}:confirms",
            (
                (rates.lose_confirm, FaultAction.LOSE),
                (rates.nack_confirm, FaultAction.NACK),
                (rates.delay_confirm, FaultAction.DELAY),
            ),
        )

    def on_frame(self, event: wire.Event) -> Fault | None:
        """The fault of a frame, None for none."""
        return self._fire(self._frames) if event.channel else None

    def on_confirm(self) -> Fault | None:
        """The fault of a confirm, None for none."""
        return self._fire(self._confirms)

    def _fire(self, wheel: "_WeightedDraw") -> Fault | None:
        action = wheel.turn()
        if action is None or self._left <= 0:
            return None
        self._left -= 1
        lasts = action in (FaultAction.DELAY, FaultAction.BLOCK)
        return Fault(action, wheel.whole(self._ms_max) if lasts else 0)


class _WeightedDraw:
    """A random choice among actions, each as likely as its rate."""

    def __init__(self, seed: str, rates: Iterable[tuple[float, FaultAction]]) -> None:
        self._random = random.Random(seed)
        self._fields: list[tuple[float, FaultAction]] = []
        reach = 0.0
        for rate, action in rates:
            reach += rate
            if rate:
                self._fields.append((reach, action))
        self._reach = reach

    def turn(self) -> FaultAction | None:
        at = self._random.random()
        if at >= self._reach:
            return None
        return next((action for reach, action in self._fields if at < reach), None)

    def whole(self, most: int) -> int:
        return self._random.randint(0, most)


@dataclass(slots=True, kw_only=True)
class _ScriptedFault:
    """A scripted fault: fires at the `after`th event that `matches`."""

    fault: Fault
    matches: Callable[[wire.Event | None], bool]
    after: int


class Faults:
    """The faults that wait for their moment. `fired` lists those that had it, oldest first, in words."""

    def __init__(self, random_faults: RandomFaults | None = None) -> None:
        self._on_frames: list[_ScriptedFault] = []
        self._on_confirms: list[_ScriptedFault] = []
        self._random_faults = random_faults
        self._frames = 0
        self._confirms = 0
        self._fired: deque[str] = deque(maxlen=FIRED_MAX)
        self.watching = random_faults is not None
        """Whether any fault may fire."""

    @classmethod
    def from_seed(cls, seed: int, rates: FaultRates) -> "Faults":
        """Random faults: each frame on a channel and each confirm draws; the same traffic draws the same."""
        return cls(RandomFaults(seed, rates))

    @property
    def fired(self) -> list[str]:
        """What went wrong so far, like "frame 12, basic.ack: cut before it"; frames count from the first armed."""
        return list(self._fired)

    # Scripted

    def close_before(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection before the nth frame of a kind ("basic.publish", "basic.ack", "queue.declare" …)."""
        self._on_frame(kind, nth, Fault(FaultAction.CLOSE_BEFORE))

    def close_after(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection after the nth frame of a kind has taken effect."""
        self._on_frame(kind, nth, Fault(FaultAction.CLOSE_AFTER))

    def delay(self, kind: str, seconds: float, *, nth: int = 1) -> None:
        """Handle the nth frame of a kind, and what its client sends after it, only so many seconds later."""
        self._on_frame(kind, nth, Fault(FaultAction.DELAY, _ms(seconds)))

    def block_at(self, kind: str, seconds: float, *, nth: int = 1) -> None:
        """Block publishers for so many seconds when the nth frame of a kind comes."""
        self._on_frame(kind, nth, Fault(FaultAction.BLOCK, _ms(seconds)))

    def restart_after(self, kind: str, *, nth: int = 1) -> None:
        """Restart the broker when the nth frame of a kind has taken effect."""
        self._on_frame(kind, nth, Fault(FaultAction.RESTART))

    def lose_confirm(self, *, nth: int = 1) -> None:
        """Don't send the nth confirm."""
        self._on_confirm(nth, Fault(FaultAction.LOSE))

    def nack_confirm(self, *, nth: int = 1) -> None:
        """Send a basic.nack instead of the nth confirm."""
        self._on_confirm(nth, Fault(FaultAction.NACK))

    def delay_confirm(self, seconds: float, *, nth: int = 1) -> None:
        """Send the nth confirm so many seconds later; those after it don't wait for it."""
        self._on_confirm(nth, Fault(FaultAction.DELAY, _ms(seconds)))

    def clear(self) -> None:
        """Disarm all; from now on nothing goes wrong."""
        self._on_frames.clear()
        self._on_confirms.clear()
        self._random_faults = None
        self.watching = False

    # At their moment

    def on_frame(self, event: wire.Event) -> Fault | None:
        """The fault to apply to a frame that has arrived."""
        self._frames += 1
        fault = self._fire(self._on_frames, event)
        if fault is None and self._random_faults is not None:
            fault = self._random_faults.on_frame(event)
        if fault is not None:
            self._note(f"frame {self._frames}, {_name(event)}", fault)
        return fault

    def on_confirm(self) -> Fault | None:
        """The fault to apply to a confirm that is due."""
        self._confirms += 1
        fault = self._fire(self._on_confirms, None)
        if fault is None and self._random_faults is not None:
            fault = self._random_faults.on_confirm()
        if fault is not None:
            self._note(f"confirm {self._confirms}", fault)
        return fault

    def _on_frame(self, kind: str, nth: int, fault: Fault) -> None:
        self._on_frames.append(_ScriptedFault(fault=fault, matches=_named(kind), after=nth))
        self.watching = True

    def _on_confirm(self, nth: int, fault: Fault) -> None:
        self._on_confirms.append(_ScriptedFault(fault=fault, matches=lambda _: True, after=nth))
        self.watching = True

    def _fire(self, faults: list[_ScriptedFault], event: wire.Event | None) -> Fault | None:
        for scripted in faults:
            if not scripted.matches(event):
                continue
            scripted.after -= 1
            if scripted.after == 0:
                faults.remove(scripted)
                self.watching = bool(self._on_frames or self._on_confirms or self._random_faults)
                return scripted.fault
        return None

    def _note(self, what: str, fault: Fault) -> None:
        duration = f" for {fault.for_ms / 1000:g} s" if fault.for_ms else ""
        self._fired.append(f"{what}: {fault.action.value}{duration}")


_HOT: dict[str, type[wire.Event]] = {
    "basic.publish": wire.Published,
    "basic.ack": wire.Ack,
    "basic.nack": wire.Nack,
    "basic.reject": wire.Reject,
    "heartbeat": wire.Heartbeat,
}
_HOT_NAMES = {cls: name for name, cls in _HOT.items()}


def _named(kind: str) -> Callable[[wire.Event | None], bool]:
    hot = _HOT.get(kind)
    if hot is not None:
        return lambda event: isinstance(event, hot)
    known = {cls.NAME for cls in wire.methods.METHODS.values()}
    if kind not in known:
        raise ValueError(f"there is no frame {kind!r}; write it like basic.publish or queue.declare")
    return lambda event: isinstance(event, wire.Command) and kind == event.method.NAME


def _name(event: wire.Event) -> str:
    if isinstance(event, wire.Command):
        return event.method.NAME
    return _HOT_NAMES.get(type(event), type(event).__name__)


def _ms(seconds: float) -> int:
    if seconds < 0:
        raise ValueError(f"a fault can't last {seconds} seconds")
    return round(seconds * 1000)
