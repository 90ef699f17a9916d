"""The consumer timeout: what happens to a message that a client does not ack in time, 30 minutes by default.

3.10 and 4.0 close the channel, by the age of its oldest unacked message. They check once a minute; here it happens at
the earliest moment at which it can. On 4.3 only quorum queues have the timeout, for each message by itself: the queue
requeues the message (which counts as acquired, not as failed) and sends basic.cancel, but keeps the consumer. A late
ack is fine, and a consumer that has settled all its timed-out messages gets messages again, cancelled or not (measured
on 4.3.6).
"""

from typing import TYPE_CHECKING

from redrive.embedded.engine.amqp_errors import precondition
from redrive.embedded.engine.channel_base import ChannelBase
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.effects import ConsumerCancelled, ConsumerTimedOut
from redrive.embedded.engine.messages import QueueEntry
from redrive.embedded.engine.profiles import SettledBy
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.timers import NEVER

if TYPE_CHECKING:
    from redrive.embedded.engine.engine import Engine


def enforce_consumer_timeouts(engine: "Engine") -> None:
    """Close channels or requeue messages whose timeout has passed, and note when to check again."""
    engine.timeout_check_ms = NEVER
    channels = [channel for connection in engine.connections for channel in connection.channels.values()]
    if engine.profile.timeout_closes_channel:
        for channel in channels:
            _close_if_timed_out(engine, channel)
        return
    timed_out: dict[Queue, list[QueueEntry]] = {}
    for channel in channels:
        for queue, entry in _take_timed_out(engine, channel):
            timed_out.setdefault(queue, []).append(entry)
    for queue, entries in timed_out.items():
        queue.requeue(entries, SettledBy.TIMEOUT)


def _close_if_timed_out(engine: "Engine", channel: ChannelBase) -> None:
    oldest = next(iter(channel.unacked.values()), None)
    if oldest is None or channel.timeout_reported:
        return
    entry, queue, _ = oldest
    timeout_ms = queue.consumer_timeout_ms
    if entry.delivered_ms + timeout_ms <= engine.now_ms:
        _time_out(engine, channel, timeout_ms)
    else:
        engine.timeout_check_ms = min(engine.timeout_check_ms, entry.delivered_ms + timeout_ms)


def _take_timed_out(engine: "Engine", channel: ChannelBase) -> list[tuple[Queue, QueueEntry]]:
    """4.3: take the timed-out messages off a channel."""
    taken: list[tuple[Queue, QueueEntry]] = []
    suspects: dict[Consumer | None, None] = {}
    for tag, (entry, queue, consumer) in list(channel.unacked.items()):
        due_ms = entry.delivered_ms + (queue.consumer_timeout_ms if consumer is None else consumer.timeout_ms)
        if due_ms > engine.now_ms or queue.is_deleted:
            engine.timeout_check_ms = min(engine.timeout_check_ms, due_ms)
            continue
        del channel.unacked[tag]
        channel.timed_out[tag] = consumer
        if consumer is not None:
            consumer.unacked_count -= 1
            consumer.timed_out += 1
            channel.shared_unacked = max(0, channel.shared_unacked - 1)
        suspects[consumer] = None
        taken.append((queue, entry))
    for suspect in suspects:
        subscribed = suspect is not None and channel.consumers.get(suspect.tag) is suspect
        if suspect is not None and subscribed and channel.connection.wants_cancel:
            engine.effects.append(ConsumerCancelled(channel, suspect.tag))
        elif not channel.timeout_reported:
            _time_out(engine, channel, -1)  # which is what 4.3.6 says
    return taken


def _time_out(engine: "Engine", channel: ChannelBase, timeout_ms: int) -> None:
    channel.timeout_reported = True
    text = (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout_ms} ms. This "
        "timeout value can be configured, see consumers doc guide to learn more"
    )
    engine.effects.append(ConsumerTimedOut(channel, precondition(text)))
