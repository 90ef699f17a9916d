"""Settling on a channel: ack, nack, reject, recover, and the same inside a transaction."""

from collections.abc import Iterable

from redrive.embedded.engine.channel_state import ChannelState, InHand
from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.profiles import Returning
from redrive.embedded.engine.publishing import Publishing
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import Refusal, precondition
from redrive.embedded.engine.streams import Stream


class Settling(Publishing, ChannelState):
    """The consumer's half of a channel, as far as it gives messages back."""

    def ack(self, tag: int, multiple: bool = False) -> None:
        """basic.ack. Raises Refusal for a tag that is not in hand."""
        if not multiple and self.transaction is None:
            # The hot path: one message, settled now.
            in_hand = self.unacked.pop(tag, None)
            if in_hand is None:
                self._settle_released(tag, False)
                return
            entry, queue, consumer = in_hand
            queue.acked(entry)
            if consumer is not None:
                self._release(in_hand)
                if self.engine.dead:
                    self.engine.finish()  # giving the next message out may find expired ones before it
            return
        self._settle(self._collect(tag, multiple), None, requeue=False)

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack. Raises Refusal."""
        self._settle(self._returnable(self._collect(tag, multiple)), Returning.NACK, requeue=requeue)

    def reject(self, tag: int, requeue: bool = True) -> None:
        """basic.reject. Raises Refusal."""
        self._settle(self._returnable(self._collect(tag, False)), Returning.REJECT, requeue=requeue)

    def recover(self, requeue: bool) -> None:
        """basic.recover. Raises Refusal without requeue, which RabbitMQ does not do."""
        if not requeue:
            raise Refusal(540, "requeue=false")
        if self.engine.profile.streams_only_ack and any(queue.is_stream for _, queue, _ in self.unacked.values()):
            raise Refusal(541)
        items, self.unacked = self.unacked, {}
        self.apply_settlement(items.values(), Returning.NACK, requeue=True)
        if self.released:
            self._settle_released(max(self.released), True)
        self.engine.finish()

    def commit(self) -> None:
        """tx.commit: publishes first, then settlements. Raises Refusal."""
        transaction = self.required_transaction()
        publishes, transaction.publishes = transaction.publishes, []
        settlements, transaction.settlements = transaction.settlements, []
        complete = self.send_publishes(publishes)
        for items, how, requeue in settlements:
            self.apply_settlement(items.values(), how, requeue=requeue)
        self.engine.finish()
        if not complete:
            raise precondition("partial tx completion")

    def rollback(self) -> None:
        """tx.rollback: nothing was said; what was settled is in hand again. Raises Refusal."""
        transaction = self.required_transaction()
        transaction.publishes.clear()
        restored = dict(self.unacked)
        for items, _, _ in transaction.settlements:
            restored.update(items)
        transaction.settlements.clear()
        self.unacked = dict(sorted(restored.items()))

    def apply_settlement(self, items: Iterable[InHand], how: Returning | None, *, requeue: bool) -> None:
        """Do to messages what was said about them; `how` None is an ack."""
        settled = list(items)
        for queue, entries in _strokes(settled, how):
            if how is None:
                for entry in entries:
                    queue.acked(entry)
            elif requeue:
                queue.give_back(entries, how)
            else:
                queue.discard(entries, how)
        for one in settled:
            if one[2] is not None:
                self._release(one)

    def _settle(self, items: dict[int, InHand], how: Returning | None, *, requeue: bool) -> None:
        if self.transaction is not None:
            self.transaction.settlements.append((items, how, requeue))
            return
        self.apply_settlement(items.values(), how, requeue=requeue)
        self.engine.finish()

    def _returnable(self, items: dict[int, InHand]) -> dict[int, InHand]:
        """The same, unless one is a stream's and must be acked (3.10). Raises Refusal."""
        if self.engine.profile.streams_only_ack:
            for _, queue, _ in items.values():
                if isinstance(queue, Stream):
                    raise queue.refusal("basic.nack and basic.reject not supported by stream queues")
        return items

    def _collect(self, tag: int, multiple: bool) -> dict[int, InHand]:
        """Take messages out of hand: one, all up to a tag, or with `multiple` and 0 all."""
        if multiple and tag == 0:
            items, self.unacked = self.unacked, {}
            if self.released:
                self._settle_released(max(self.released), True)
            return items
        if self.released and (multiple or tag in self.released):
            self._settle_released(tag, multiple)
            if not multiple:
                return {}
        elif tag not in self.unacked:
            raise precondition(f"unknown delivery tag {tag}")
        if not multiple:
            return {tag: self.unacked.pop(tag)}
        items = {}
        for one in self.unacked:  # tags are in order: they were given out that way
            if one > tag:
                break
            items[one] = self.unacked[one]
        for one in items:
            del self.unacked[one]
        return items

    def _settle_released(self, tag: int, multiple: bool) -> None:
        """What is said of messages that were taken back changes nothing, but their consumer may get messages again.

        Raises Refusal for a tag that is neither in hand nor taken back.
        """
        if tag not in self.released and tag not in self.unacked:
            raise precondition(f"unknown delivery tag {tag}")
        for one in [each for each in self.released if each == tag or (multiple and each < tag)]:
            consumer = self.released.pop(one)
            if consumer is None:
                continue
            consumer.released -= 1
            if not consumer.released and self.consumers.get(consumer.tag) is consumer:
                consumer.queue.consumers.stand(consumer)
                consumer.queue.dispatch()
        self.engine.finish()

    def _release(self, in_hand: InHand) -> None:
        """A consumer's message is settled: there may be room for another."""
        _, queue, consumer = in_hand
        assert consumer is not None
        consumer.in_hand -= 1
        was_full = self.is_full
        self.shared_in_hand = max(0, self.shared_in_hand - 1)
        if queue.is_stream:
            queue.dispatch()
        elif was_full and not self.is_full:
            self.serve_refused(queue)
        elif not consumer.standing and self.consumers.get(consumer.tag) is consumer:
            if self.shared_prefetch:
                queue.consumers.stand_again(self)  # RabbitMQ looks at all consumers of the channel again
            else:
                queue.consumers.stand(consumer)
            if queue.ready:
                queue.dispatch()
        elif queue.ready and queue.consumers.single_active:
            queue.dispatch()


def _strokes(settled: list[InHand], how: Returning | None) -> list[tuple[Queue, list[Entry]]]:
    """What each queue hears of at one stroke, in order.

    When a channel ends, that is everything. What is said of several messages goes to the queues by their names, and to
    each consumer by consumer; a basic.get is a consumer of its own, and those come first.
    """
    strokes: dict[tuple[int, str, int, str], tuple[Queue, list[Entry]]] = {}
    for number, (entry, queue, consumer) in enumerate(settled):
        if how is Returning.LOST:
            key = (id(queue), "", 0, "")
        elif consumer is None:
            key = (0, queue.name, number, "")
        else:
            key = (0, queue.name, len(settled), consumer.tag)
        strokes.setdefault(key, (queue, []))[1].append(entry)
    if how is Returning.LOST:
        return list(strokes.values())
    return [strokes[key] for key in sorted(strokes)]
