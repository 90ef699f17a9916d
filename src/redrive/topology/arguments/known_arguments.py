"""Every queue and exchange argument that RabbitMQ 3.10–4.3 knows, and every policy key, as one literal table.

Measured on 3.10.8, 4.0.5 and 4.3.6 by declaring a queue of each type with each value over AMQP and by setting each key
as a policy and as an operator policy; the lists of keys are the brokers' own (queue type capabilities and registered
policy validators). `since` is the first of the three measured versions that knows an argument. Before it RabbitMQ takes
the argument in silence and ignores it, but refuses the policy key, and with it the whole import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.topology.arguments.value_rules import Age, AnyText, Anything, Boolean, OneOf, ValueRule, Whole
from redrive.topology.broker_versions import BrokerVersion
from redrive.topology.model import QueueType

MESSAGE_TTL_MAX_MS = 315_360_000_000
"""Ten years of 365 days: the longest `x-message-ttl` and `x-expires`. measured on 3.10.8, 4.0.5, 4.3.6: this value is
taken, one more is refused with 406 value_too_large. Policies have no such limit."""
MAX_PRIORITY_MAX = 255
"""measured on 3.10.8, 4.0.5, 4.3.6: 0 and 255 are taken, 256 and -1 are refused."""
STREAM_SEGMENT_BYTES_MAX = 3_000_000_000
"""measured on 3.10.8, 4.0.5, 4.3.6: 0 is taken too."""
STREAM_FILTER_BYTES = (16, 255)
"""measured on 4.0.5 and 4.3.6: 15 and 256 are refused."""

_V4_0, _V4_3 = BrokerVersion.V4_0, BrokerVersion.V4_3
_CLASSIC, _QUORUM, _STREAM = QueueType.CLASSIC, QueueType.QUORUM, QueueType.STREAM
_ALL = frozenset(QueueType)
_MESSAGES = frozenset({_CLASSIC, _QUORUM})
_ONLY_CLASSIC, _ONLY_QUORUM, _ONLY_STREAM = frozenset({_CLASSIC}), frozenset({_QUORUM}), frozenset({_STREAM})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRule:
    """One queue argument: what it may be, where it counts, what it does.

    `unchecked`: RabbitMQ takes any value and ignores a wrong one. `since_on`: a later start on some types.
    """

    name: str
    value: ValueRule
    types: frozenset[QueueType]
    meaning: str
    policy_key: str | None = None
    since: BrokerVersion = BrokerVersion.V3_10
    since_on: Mapping[QueueType, BrokerVersion] = field(default_factory=dict)
    unchecked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """One policy key. `operator_since`: the first version whose operator policies take it too, None if none does."""

    name: str
    value: ValueRule
    since: BrokerVersion = BrokerVersion.V3_10
    removed_in: BrokerVersion | None = None
    operator_since: BrokerVersion | None = None


MIN_MASTERS = "min-masters"
"""As a leader locator: an argument's value from 4.0 on, refused by 3.10 and in every policy."""
_LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
_MASTER_LOCATORS = (MIN_MASTERS, "client-local", "random")
_OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
_STRATEGIES = ("at-most-once", "at-least-once")
_DELAYED_RETRY_TYPES = ("disabled", "all", "failed", "returned")
_LIFETIME = Whole(0, MESSAGE_TTL_MAX_MS)
_COUNT = Whole(0)
_POSITIVE = Whole(1)

