"""The three RabbitMQs, and every rule in which they differ.

Measured on 3.10.8, 4.0.5 and 4.3.6. A difference is a field here and nowhere else: no other module asks which version
it plays.
"""

from dataclasses import dataclass
from enum import Enum, auto

from redrive.topology import BrokerVersion


class SettledBy(Enum):
    """How an unacked message comes back to its queue, to be requeued or discarded."""

    NACK = auto()
    """basic.nack or basic.recover"""
    REJECT = auto()
    """basic.reject"""
    CHANNEL_CLOSED = auto()
    """The channel or connection closed while the message was unacked."""
    TIMEOUT = auto()
    """The queue requeued it after the consumer timeout (4.3)."""


class QuorumPriorities(Enum):
    """How a quorum queue reads a message's priority."""

    NONE = auto()
    TWO_TO_ONE = auto()
    """Above 4 is high; two high ones go before each of the others."""
    STRICT = auto()
    """32 levels, the highest first; a message without priority has 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One version's behaviour.

    `acquired` and `failed` below are a message's two counters in a queue: how often it was requeued at all, and how
    often because a delivery failed.
    """

    name: str
    server_version: str
    copyright: str
    platform: str
    deaths_in_headers: bool
    """x-death histories in the headers and a client's own is believed (3.10); otherwise the broker keeps it apart."""
    last_death_headers: bool
    delivery_limit_default: int | None
    negative_limit_is_none: bool
    limit_counts_acquired: bool
    """Which counter the delivery limit looks at: on 4.0 every requeue, on the others failed deliveries."""
    failing_requeues: frozenset[SettledBy]
    """The requeues that count as a failed delivery."""
    failing_discards: frozenset[SettledBy]
    """The same for messages that are not requeued but dead-lettered."""
    carries_failed: bool
    """A quorum queue's dead letters take their failed deliveries along (shown by the next quorum queue)."""
    carries_everything: bool
    """ClassicOrder queues count and carry too, the next queue counts on, and `redelivered` shows it (4.3)."""
    shows_zero_count: bool
    """basic.get shows an x-delivery-count of 0 (3.10; a consumer does not see it)."""
    shows_acquired: bool
    """x-acquired-count exists (4.3); 4.0 shows its own acquired counter as x-delivery-count."""
    requeues_to_back_without_limit: bool
    """A quorum queue without delivery limit requeues what is nacked or rejected at its end (3.10)."""
    quorum_priorities: QuorumPriorities
    quorum_size_has_header: bool
    """max-length-bytes of a quorum queue counts the properties too (4.3)."""
    global_prefetch: bool
    """basic.qos global is shared by a channel's consumers; on 4.3 it is each consumer's."""
    dead_letter_key_drops_cc: bool
    unknown_exchange_type_is_hard: bool
    fills_in_queue_type: bool
    """A queue declared without a type is compared as `classic`, not as having none."""
    delayed_retry: bool
    quorum_drops_backwards: bool
    """Of messages that a quorum queue drops from its head together the latest dies first, and all before others."""
    quorum_purge_takes_all: bool
    """Purging a quorum queue takes, and counts, delayed messages and held dead letters too (4.3)."""
    consumers_requeue_first: bool
    """When a channel ends, a quorum queue requeues what consumers had, the oldest consumer first, then what basic.get
    had, by delivery tag as text; elsewhere all by tag as text (3.10)."""
    timeout_closes_channel: bool
    """A message unacked beyond the consumer timeout closes its channel; on 4.3 a quorum queue requeues it instead."""
    queues_set_timeout: bool
    """A queue may have a consumer timeout of its own, by argument or policy (not on 3.10)."""
    sorts_headers: bool
    """Headers are rewritten at basic.publish: sorted by key, each key once (4.x)."""
    garbled_reply_to_is_internal_error: bool
    """A malformed reply-to address closes the connection with 541 (4.3); elsewhere it is an unknown queue."""
    streams_only_ack: bool
    """What a stream delivered may only be acked: nack and reject close the connection (3.10)."""
    streams_lose_dead_letters: bool
    """A message that is dead-lettered at most once into a stream is lost (3.10)."""
    streams_filter: bool
    """A stream's consumer may ask for messages with certain filter values (4.x)."""
    garbled_age_is_internal_error: bool
    """An age that does not begin with a digit closes the connection with 541 (3.10, 4.0); 4.3 says what is wrong."""
    frame_min: int
    """The smallest frame-max, and the most that a client may send in a frame before tune-ok."""
    other_protocol: bytes
    """The header that is offered to a client which begins with a wrong one."""
    message_bytes_max: int
    """The largest body (`max_message_size` where nobody configured it)."""

    @property
    def version(self) -> BrokerVersion:
        """The same version as the topology room knows it."""
        return BrokerVersion(self.name)


