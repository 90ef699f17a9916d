"""Publisher confirms on their way to a client: those of one turn go out in one frame, unless a fault hits one."""

from functools import partial
from typing import TYPE_CHECKING

from redrive.embedded.engine import Channel
from redrive.embedded.faults import FaultAction

if TYPE_CHECKING:
    from redrive.embedded.client_session import ClientSession, SessionHost


class Confirms:
    """The confirms that are due to one client."""

    def __init__(self, session: "ClientSession", host: "SessionHost") -> None:
        self._session = session
        self._host = host
        self._wire = session.wire
        self._faults = host.faults
        self._due: dict[Channel, tuple[int, int]] = {}
        self._with_gaps: set[Channel] = set()
        """Channels on which a fault held a confirm back: an ack for `multiple` would send it after all."""

    def add(self, channel: Channel, number: int) -> None:
        """A publish is confirmed; the numbers of one channel come in a row."""
        first, _ = self._due.get(channel, (number, 0))
        self._due[channel] = (first, number)

    def flush(self) -> None:
        """Send what is due."""
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
        fault = self._faults.on_confirm()
        if fault is None:
            self._wire.ack(channel.number, number, False)
        elif fault.action is FaultAction.NACK:
            self._wire.nack(channel.number, number, False, False)
        else:
            self._with_gaps.add(channel)
            if fault.action is FaultAction.DELAY:
                self._host.call_after(fault.for_ms, self._session, partial(self._say_late, channel, number))

    def _say_late(self, channel: Channel, number: int) -> None:
        if channel.is_open and self._wire.is_open:
            self._wire.ack(channel.number, number, False)