# fmt: off
QUEUE_ARGUMENTS: tuple[ArgumentRule, ...] = (
    ArgumentRule(name="x-queue-type", value=OneOf(tuple(one.value for one in QueueType)), types=_ALL,
                 meaning="classic, quorum or stream; can never be changed"),
    ArgumentRule(name="x-message-ttl", policy_key="message-ttl", value=_LIFETIME, types=_MESSAGES,
                 meaning="milliseconds a message may wait before it dies; 0: delivered at once or never"),
    ArgumentRule(name="x-expires", policy_key="expires", value=Whole(1, MESSAGE_TTL_MAX_MS), types=_MESSAGES,
                 meaning="milliseconds an unused queue lives; its messages go with it, not to the dead letters"),
    ArgumentRule(name="x-max-length", policy_key="max-length", value=_COUNT, types=_MESSAGES,
                 meaning="most ready messages the queue holds"),
    ArgumentRule(name="x-max-length-bytes", policy_key="max-length-bytes", value=_COUNT, types=_ALL,
                 meaning="most bytes of bodies the queue holds"),
    ArgumentRule(name="x-overflow", policy_key="overflow", value=OneOf(_OVERFLOWS), types=_MESSAGES,
                 meaning="what a full queue does: drop its oldest, or refuse the newest"),
    ArgumentRule(name="x-dead-letter-exchange", policy_key="dead-letter-exchange", value=AnyText(), types=_MESSAGES,
                 meaning="where dead messages are published; the empty name is the default exchange"),
    ArgumentRule(name="x-dead-letter-routing-key", policy_key="dead-letter-routing-key", value=AnyText(),
                 types=_MESSAGES, meaning="the key dead messages get; without it they keep their own"),
    ArgumentRule(name="x-dead-letter-strategy", policy_key="dead-letter-strategy", value=OneOf(_STRATEGIES),
                 types=_ONLY_QUORUM, meaning="whether a dead message is kept until its target has it"),
    ArgumentRule(name="x-single-active-consumer", value=Boolean(), types=_MESSAGES,
                 meaning="one consumer at a time, the others wait to take over"),
    ArgumentRule(name="x-max-priority", value=Whole(0, MAX_PRIORITY_MAX), types=_ONLY_CLASSIC,
                 meaning="how many priorities a classic queue keeps apart"),
    ArgumentRule(name="x-queue-mode", policy_key="queue-mode", value=OneOf(("default", "lazy")), types=_ONLY_CLASSIC,
                 meaning="lazy: messages straight to disk; without effect from 4.0 on"),
    ArgumentRule(name="x-queue-version", policy_key="queue-version", value=OneOf((1, 2)), types=_ONLY_CLASSIC,
                 meaning="format of the classic queue's files; 4.3 knows 2 only"),
    ArgumentRule(name="x-queue-master-locator", policy_key="queue-master-locator", value=OneOf(_MASTER_LOCATORS),
                 types=_ONLY_CLASSIC, meaning="on which node a classic queue starts; 4.3 refuses it"),
    ArgumentRule(name="x-queue-leader-locator", policy_key="queue-leader-locator",
                 value=OneOf((*_LEADER_LOCATORS, MIN_MASTERS)), types=_ALL,
                 since_on={_CLASSIC: _V4_0}, meaning="on which node the queue's leader starts"),
    ArgumentRule(name="x-quorum-initial-group-size", value=_POSITIVE, types=_ONLY_QUORUM,
                 meaning="on how many nodes the queue starts"),
    ArgumentRule(name="x-quorum-target-group-size", policy_key="target-group-size", value=_POSITIVE, types=_ONLY_QUORUM,
                 since=_V4_0, unchecked=True, meaning="on how many nodes the queue is kept"),
    ArgumentRule(name="x-delivery-limit", policy_key="delivery-limit", value=Whole(), types=_ONLY_QUORUM,
                 unchecked=True, meaning="failed deliveries before a message dies; below 0: never, on 3.10 at once"),
    ArgumentRule(name="x-max-in-memory-length", policy_key="max-in-memory-length", value=_COUNT, types=_ONLY_QUORUM,
                 meaning="messages kept in memory; quorum queues no longer look at it"),
    ArgumentRule(name="x-max-in-memory-bytes", policy_key="max-in-memory-bytes", value=_COUNT, types=_ONLY_QUORUM,
                 meaning="bytes kept in memory; quorum queues no longer look at it"),
    ArgumentRule(name="x-consumer-timeout", policy_key="consumer-timeout", value=_COUNT, types=_ONLY_QUORUM,
                 since=_V4_3, meaning="milliseconds a consumer may hold a message"),
    ArgumentRule(name="x-consumer-disconnected-timeout", policy_key="consumer-disconnected-timeout", value=_COUNT,
                 types=_ONLY_QUORUM, since=_V4_3,
                 meaning="milliseconds until an unreachable consumer's messages go to others"),
    ArgumentRule(name="x-delayed-retry-type", policy_key="delayed-retry-type", value=OneOf(_DELAYED_RETRY_TYPES),
                 types=_ONLY_QUORUM, since=_V4_3, unchecked=True, meaning="which returned messages wait first"),
    ArgumentRule(name="x-delayed-retry-min", policy_key="delayed-retry-min", value=_POSITIVE, types=_ONLY_QUORUM,
                 since=_V4_3, unchecked=True, meaning="milliseconds of the first wait, and what each further run adds"),
    ArgumentRule(name="x-delayed-retry-max", policy_key="delayed-retry-max", value=_POSITIVE, types=_ONLY_QUORUM,
                 since=_V4_3, unchecked=True, meaning="milliseconds no wait exceeds; without it all are the minimum"),
    ArgumentRule(name="x-max-age", policy_key="max-age", value=Age(), types=_ONLY_STREAM,
                 meaning="how long a stream keeps its messages"),
    ArgumentRule(name="x-stream-max-segment-size-bytes", policy_key="stream-max-segment-size-bytes",
                 value=Whole(0, STREAM_SEGMENT_BYTES_MAX), types=_ONLY_STREAM, meaning="size of a stream's files"),
    ArgumentRule(name="x-stream-filter-size-bytes", policy_key="stream-filter-size-bytes",
                 value=Whole(*STREAM_FILTER_BYTES), types=_ONLY_STREAM, since=_V4_0,
                 meaning="size of the filter in each chunk of a stream"),
    ArgumentRule(name="x-initial-cluster-size", policy_key="initial-cluster-size", value=_POSITIVE, types=_ONLY_STREAM,
                 meaning="on how many nodes a stream starts"),
)
"""`x-quorum-target-group-size` is in no broker's list of queue arguments and is taken on any type with any value."""

