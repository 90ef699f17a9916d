"""The consumer's half of a channel: basic.qos, consume, cancel and get; ack, nack, reject and recover."""

from collections.abc import Iterable, Mapping
from typing import Any

from redrive.embedded.engine import journal
from redrive.embedded.engine.amqp_errors import AmqpError, access_refused, precondition, resource
from redrive.embedded.engine.arguments import check_consumer_priority
from redrive.embedded.engine.channel_base import REPLY_ADDRESS, REPLY_TO, ChannelBase, Unacked
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.effects import GetOk
from redrive.embedded.engine.messages import QueueEntry
from redrive.embedded.engine.profiles import SettledBy
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.streams import Stream


class ConsumerMethods(ChannelBase):
    """What a client may call to receive messages and to effective_settings them."""

    def qos(self, prefetch_count: int, *, prefetch_size: int = 0, per_channel: bool = False) -> None:
        """basic.qos: for later consumers, or with `per_channel` for all of the channel together. Raises AmqpError."""
        if prefetch_size:
            raise AmqpError(540, f"prefetch_size!=0 ({prefetch_size})")
        if per_channel and self.engine.profile.global_prefetch:
            self.share_prefetch(prefetch_count)
        else:
            self.prefetch = prefetch_count
            self.share_prefetch(0)  # on 3.10 and 4.0 a prefetch per consumer ends the shared one
        self.engine.flush_dead_letters()

    def consume(
        self, queue_name: str, tag: str, *, no_ack: bool, exclusive: bool, arguments: Mapping[str, Any]
    ) -> Consumer | None:
        """basic.consume without the first delivery: send consume-ok, then call `Queue.dispatch`. Raises AmqpError.

        None for direct reply-to, which has no queue.
        """
        if queue_name == REPLY_TO:
            self._consume_replies(tag, no_ack=no_ack)
            return None
        if tag in self.consumers or tag == self.reply_tag:
            raise AmqpError(530, f"attempt to reuse consumer tag '{tag}'")
        queue = self.vhost.queue(self.named_queue(queue_name), self.connection)
        where = resource("queue", queue.name, self.vhost.name)
        if isinstance(queue, Stream):
            return self._read_stream(queue, tag, no_ack=no_ack, arguments=arguments)
        check_consumer_priority(arguments, where)
        if queue.is_quorum and self.shared_prefetch:
            raise AmqpError(540, f"{where} does not support global qos")
        taken = any(one.exclusive for one in queue.consumers.all)
        alone = exclusive and (queue.consumers.all or queue.settings.single_active)
        if taken or alone:
            raise access_refused(f"{where} in exclusive use")
        self.engine.sequence += 1
        consumer = Consumer(
            self,
            queue,
            tag,
            no_ack=no_ack,
            exclusive=exclusive,
            number=self.engine.sequence,
            arguments=arguments,
        )
        self.consumers[tag] = consumer
        queue.consumers.add(consumer)
        return consumer

    def _read_stream(self, stream: Stream, tag: str, *, no_ack: bool, arguments: Mapping[str, Any]) -> Consumer:
        if self.shared_prefetch and self.prefetch:
            raise AmqpError(540, f"{resource('queue', stream.name, self.vhost.name)} does not support global qos")
        self.engine.sequence += 1
        reader = stream.subscribe(self, tag, no_ack=no_ack, number=self.engine.sequence, arguments=arguments)
        self.consumers[tag] = reader
        stream.consumers.add(reader)
        return reader

    def cancel(self, tag: str) -> None:
        """basic.cancel: unacked messages stay unacked. An unknown tag is fine."""
        if tag == self.reply_tag:
            self._forget_replies()
        consumer = self.consumers.get(tag)
        if consumer is not None:
            self.forget(consumer)
            self.consumer_left(consumer.queue)
            self.engine.flush_dead_letters()

    def consumer_left(self, queue: Queue) -> None:
        """A consumer has left a queue: the next may become active, or the queue is auto-deleted."""
        if queue.is_deleted:
            return
        if queue.auto_delete and not queue.consumers.all:
            self.vhost.delete_queue(queue, why="auto-deleted after its last consumer")
            return
        queue.touch()
        queue.dispatch()

    def get(self, queue_name: str, *, no_ack: bool) -> bool:
        """basic.get: adds a `GetOk` to the effects, or returns False if the queue is empty. Raises AmqpError."""
        queue = self.vhost.queue(self.named_queue(queue_name), self.connection)
        if isinstance(queue, Stream):
            raise queue.unsupported("basic.get not supported by stream queues")
        if queue.is_quorum and queue.settings.single_active:
            where = resource("queue", queue.name, self.vhost.name)
            raise AmqpError(
                405,
                f"cannot obtain access to locked {where}. basic.get operations are not supported by quorum queues "
                "with single active consumer",
            )
        queue.touch()
        queue.expire_before_read()
        if not queue.ready:
            self.engine.flush_dead_letters()
            return False
        engine = self.engine
        entry = queue.pop()
        redelivered, header = queue.as_delivered(entry, fetched=True)
        self.delivery_tag += 1
        left = len(queue.ready)
        queue.expire()
        if no_ack or not queue.is_quorum:
            # Counted when the new head has had its chance to expire; a quorum queue that keeps this one counts before.
            left = len(queue.ready)
        engine.effects.append(GetOk(self, self.delivery_tag, redelivered, entry.message, header, left))
        history = entry.message.history
        if history is not None:
            history.append((engine.now_ms, journal.DELIVERED, queue.name, "basic.get"))
        if not no_ack:
            entry.delivered_ms = engine.now_ms
            engine.timeout_check_ms = min(engine.timeout_check_ms, engine.now_ms + queue.consumer_timeout_ms)
            self.unacked[self.delivery_tag] = (entry, queue, None)
            queue.unacked_count += 1
            engine.unacked_count += 1
        queue.limits.update(queue)
        queue.rearm()
        engine.flush_dead_letters()
        return True

    def _consume_replies(self, tag: str, *, no_ack: bool) -> None:
        if not no_ack:
            raise precondition("reply consumer cannot acknowledge")
        if self.reply_tag is not None:
            raise precondition("reply consumer already set")
        self.reply_tag = tag
        self.reply_address = f"{REPLY_ADDRESS}{self.engine.unique_name()}"
        self.engine.reply_channels[self.reply_address] = self

    def _forget_replies(self) -> None:
        self.reply_tag = None
        self.engine.reply_channels.pop(self.reply_address, None)

    def ack(self, tag: int, multiple: bool = False) -> None:
        """basic.ack. Raises AmqpError for a tag that is not unacked."""
        if not multiple and self.transaction is None:
            # The hot path: one message, settled now.
            unacked = self.unacked.pop(tag, None)
            if unacked is None:
                self._settle_timed_out(tag, False)
                return
            entry, queue, consumer = unacked
            queue.ack(entry)
            if consumer is not None:
                self._free_prefetch(unacked)
                if self.engine.pending_dead_letters:
                    self.engine.flush_dead_letters()  # delivering the next message may find expired ones before it
            return
        self._settle(self._take_unacked(tag, multiple), None, requeue=False)

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack. Raises AmqpError."""
        self._settle(self._check_nackable(self._take_unacked(tag, multiple)), SettledBy.NACK, requeue=requeue)

    def reject(self, tag: int, requeue: bool = True) -> None:
        """basic.reject. Raises AmqpError."""
        self._settle(self._check_nackable(self._take_unacked(tag, False)), SettledBy.REJECT, requeue=requeue)

    def recover(self, requeue: bool) -> None:
        """basic.recover. Raises AmqpError without requeue, which RabbitMQ does not support."""
        if not requeue:
            raise AmqpError(540, "requeue=false")
        if self.engine.profile.streams_only_ack and any(queue.is_stream for _, queue, _ in self.unacked.values()):
            raise AmqpError(541)
        items, self.unacked = self.unacked, {}
        self.apply_settlement(items.values(), SettledBy.NACK, requeue=True)
        if self.timed_out:
            self._settle_timed_out(max(self.timed_out), True)
        self.engine.flush_dead_letters()

    def apply_settlement(self, items: Iterable[Unacked], how: SettledBy | None, *, requeue: bool) -> None:
        """Settle messages at their queues; `how` None is an ack."""
        settled = list(items)
        for queue, entries in _batches_by_queue(settled, how):
            if how is None:
                for entry in entries:
                    queue.ack(entry)
            elif requeue:
                queue.requeue(entries, how)
            else:
                queue.discard(entries, how)
        for one in settled:
            if one[2] is not None:
                self._free_prefetch(one)

    def _settle(self, items: dict[int, Unacked], how: SettledBy | None, *, requeue: bool) -> None:
        if self.transaction is not None:
            self.transaction.settlements.append((items, how, requeue))
            return
        self.apply_settlement(items.values(), how, requeue=requeue)
        self.engine.flush_dead_letters()

    def _check_nackable(self, items: dict[int, Unacked]) -> dict[int, Unacked]:
        """The same messages. Raises AmqpError if one is a stream's, which 3.10 lets clients only ack."""
        if self.engine.profile.streams_only_ack:
            for _, queue, _ in items.values():
                if isinstance(queue, Stream):
                    raise queue.unsupported("basic.nack and basic.reject not supported by stream queues")
        return items

    def _take_unacked(self, tag: int, multiple: bool) -> dict[int, Unacked]:
        """Take messages out of `unacked`: one, all up to a tag, or with `multiple` and 0 all."""
        if multiple and tag == 0:
            items, self.unacked = self.unacked, {}
            if self.timed_out:
                self._settle_timed_out(max(self.timed_out), True)
            return items
        if self.timed_out and (multiple or tag in self.timed_out):
            self._settle_timed_out(tag, multiple)
            if not multiple:
                return {}
        elif tag not in self.unacked:
            raise precondition(f"unknown delivery tag {tag}")
        if not multiple:
            return {tag: self.unacked.pop(tag)}
        items = {}
        for one in self.unacked:  # in the order of their tags: that is how they were delivered
            if one > tag:
                break
            items[one] = self.unacked[one]
        for one in items:
            del self.unacked[one]
        return items

    def _settle_timed_out(self, tag: int, multiple: bool) -> None:
        """Settling a message that was requeued after its timeout only makes its consumer eligible again.

        Raises AmqpError for a tag that is neither unacked nor timed out.
        """
        if tag not in self.timed_out and tag not in self.unacked:
            raise precondition(f"unknown delivery tag {tag}")
        for one in [each for each in self.timed_out if each == tag or (multiple and each < tag)]:
            consumer = self.timed_out.pop(one)
            if consumer is None:
                continue
            consumer.timed_out -= 1
            if not consumer.timed_out and self.consumers.get(consumer.tag) is consumer:
                consumer.queue.consumers.make_eligible(consumer)
                consumer.queue.dispatch()
        self.engine.flush_dead_letters()

    def _free_prefetch(self, unacked: Unacked) -> None:
        """A consumer's message is settled: its prefetch may have room for another."""
        _, queue, consumer = unacked
        assert consumer is not None
        consumer.unacked_count -= 1
        was_full = self.is_full
        self.shared_unacked = max(0, self.shared_unacked - 1)
        if queue.is_stream:
            queue.dispatch()
        elif was_full and not self.is_full:
            self.serve_blocked_queues(queue)
        elif not consumer.is_eligible and self.consumers.get(consumer.tag) is consumer:
            if self.shared_prefetch:
                queue.consumers.unblock_channel(self)  # RabbitMQ looks at all consumers of the channel again
            else:
                queue.consumers.make_eligible(consumer)
            if queue.ready:
                queue.dispatch()
        elif queue.ready and queue.consumers.single_active:
            queue.dispatch()


def _batches_by_queue(settled: list[Unacked], how: SettledBy | None) -> list[tuple[Queue, list[QueueEntry]]]:
    """What each queue is told at once, in order.

    When a channel ends, that is everything of the queue. Otherwise the queues come in the order of their names, and
    within each one consumer after the other; a basic.get is a consumer of its own, and those come first.
    """
    batches: dict[tuple[int, str, int, str], tuple[Queue, list[QueueEntry]]] = {}
    for number, (entry, queue, consumer) in enumerate(settled):
        if how is SettledBy.CHANNEL_CLOSED:
            key = (id(queue), "", 0, "")
        elif consumer is None:
            key = (0, queue.name, number, "")
        else:
            key = (0, queue.name, len(settled), consumer.tag)
        batches.setdefault(key, (queue, []))[1].append(entry)
    if how is SettledBy.CHANNEL_CLOSED:
        return list(batches.values())
    return [batches[key] for key in sorted(batches)]
