"""Acks and discards on one channel, coalesced: one frame for everything settled alike in a row.

Delivery tags on a channel count from 1. `floor` is the highest tag below which all is settled; when it moves, one ack,
or one nack without requeue for those that are dead-lettered, with `multiple` says so, at the end of the event loop's
turn. Tags settled out of order wait a few milliseconds for the gap below them to close; then they are said one by one.
A multiple ack must name a delivery the broker still waits for, so it names the highest one we mean to ack, never one
that was given back. What is given back to the queue is said at once: it is wanted elsewhere, and 4.3 counts a reject
and does not count a nack.
"""

from redrive import wire

STRAGGLERS_S = 0.002
"""How long an ack may wait for its elder siblings."""


class Settling:
    """Which deliveries are settled, and which acks are still to be said."""

    __slots__ = ("_channel", "_discards", "_settled", "_wire", "floor", "stragglers", "to_ack", "to_discard")

    def __init__(self, connection: wire.Connection, channel: int) -> None:
        self._wire = connection
        self._channel = channel
        self.floor = 0
        self.to_ack = 0
        """The highest tag up to `floor` whose ack is still to be said; 0 if none."""
        self.to_discard = 0
        """The same for discards. Only one of the two is ever set: the other was said when the row changed its kind."""
        self.stragglers: set[int] = set()
        """Tags above `floor` whose ack or discard is still to be said."""
        self._discards: set[int] = set()
        """Those of the stragglers that are discarded."""
        self._settled: set[int] = set()

    def is_settled(self, tag: int) -> bool:
        """Whether a delivery was settled already."""
        return tag <= self.floor or tag in self._settled

    def ack(self, tag: int) -> None:
        """One delivery is done; the ack is said by `write`."""
        if tag == self.floor + 1:
            if self.to_discard:
                self._write_row()
            self.floor = self.to_ack = tag
            if self._settled:
                self._close_gap()
        else:
            self._settled.add(tag)
            self.stragglers.add(tag)

    def discard(self, tag: int) -> None:
        """One delivery dies, or goes to the dead-letter exchange; said by `write`."""
        if tag == self.floor + 1:
            if self.to_ack:
                self._write_row()
            self.floor = self.to_discard = tag
            if self._settled:
                self._close_gap()
        else:
            self._settled.add(tag)
            self.stragglers.add(tag)
            self._discards.add(tag)

    def ack_up_to(self, tag: int) -> None:
        """Everything unsettled up to a delivery is done."""
        if tag > self.floor:
            self._write_discards_up_to(tag)
            self._forget_up_to(tag)
            self.floor = self.to_ack = tag
            self._close_gap()

    def nack_up_to(self, tag: int, *, requeue: bool) -> None:
        """Everything unsettled up to a delivery goes back or dies; said at once."""
        self.write(stragglers=True)
        self._wire.nack(self._channel, tag, True, requeue)
        self._forget_up_to(tag)
        self.floor = max(self.floor, tag)
        self._close_gap()

    def give_back(self, tag: int, *, counted: bool) -> None:
        """One delivery goes back to the queue, by reject (`counted`) or nack; said at once."""
        if counted:
            self._wire.reject(self._channel, tag, True)
        else:
            self._wire.nack(self._channel, tag, False, True)
        if tag == self.floor + 1:
            self.floor = tag
            self._close_gap()
        else:
            self._settled.add(tag)

    def write(self, *, stragglers: bool) -> None:
        """Says what is to be said: the row in one frame, and with `stragglers` the others too."""
        if self.to_ack or self.to_discard:
            self._write_row()
        if stragglers and self.stragglers:
            discards = self._discards
            for tag in sorted(self.stragglers):
                if tag in discards:
                    self._wire.nack(self._channel, tag, False, False)
                else:
                    self._wire.ack(self._channel, tag, False)
            self.stragglers.clear()
            discards.clear()

    def _write_row(self) -> None:
        if self.to_ack:
            self._wire.ack(self._channel, self.to_ack, True)
            self.to_ack = 0
        else:
            self._wire.nack(self._channel, self.to_discard, True, False)
            self.to_discard = 0

    def _close_gap(self) -> None:
        settled, stragglers, discards = self._settled, self.stragglers, self._discards
        tag = self.floor + 1
        while tag in settled:
            settled.discard(tag)
            if tag in stragglers:
                stragglers.discard(tag)
                if tag in discards:
                    discards.discard(tag)
                    if self.to_ack:
                        self._write_row()
                    self.to_discard = tag
                else:
                    if self.to_discard:
                        self._write_row()
                    self.to_ack = tag
            tag += 1
        self.floor = tag - 1

    def _write_discards_up_to(self, tag: int) -> None:
        """Before an ack of everything up to `tag`, which would take them for done."""
        if self.to_discard:
            self._write_row()
        for one in sorted(one for one in self._discards if one <= tag):
            self._wire.nack(self._channel, one, False, False)
            self.stragglers.discard(one)
            self._discards.discard(one)

    def _forget_up_to(self, tag: int) -> None:
        if self._settled:
            self._settled = {one for one in self._settled if one > tag}
            self.stragglers = {one for one in self.stragglers if one > tag}