_V3_10 = BrokerVersion.V3_10
POLICY_KEYS: tuple[PolicyRule, ...] = (
    PolicyRule(name="message-ttl", value=_COUNT, operator_since=_V3_10),
    PolicyRule(name="expires", value=_POSITIVE, operator_since=_V3_10),
    PolicyRule(name="max-length", value=_COUNT, operator_since=_V3_10),
    PolicyRule(name="max-length-bytes", value=_COUNT, operator_since=_V3_10),
    PolicyRule(name="max-in-memory-length", value=_COUNT, operator_since=_V3_10),
    PolicyRule(name="max-in-memory-bytes", value=_COUNT, operator_since=_V3_10),
    PolicyRule(name="delivery-limit", value=Whole(), operator_since=_V3_10),
    PolicyRule(name="overflow", value=OneOf(_OVERFLOWS), operator_since=_V4_0),
    PolicyRule(name="queue-version", value=OneOf((1, 2)), operator_since=_V4_0),
    PolicyRule(name="queue-master-locator", value=OneOf(_MASTER_LOCATORS), removed_in=_V4_3, operator_since=_V4_0),
    PolicyRule(name="target-group-size", value=_POSITIVE, since=_V4_0, operator_since=_V4_0),
    PolicyRule(name="delayed-retry-type", value=OneOf(_DELAYED_RETRY_TYPES), since=_V4_3, operator_since=_V4_3),
    PolicyRule(name="delayed-retry-min", value=_POSITIVE, since=_V4_3, operator_since=_V4_3),
    PolicyRule(name="delayed-retry-max", value=_POSITIVE, since=_V4_3, operator_since=_V4_3),
    PolicyRule(name="dead-letter-exchange", value=AnyText()),
    PolicyRule(name="dead-letter-routing-key", value=AnyText()),
    PolicyRule(name="dead-letter-strategy", value=OneOf(_STRATEGIES)),
    PolicyRule(name="alternate-exchange", value=AnyText()),
    PolicyRule(name="queue-mode", value=OneOf(("default", "lazy"))),
    PolicyRule(name="queue-leader-locator", value=OneOf(_LEADER_LOCATORS)),
    PolicyRule(name="initial-cluster-size", value=_COUNT),
    PolicyRule(name="max-age", value=Age()),
    PolicyRule(name="stream-max-segment-size-bytes", value=Whole(0, STREAM_SEGMENT_BYTES_MAX)),
    PolicyRule(name="stream-filter-size-bytes", value=Whole(*STREAM_FILTER_BYTES), since=_V4_0),
    PolicyRule(name="consumer-timeout", value=_COUNT, since=_V4_0),
    PolicyRule(name="consumer-disconnected-timeout", value=_COUNT, since=_V4_3),
    PolicyRule(name="ha-mode", value=OneOf(("all", "exactly", "nodes")), removed_in=_V4_0),
    PolicyRule(name="ha-params", value=Anything(), removed_in=_V4_0),
    PolicyRule(name="ha-sync-mode", value=OneOf(("manual", "automatic")), removed_in=_V4_0),
    PolicyRule(name="ha-sync-batch-size", value=_POSITIVE, removed_in=_V4_0),
    PolicyRule(name="ha-promote-on-shutdown", value=OneOf(("always", "when-synced")), removed_in=_V4_0),
    PolicyRule(name="ha-promote-on-failure", value=OneOf(("always", "when-synced")), removed_in=_V4_0),
)
"""A policy's ranges are wider than the arguments': no upper limit on TTL and expiry, 0 for a cluster size."""
# fmt: on

PLUGIN_POLICY_KEYS = frozenset(
    {
        "federation-upstream",
        "federation-upstream-set",
        "federation-upstream-pattern",
        "shards-per-node",
        "routing-key",
    }
)
"""Keys that RabbitMQ knows while the federation or sharding plugin is enabled, and refuses otherwise."""

EXCHANGE_TYPES_SINCE = {
    "direct": BrokerVersion.V3_10,
    "topic": BrokerVersion.V3_10,
    "fanout": BrokerVersion.V3_10,
    "headers": BrokerVersion.V3_10,
    "x-local-random": BrokerVersion.V4_0,
    "x-modulus-hash": BrokerVersion.V4_3,  # the sharding plugin's before
}
"""The exchange types of a broker without plugins; any other name is refused."""

APPLY_TO_SINCE = {
    "all": BrokerVersion.V3_10,
    "queues": BrokerVersion.V3_10,
    "exchanges": BrokerVersion.V3_10,
    "classic_queues": BrokerVersion.V4_0,
    "quorum_queues": BrokerVersion.V4_0,
    "streams": BrokerVersion.V4_0,
}
"""What a policy can apply to."""
