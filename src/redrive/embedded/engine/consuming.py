"""Consuming on a channel: consumers come and go, single messages are fetched, prefetch is set."""

from collections.abc import Mapping
from typing import Any

from redrive.embedded.engine import journal
from redrive.embedded.engine.arguments import check_consumer_priority
from redrive.embedded.engine.channel_state import ChannelState
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.effects import Got
from redrive.embedded.engine.publishing import REPLY_ADDRESS, REPLY_TO
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import Refusal, access_refused, precondition, resource
from redrive.embedded.engine.streams import Stream


class Consuming(ChannelState):
    """The consumer's half of a channel, as far as it takes messages."""

    def qos(self, prefetch_count: int, *, prefetch_size: int = 0, per_channel: bool = False) -> None:
        """basic.qos: for consumers to come, or with `per_channel` for all of the channel together. Raises Refusal."""
        if prefetch_size:
            raise Refusal(540, f"prefetch_size!=0 ({prefetch_size})")
        if per_channel and self.engine.profile.global_prefetch:
            self.share_prefetch(prefetch_count)
        else:
            self.prefetch = prefetch_count
            self.share_prefetch(0)  # one for each consumer ends the one for all, on 3.10 and 4.0
        self.engine.finish()

    def consume(
        self, queue_name: str, tag: str, *, no_ack: bool, exclusive: bool, arguments: Mapping[str, Any]
    ) -> Consumer | None:
        """basic.consume, up to the point where messages may flow: answer, then `Queue.dispatch` it. Raises Refusal.

        None for direct reply-to, which has no queue.
        """
        if queue_name == REPLY_TO:
            self._consume_replies(tag, no_ack=no_ack)
            return None
        if tag in self.consumers or tag == self.reply_tag:
            raise Refusal(530, f"attempt to reuse consumer tag '{tag}'")
        queue = self.vhost.queue(self.named_queue(queue_name), self.connection)
        where = resource("queue", queue.name, self.vhost.name)
        if isinstance(queue, Stream):
            return self._read_stream(queue, tag, no_ack=no_ack, arguments=arguments)
        check_consumer_priority(arguments, where)
        if queue.is_quorum and self.shared_prefetch:
            raise Refusal(540, f"{where} does not support global qos")
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
            prefetch=self.prefetch,
            number=self.engine.sequence,
            arguments=arguments,
        )
        self.consumers[tag] = consumer
        queue.consumers.add(consumer)
        return consumer

    def _read_stream(self, stream: Stream, tag: str, *, no_ack: bool, arguments: Mapping[str, Any]) -> Consumer:
        if self.shared_prefetch and self.prefetch:
            raise Refusal(540, f"{resource('queue', stream.name, self.vhost.name)} does not support global qos")
        self.engine.sequence += 1
        reader = stream.subscribe(self, tag, no_ack=no_ack, number=self.engine.sequence, arguments=arguments)
        self.consumers[tag] = reader
        stream.consumers.add(reader)
        return reader

    def cancel(self, tag: str) -> None:
        """basic.cancel: what is in hand stays in hand. An unknown tag is fine."""
        if tag == self.reply_tag:
            self._forget_replies()
        consumer = self.consumers.get(tag)
        if consumer is not None:
            self.forget(consumer)
            self.left(consumer.queue)
            self.engine.finish()

    def left(self, queue: Queue) -> None:
        """A consumer has left a queue: the next may become active, or the queue may be done."""
        if queue.is_deleted:
            return
        if queue.auto_delete and not queue.consumers.all:
            self.vhost.delete_queue(queue, why="auto-deleted after its last consumer")
            return
        queue.touch()
        queue.dispatch()

    def get(self, queue_name: str, *, no_ack: bool) -> bool:
        """basic.get: puts a `Got` among the effects, or False if the queue is empty. Raises Refusal."""
        queue = self.vhost.queue(self.named_queue(queue_name), self.connection)
        if isinstance(queue, Stream):
            raise queue.refusal("basic.get not supported by stream queues")
        if queue.is_quorum and queue.settings.single_active:
            where = resource("queue", queue.name, self.vhost.name)
            raise Refusal(
                405,
                f"cannot obtain access to locked {where}. basic.get operations are not supported by quorum queues "
                "with single active consumer",
            )
        queue.touch()
        queue.look()
        if not queue.ready:
            self.engine.finish()
            return False
        engine = self.engine
        entry = queue.pop()
        redelivered, header = queue.presented(entry, fetched=True)
        self.delivery_tag += 1
        left = len(queue.ready)
        queue.expire()
        if no_ack or not queue.is_quorum:
            # Counted when the new head has had its chance to expire; a quorum queue that keeps this one counts before.
            left = len(queue.ready)
        engine.effects.append(Got(self, self.delivery_tag, redelivered, entry.message, header, left))
        life = entry.message.life
        if life is not None:
            life.append((engine.now_ms, journal.DELIVERED, queue.name, "basic.get"))
        if not no_ack:
            entry.given_ms = engine.now_ms
            engine.overdue_ms = min(engine.overdue_ms, engine.now_ms + queue.consumer_timeout_ms)
            self.unacked[self.delivery_tag] = (entry, queue, None)
            queue.in_hand += 1
            engine.in_hand += 1
        queue.limits.note(queue)
        queue.rearm()
        engine.finish()
        return True

    def _consume_replies(self, tag: str, *, no_ack: bool) -> None:
        if not no_ack:
            raise precondition("reply consumer cannot acknowledge")
        if self.reply_tag is not None:
            raise precondition("reply consumer already set")
        self.reply_tag = tag
        self.reply_address = f"{REPLY_ADDRESS}{self.engine.unique()}"
        self.engine.reply_channels[self.reply_address] = self

    def _forget_replies(self) -> None:
        self.reply_tag = None
        self.engine.reply_channels.pop(self.reply_address, None)
