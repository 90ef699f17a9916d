"""Acks and discards on one channel, coalesced: one frame for a run of deliveries that are settled in the same way.

Delivery tags on a channel count from 1. All deliveries up to the tag `floor` are settled. When it moves, one ack with
`multiple` (or one nack without requeue, for those that are discarded) is sent at the end of the event loop's turn. Tags
settled out of order wait a few milliseconds for the gap below them to close; then they are sent one by one. A multiple
ack must name a delivery that the broker still waits for, so it names the highest one to ack, never one that was
requeued. A requeue is sent at once: another consumer can use the message, and RabbitMQ 4.3 counts a reject as a failed
delivery and a nack not.
"""

from redrive import wire

STRAGGLERS_S = 0.002
"""How long an ack may wait for lower delivery tags to be settled."""


class CoalescedAcks:
    """Which deliveries of a channel are settled, and which acks and discards are still to be sent."""

    __slots__ = ("_channel", "_discards", "_settled", "_wire", "floor", "stragglers", "to_ack", "to_discard")

    def __init__(self, connection: wire.Connection, channel: int) -> None:
        self._wire = connection
        self._channel = channel
        self.floor = 0
        self.to_ack = 0
        """The highest tag up to `floor` whose ack is still to be sent; 0 if none."""
        self.to_discard = 0
        """The same for discards. Only one of the two is set: the other is sent before the first of another kind."""
        self.stragglers: set[int] = set()
        """Tags above `floor` whose ack or discard is still to be sent."""
        self._discards: set[int] = set()
        """Those of the stragglers that are discarded."""
        self._settled: set[int] = set()

    def is_settled(self, tag: int) -> bool:
        """Whether a delivery was settled already."""
        return tag <= self.floor or tag in self._settled

    def ack(self, tag: int) -> None:
        """One delivery is done; `write` sends the ack."""
        if tag == self.floor + 1:
            if self.to_discard:
                self._write_run()
            self.floor = self.to_ack = tag
            if self._settled:
                self._close_gap()
        else:
            self._settled.add(tag)
            self.stragglers.add(tag)

    def discard(self, tag: int) -> None:
        """One delivery is dropped or dead-lettered (a nack without requeue); `write` sends it."""
        if tag == self.floor + 1:
            if self.to_ack:
                self._write_run()
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
        """Everything unsettled up to a delivery is requeued or discarded; sent at once."""
        self.write(stragglers=True)
        self._wire.nack(self._channel, tag, True, requeue)
        self._forget_up_to(tag)
        self.floor = max(self.floor, tag)
        self._close_gap()

    def requeue(self, tag: int, *, counted: bool) -> None:
        """One delivery is requeued, by reject (`counted` as a failed delivery) or nack; sent at once."""
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
        """Queues what is to be sent: the run up to `floor` in one frame, and with `stragglers` the others too."""
        if self.to_ack or self.to_discard:
            self._write_run()
        if stragglers and self.stragglers:
            discards = self._discards
            for tag in sorted(self.stragglers):
                if tag in discards:
                    self._wire.nack(self._channel, tag, False, False)
                else:
                    self._wire.ack(self._channel, tag, False)
            self.stragglers.clear()
            discards.clear()

    def _write_run(self) -> None:
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
                        self._write_run()
                    self.to_discard = tag
                else:
                    if self.to_discard:
                        self._write_run()
                    self.to_ack = tag
            tag += 1
        self.floor = tag - 1

    def _write_discards_up_to(self, tag: int) -> None:
        """Before an ack of everything up to `tag`, which would ack the discarded ones too."""
        if self.to_discard:
            self._write_run()
        for one in sorted(one for one in self._discards if one <= tag):
            self._wire.nack(self._channel, one, False, False)
            self.stragglers.discard(one)
            self._discards.discard(one)

    def _forget_up_to(self, tag: int) -> None:
        if self._settled:
            self._settled = {one for one in self._settled if one > tag}
            self.stragglers = {one for one in self.stragglers if one > tag}
