"""Acks on one channel, coalesced: one frame for everything settled in a row.

Delivery tags on a channel count from 1. `floor` is the highest tag below which all is settled; when it moves, one ack
with `multiple` says so, at the end of the event loop's turn. Tags settled out of order wait a few milliseconds for the
gap below them to close; then they are acked one by one. A multiple ack must name a delivery the broker still waits for,
so it names the highest one we mean to ack, never one that was nacked or rejected.
"""

from redrive import wire

STRAGGLERS_S = 0.002
"""How long an ack may wait for its elder siblings."""


class Settling:
    """Which deliveries are settled, and which acks are still to be said."""

    __slots__ = ("_channel", "_settled", "_wire", "floor", "stragglers", "to_ack")

    def __init__(self, connection: wire.Connection, channel: int) -> None:
        self._wire = connection
        self._channel = channel
        self.floor = 0
        self.to_ack = 0
        """The highest tag up to `floor` whose ack is still to be said; 0 if none."""
        self.stragglers: set[int] = set()
        """Tags above `floor` whose ack is still to be said."""
        self._settled: set[int] = set()

    def is_settled(self, tag: int) -> bool:
        """Whether a delivery was settled already."""
        return tag <= self.floor or tag in self._settled

    def ack(self, tag: int) -> None:
        """One delivery is done; the ack is said by `write`."""
        if tag == self.floor + 1:
            self.floor = self.to_ack = tag
            if self._settled:
                self._close_gap()
        else:
            self._settled.add(tag)
            self.stragglers.add(tag)

    def ack_up_to(self, tag: int) -> None:
        """Everything up to a delivery is done."""
        if tag > self.floor:
            self._forget_up_to(tag)
            self.floor = self.to_ack = tag
            self._close_gap()

    def nack(self, tag: int, *, multiple: bool, requeue: bool) -> None:
        """One delivery, or with `multiple` everything unsettled up to it, goes back or dies; said at once."""
        if multiple:
            self.write(stragglers=True)
            self._wire.nack(self._channel, tag, True, requeue)
            self._forget_up_to(tag)
            self.floor = max(self.floor, tag)
            self._close_gap()
        else:
            self._wire.nack(self._channel, tag, False, requeue)
            self._settle(tag)

    def reject(self, tag: int, *, requeue: bool) -> None:
        """One delivery goes back or dies; said at once."""
        self._wire.reject(self._channel, tag, requeue)
        self._settle(tag)

    def write(self, *, stragglers: bool) -> None:
        """Says the acks: the row in one frame, and with `stragglers` the others too."""
        if self.to_ack:
            self._wire.ack(self._channel, self.to_ack, True)
            self.to_ack = 0
        if stragglers and self.stragglers:
            for tag in sorted(self.stragglers):
                self._wire.ack(self._channel, tag, False)
            self.stragglers.clear()

    def _settle(self, tag: int) -> None:
        if tag == self.floor + 1:
            self.floor = tag
            self._close_gap()
        else:
            self._settled.add(tag)

    def _close_gap(self) -> None:
        settled, stragglers = self._settled, self.stragglers
        tag = self.floor + 1
        while tag in settled:
            settled.discard(tag)
            if tag in stragglers:
                stragglers.discard(tag)
                self.to_ack = tag
            tag += 1
        self.floor = tag - 1

    def _forget_up_to(self, tag: int) -> None:
        if self._settled:
            self._settled = {one for one in self._settled if one > tag}
            self.stragglers = {one for one in self.stragglers if one > tag}
