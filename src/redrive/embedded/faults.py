"""Faults: what goes wrong, when, and how often. Scripted one by one, or drawn from a seed.

A scripted fault waits for its moment (the nth frame of a kind, the nth confirm), fires once, and is gone. With a seed
(`Faults.from_seed`) every frame and confirm draws its own luck, and the same traffic always draws the same. Seconds are
the broker's own, so that they pass as its time does. Without any fault the hot path only looks at `watching`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from redrive import wire
from redrive.embedded.luck import FaultRates, Luck
from redrive.embedded.mishaps import Action, Firing

if TYPE_CHECKING:
    from redrive.embedded.session import Session

FIRED_MAX = 10_000
"""How many of the faults that fired are remembered."""


class Stage(Protocol):
    """What faults need of a server."""

    def call_in(self, delay_ms: int, session: "Session", action: Callable[[], None]) -> None:
        """Do something for a session after so many of the broker's milliseconds."""

    def block_for(self, delay_ms: int) -> None:
        """Block publishers for so long."""

    def restart(self) -> None:
        """Cut everybody off and forget what is not durable."""


@dataclass(slots=True, kw_only=True)
class _Armed:
    """A scripted fault: on the `after`th thing that `matches`."""

    firing: Firing
    matches: Callable[[wire.Event | None], bool]
    after: int


class Faults:
    """The faults that wait for their moment. `fired` tells those that had it, oldest first, in words."""

    def __init__(self, luck: Luck | None = None) -> None:
        self._on_frames: list[_Armed] = []
        self._on_confirms: list[_Armed] = []
        self._luck = luck
        self._frames = 0
        self._confirms = 0
        self._fired: deque[str] = deque(maxlen=FIRED_MAX)
        self.stage: Stage | None = None
        """The server that acts them out."""
        self.watching = luck is not None
        """Whether anything may go wrong."""

    @classmethod
    def from_seed(cls, seed: int, rates: FaultRates) -> "Faults":
        """Faults by chance: each frame on a channel and each confirm draws; the same traffic draws the same."""
        return cls(Luck(seed, rates))

    @property
    def fired(self) -> list[str]:
        """What went wrong so far, like "frame 12, basic.ack: cut before it"; frames count from the first armed."""
        return list(self._fired)

    # Scripted

    def close_before(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection before the nth frame of a kind ("basic.publish", "basic.ack", "queue.declare" …)."""
        self._on_frame(kind, nth, Firing(Action.CLOSE_BEFORE))

    def close_after(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection after the nth frame of a kind has taken effect."""
        self._on_frame(kind, nth, Firing(Action.CLOSE_AFTER))

    def delay(self, kind: str, seconds: float, *, nth: int = 1) -> None:
        """Look at the nth frame of a kind, and at what its client says after it, only so many seconds later."""
        self._on_frame(kind, nth, Firing(Action.DELAY, _ms(seconds)))

    def block_at(self, kind: str, seconds: float, *, nth: int = 1) -> None:
        """Block publishers for so many seconds when the nth frame of a kind comes."""
        self._on_frame(kind, nth, Firing(Action.BLOCK, _ms(seconds)))

    def restart_after(self, kind: str, *, nth: int = 1) -> None:
        """Restart the broker when the nth frame of a kind has taken effect."""
        self._on_frame(kind, nth, Firing(Action.RESTART))

    def lose_confirm(self, *, nth: int = 1) -> None:
        """Don't send the nth confirm."""
        self._on_confirm(nth, Firing(Action.LOSE))

    def nack_confirm(self, *, nth: int = 1) -> None:
        """Send a refusal for the nth confirm."""
        self._on_confirm(nth, Firing(Action.NACK))

    def delay_confirm(self, seconds: float, *, nth: int = 1) -> None:
        """Send the nth confirm so many seconds later; those after it don't wait for it."""
        self._on_confirm(nth, Firing(Action.DELAY, _ms(seconds)))

    def clear(self) -> None:
        """Disarm all; from now on nothing goes wrong."""
        self._on_frames.clear()
        self._on_confirms.clear()
        self._luck = None
        self.watching = False

    # At their moment

    def on_frame(self, event: wire.Event) -> Firing | None:
        """What to do about a frame that has arrived."""
        self._frames += 1
        firing = self._fire(self._on_frames, event)
        if firing is None and self._luck is not None:
            firing = self._luck.on_frame(event)
        if firing is not None:
            self._note(f"frame {self._frames}, {_name(event)}", firing)
        return firing

    def on_confirm(self) -> Firing | None:
        """What to do about a confirm that is due."""
        self._confirms += 1
        firing = self._fire(self._on_confirms, None)
        if firing is None and self._luck is not None:
            firing = self._luck.on_confirm()
        if firing is not None:
            self._note(f"confirm {self._confirms}", firing)
        return firing

    def _on_frame(self, kind: str, nth: int, firing: Firing) -> None:
        self._on_frames.append(_Armed(firing=firing, matches=_named(kind), after=nth))
        self.watching = True

    def _on_confirm(self, nth: int, firing: Firing) -> None:
        self._on_confirms.append(_Armed(firing=firing, matches=lambda _: True, after=nth))
        self.watching = True

    def _fire(self, faults: list[_Armed], event: wire.Event | None) -> Firing | None:
        for fault in faults:
            if not fault.matches(event):
                continue
            fault.after -= 1
            if fault.after == 0:
                faults.remove(fault)
                self.watching = bool(self._on_frames or self._on_confirms or self._luck)
                return fault.firing
        return None

    def _note(self, what: str, firing: Firing) -> None:
        duration = f" for {firing.for_ms / 1000:g} s" if firing.for_ms else ""
        self._fired.append(f"{what}: {firing.action.value}{duration}")


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
