"""Faults on command: what goes wrong, when, and how often. Scripted or drawn from a seed by whoever arms them.

A fault waits for its moment (the nth frame of a kind, the nth confirm), fires once, and is gone. Without any the hot
path only looks at `watching`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from redrive import wire


class Action(Enum):
    """What a fault does."""

    CLOSE_BEFORE = auto()
    """The connection is cut before the frame is looked at: it never arrived."""
    CLOSE_AFTER = auto()
    """The connection is cut after the frame took effect and before anything is answered."""
    LOSE = auto()
    """A confirm is not sent; the message is where it should be."""
    NACK = auto()
    """A confirm becomes a refusal; the message is where it should be all the same."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """An armed fault: on the `after`th thing that `matches`."""

    action: Action
    matches: Callable[[wire.Event | None], bool]
    after: int


class Faults:
    """The faults that wait for their moment."""

    def __init__(self) -> None:
        self._on_events: list[Fault] = []
        self._on_confirms: list[Fault] = []
        self.watching = False
        """Whether any fault is armed."""

    def close_before(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection before the nth frame of a kind ("basic.publish", "basic.ack", "queue.declare" …)."""
        self._arm(self._on_events, Fault(action=Action.CLOSE_BEFORE, matches=_named(kind), after=nth))

    def close_after(self, kind: str, *, nth: int = 1) -> None:
        """Cut the connection after the nth frame of a kind has taken effect."""
        self._arm(self._on_events, Fault(action=Action.CLOSE_AFTER, matches=_named(kind), after=nth))

    def lose_confirm(self, *, nth: int = 1) -> None:
        """Don't send the nth confirm."""
        self._arm(self._on_confirms, Fault(action=Action.LOSE, matches=lambda _: True, after=nth))

    def nack_confirm(self, *, nth: int = 1) -> None:
        """Send a refusal for the nth confirm."""
        self._arm(self._on_confirms, Fault(action=Action.NACK, matches=lambda _: True, after=nth))

    def clear(self) -> None:
        """Disarm all."""
        self._on_events.clear()
        self._on_confirms.clear()
        self.watching = False

    def on_event(self, event: wire.Event) -> Action | None:
        """What to do about an event that has arrived."""
        return self._fire(self._on_events, event)

    def on_confirm(self) -> Action | None:
        """What to do about a confirm that is due."""
        return self._fire(self._on_confirms, None)

    def _arm(self, faults: list[Fault], fault: Fault) -> None:
        faults.append(fault)
        self.watching = True

    def _fire(self, faults: list[Fault], event: wire.Event | None) -> Action | None:
        for fault in faults:
            if not fault.matches(event):
                continue
            fault.after -= 1
            if fault.after == 0:
                faults.remove(fault)
                self.watching = bool(self._on_events or self._on_confirms)
                return fault.action
        return None


_HOT = {
    "basic.publish": wire.Published,
    "basic.ack": wire.Ack,
    "basic.nack": wire.Nack,
    "basic.reject": wire.Reject,
    "heartbeat": wire.Heartbeat,
}


def _named(kind: str) -> Callable[[wire.Event | None], bool]:
    hot = _HOT.get(kind)
    if hot is not None:
        return lambda event: isinstance(event, hot)
    known = {cls.NAME for cls in wire.methods.METHODS.values()}
    if kind not in known:
        raise ValueError(f"there is no frame {kind!r}; write it like basic.publish or queue.declare")
    return lambda event: isinstance(event, wire.Command) and kind == event.method.NAME
