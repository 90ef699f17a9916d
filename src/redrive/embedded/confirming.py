"""Confirms on their way to a client: those of one turn go out in one frame, unless a fault wants one of them."""

from functools import partial
from typing import TYPE_CHECKING

from redrive import wire
from redrive.embedded.engine import Channel
from redrive.embedded.faults import Faults
from redrive.embedded.mishaps import Action

if TYPE_CHECKING:
    from redrive.embedded.session import Session


class Confirms:
    """The confirms that one client is owed."""

    def __init__(self, session: "Session", wire: wire.Connection, faults: Faults) -> None:
        self._session = session
        self._wire = wire
        self._faults = faults
        self._due: dict[Channel, tuple[int, int]] = {}
        self._with_gaps: set[Channel] = set()
        """Channels on which a confirm was kept back: an ack for `multiple` would send it after all."""

    def add(self, channel: Channel, number: int) -> None:
        """A publish was taken; numbers of one channel come in a row."""
        first, _ = self._due.get(channel, (number, 0))
        self._due[channel] = (first, number)

    def flush(self) -> None:
        """Say what is due."""
        if not self._due:
            return
        due, self._due = self._due, {}
        for channel, (first, last) in due.items():
            if not channel.is_open or not self._wire.is_open:
                continue
            if self._faults.watching:
                for number in range(first, last + 1):
                    self._say_or_fail(channel, number)
            elif channel in self._with_gaps:
                for number in range(first, last + 1):
                    self._wire.ack(channel.number, number, False)
            else:
                self._wire.ack(channel.number, last, last > first)

    def _say_or_fail(self, channel: Channel, number: int) -> None:
        firing = self._faults.on_confirm()
        if firing is None:
            self._wire.ack(channel.number, number, False)
        elif firing.action is Action.NACK:
            self._wire.nack(channel.number, number, False, False)
        else:
            self._with_gaps.add(channel)
            if firing.action is Action.DELAY and self._faults.stage is not None:
                self._faults.stage.call_in(firing.for_ms, self._session, partial(self._say_late, channel, number))

    def _say_late(self, channel: Channel, number: int) -> None:
        if channel.is_open and self._wire.is_open:
            self._wire.ack(channel.number, number, False)
