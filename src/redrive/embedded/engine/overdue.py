"""The consumer timeout: what becomes of a message that a client holds for too long, 30 minutes by default.

3.10 and 4.0 close the channel, going by the oldest message that it holds. They look once a minute; here it happens at
the earliest moment at which it can. On 4.3 only quorum queues mind, each message at its own moment: the queue takes it
back (the return counts as acquired, not as failed) and sends basic.cancel, but forgets nothing. A late ack is fine, and
a consumer that has settled all that was taken from it gets messages again, cancelled or not (measured on 4.3.6).
"""

from typing import TYPE_CHECKING

from redrive.embedded.engine.channel_state import ChannelState
from redrive.embedded.engine.consumers import Consumer
from redrive.embedded.engine.effects import Cancelled, TimedOut
from redrive.embedded.engine.messages import Entry
from redrive.embedded.engine.profiles import Returning
from redrive.embedded.engine.queues import Queue
from redrive.embedded.engine.refusals import precondition
from redrive.embedded.engine.timers import NEVER

if TYPE_CHECKING:
    from redrive.embedded.engine.engine import Engine


def release_overdue(engine: "Engine") -> None:
    """Do what is due about messages held for too long, and note when to look again."""
    engine.overdue_ms = NEVER
    channels = [channel for connection in engine.connections for channel in connection.channels.values()]
    if engine.profile.overdue_closes_channel:
        for channel in channels:
            _close_if_overdue(engine, channel)
        return
    returned: dict[Queue, list[Entry]] = {}
    for channel in channels:
        for queue, entry in _take_overdue(engine, channel):
            returned.setdefault(queue, []).append(entry)
    for queue, entries in returned.items():
        queue.give_back(entries, Returning.TIMEOUT)


def _close_if_overdue(engine: "Engine", channel: ChannelState) -> None:
    oldest = next(iter(channel.unacked.values()), None)
    if oldest is None or channel.is_timed_out:
        return
    entry, queue, _ = oldest
    timeout_ms = queue.consumer_timeout_ms
    if entry.given_ms + timeout_ms <= engine.now_ms:
        _time_out(engine, channel, timeout_ms)
    else:
        engine.overdue_ms = min(engine.overdue_ms, entry.given_ms + timeout_ms)


def _take_overdue(engine: "Engine", channel: ChannelState) -> list[tuple[Queue, Entry]]:
    """4.3: take what is overdue out of a channel's hands."""
    taken: list[tuple[Queue, Entry]] = []
    suspects: dict[Consumer | None, None] = {}
    for tag, (entry, queue, consumer) in list(channel.unacked.items()):
        due_ms = entry.given_ms + (queue.consumer_timeout_ms if consumer is None else consumer.timeout_ms)
        if due_ms > engine.now_ms or queue.is_deleted:
            engine.overdue_ms = min(engine.overdue_ms, due_ms)
            continue
        del channel.unacked[tag]
        channel.released[tag] = consumer
        if consumer is not None:
            consumer.in_hand -= 1
            consumer.released += 1
            channel.shared_in_hand = max(0, channel.shared_in_hand - 1)
        suspects[consumer] = None
        taken.append((queue, entry))
    for suspect in suspects:
        subscribed = suspect is not None and channel.consumers.get(suspect.tag) is suspect
        if suspect is not None and subscribed and channel.connection.wants_cancel:
            engine.effects.append(Cancelled(channel, suspect.tag))
        elif not channel.is_timed_out:
            _time_out(engine, channel, -1)  # which is what 4.3.6 says
    return taken


def _time_out(engine: "Engine", channel: ChannelState, timeout_ms: int) -> None:
    channel.is_timed_out = True
    text = (
        f"delivery acknowledgement on channel {channel.number} timed out. Timeout value used: {timeout_ms} ms. This "
        "timeout value can be configured, see consumers doc guide to learn more"
    )
    engine.effects.append(TimedOut(channel, precondition(text)))