_EVERY_CAUSE = frozenset(SettledBy)

V3_10 = Profile(
    name="3.10",
    server_version="3.10.8",
    copyright="Copyright (c) 2007-2022 VMware, Inc. or its affiliates.",
    platform="Erlang/OTP 25.2.3",
    deaths_in_headers=True,
    last_death_headers=False,
    delivery_limit_default=None,
    negative_limit_is_none=False,
    limit_counts_acquired=True,
    failing_requeues=_EVERY_CAUSE,
    failing_discards=frozenset(),
    carries_failed=False,
    carries_everything=False,
    shows_zero_count=True,
    shows_acquired=False,
    requeues_to_back_without_limit=True,
    quorum_priorities=QuorumPriorities.NONE,
    quorum_size_has_header=False,
    global_prefetch=True,
    dead_letter_key_drops_cc=True,
    unknown_exchange_type_is_hard=True,
    fills_in_queue_type=False,
    delayed_retry=False,
    quorum_drops_backwards=True,
    quorum_purge_takes_all=False,
    consumers_requeue_first=False,
    timeout_closes_channel=True,
    queues_set_timeout=False,
    sorts_headers=False,
    garbled_reply_to_is_internal_error=False,
    streams_only_ack=True,
    streams_lose_dead_letters=True,
    streams_filter=False,
    garbled_age_is_internal_error=True,
    frame_min=4096,
    other_protocol=b"AMQP\x00\x00\x09\x01",
    message_bytes_max=128 * 1024 * 1024,
)

V4_0 = Profile(
    name="4.0",
    server_version="4.0.5",
    copyright="Copyright (c) 2007-2024 Broadcom Inc and/or its subsidiaries",
    platform="Erlang/OTP 27.3.4.1",
    deaths_in_headers=False,
    last_death_headers=True,
    delivery_limit_default=20,
    negative_limit_is_none=True,
    limit_counts_acquired=True,
    failing_requeues=frozenset({SettledBy.CHANNEL_CLOSED}),
    failing_discards=frozenset({SettledBy.NACK, SettledBy.REJECT}),
    carries_failed=True,
    carries_everything=False,
    shows_zero_count=False,
    shows_acquired=False,
    requeues_to_back_without_limit=False,
    quorum_priorities=QuorumPriorities.TWO_TO_ONE,
    quorum_size_has_header=False,
    global_prefetch=True,
    dead_letter_key_drops_cc=False,
    unknown_exchange_type_is_hard=False,
    fills_in_queue_type=True,
    delayed_retry=False,
    quorum_drops_backwards=True,
    quorum_purge_takes_all=False,
    consumers_requeue_first=True,
    timeout_closes_channel=True,
    queues_set_timeout=True,
    sorts_headers=True,
    garbled_reply_to_is_internal_error=False,
    streams_only_ack=False,
    streams_lose_dead_letters=False,
    streams_filter=True,
    garbled_age_is_internal_error=True,
    frame_min=4096,
    other_protocol=b"AMQP\x03\x01\x00\x00",
    message_bytes_max=16 * 1024 * 1024,
)

V4_3 = Profile(
    name="4.3",
    server_version="4.3.6",
    copyright="Copyright (c) 2007-2026 Broadcom Inc and/or its subsidiaries",
    platform="Erlang/OTP 29.1.1",
    deaths_in_headers=False,
    last_death_headers=True,
    delivery_limit_default=20,
    negative_limit_is_none=True,
    limit_counts_acquired=False,
    failing_requeues=frozenset({SettledBy.REJECT, SettledBy.CHANNEL_CLOSED}),
    failing_discards=frozenset({SettledBy.REJECT}),
    carries_failed=True,
    carries_everything=True,
    shows_zero_count=False,
    shows_acquired=True,
    requeues_to_back_without_limit=False,
    quorum_priorities=QuorumPriorities.STRICT,
    quorum_size_has_header=True,
    global_prefetch=False,
    dead_letter_key_drops_cc=False,
    unknown_exchange_type_is_hard=False,
    fills_in_queue_type=True,
    delayed_retry=True,
    quorum_drops_backwards=False,
    quorum_purge_takes_all=True,
    consumers_requeue_first=True,
    timeout_closes_channel=False,
    queues_set_timeout=True,
    sorts_headers=True,
    garbled_reply_to_is_internal_error=True,
    streams_only_ack=False,
    streams_lose_dead_letters=False,
    streams_filter=True,
    garbled_age_is_internal_error=False,
    frame_min=8192,
    other_protocol=b"AMQP\x03\x01\x00\x00",
    message_bytes_max=16 * 1024 * 1024,
)

PROFILES = {profile.name: profile for profile in (V3_10, V4_0, V4_3)}
"""The profiles by name."""
